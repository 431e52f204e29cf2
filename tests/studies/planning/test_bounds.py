"""Bounds are computed by hand for small layers, and no plan's prediction is below its own."""

from __future__ import annotations

import pytest
from hypothesis import given, settings

from studies.harness.errors import StudyError
from studies.planning.bounds import Work, conv_bytes, executed
from studies.shared.simulation import LayerMeasurement
from tests.codegen.nmp.plan import plan_reference as reference
from tests.examples import examples
from tvm_npu.codegen.graph_bound import touched
from tvm_npu.codegen.nmp.plan.conv_plan import ConvPlan
from tvm_npu.codegen.nmp.plan.graph_bound import roofs
from tvm_npu.codegen.plan import planner
from tvm_npu.codegen.plan.problem import ConvProblem
from tvm_npu.sim.nmp.machine import NmpMachine, load_nmp_machine

NMP = load_nmp_machine("nmp-4x8")


@pytest.mark.parametrize(
    ("axis", "positions"),
    [
        ((4, 3, 1, 1, 1, 4), 4),  # a padded 3-window over everything
        ((2, 1, 2, 1, 0, 4), 2),  # a strided 1-window skips every other position
        ((2, 3, 2, 1, 0, 6), 5),  # the last position is out of reach
        ((1, 3, 1, 2, 0, 5), 3),  # a dilated window looks at every other position
        ((3, 1, 1, 1, 1, 1), 1),  # padding on both sides counts nothing
    ],
)
def test_touched_positions(axis: tuple[int, int, int, int, int, int], positions: int) -> None:
    count, *rest = axis
    assert len(touched(range(count), *rest)) == positions


def test_compulsory_bytes() -> None:
    plain = reference.conv(8, 4, (6, 5), (3, 3), padding=(1, 1, 1, 1))
    weights = 2 * 8 * 4 * 9 + 4 * 8
    assert conv_bytes(plain) == (2 * 4 * 30, weights, 2 * 8 * 30)
    residual = reference.conv(8, 4, (6, 5), (3, 3), padding=(1, 1, 1, 1), has_residual=True)
    assert conv_bytes(residual) == (2 * 4 * 30 + 2 * 8 * 30, weights, 2 * 8 * 30)
    strided = reference.conv(8, 4, (6, 6), (1, 1), stride=(2, 2))
    assert conv_bytes(strided) == (2 * 4 * 9, 2 * 32 + 32, 2 * 8 * 9)
    depthwise = reference.conv(4, 4, (5, 5), (3, 3), groups=4, element_bytes=1)
    assert conv_bytes(depthwise) == (4 * 25, 4 * 9 + 16, 4 * 9)


def layer(name: str, *sizes: int) -> Work:
    return Work(name, name, (f"{name}-op",), *sizes, None)


CONV = layer("conv", 90, 10, 5, 20)
POOL = layer("pool", 0, 20, 0, 7)
DENSE = layer("dense", 8, 7, 9, 1)


def ran(name: str, *source: str, kind: str = "conv") -> LayerMeasurement:
    return LayerMeasurement(name, kind, source, 0, 1.0, 1.0, 60)


APART = [ran(x.name, *x.source) for x in (CONV, POOL, DENSE)]
CASCADE = ran("conv+pool", "conv-op", "pool-op")


def test_layers_that_a_program_makes_one_of() -> None:
    """By name; what is left goes where its source is. What lies between them is no traffic."""
    assert executed((CONV, POOL, DENSE), APART) == [CONV, POOL, DENSE]
    other, one = executed((CONV, POOL, DENSE), [APART[2], CASCADE])
    assert (one.macs, one.input_bytes, one.constant_bytes, one.output_bytes) == (90, 10, 5, 7)
    assert (one.name, one.kind, one.source) == ("conv", "conv+pool", CASCADE.source)
    assert other == DENSE


def test_copies_come_and_go_with_cascades() -> None:
    gone = Work("conv@0", "copy", (), 0, 20, 0, 20, None)
    assert len(executed((CONV, gone, POOL), [CASCADE])) == 1
    _, copy = executed((CONV, POOL), [CASCADE, ran("pool@0", kind="copy")])
    assert (copy.input_bytes, copy.output_bytes) == (30, 30)


def test_all_work_of_a_layer_that_came_apart_counts_with_its_first_part() -> None:
    run = [ran("conv"), ran("pool.0", "pool-op"), ran("pool.1", "pool-op")]
    conv, first, second = executed((CONV, POOL), run)
    assert (conv, first) == (CONV, POOL)
    assert (second.name, second.macs, second.compulsory_bytes) == ("pool.1", 0, 0)


@pytest.mark.parametrize(
    "run",
    [
        [ran("conv")],
        [ran("conv"), ran("pool"), ran("new")],
        [ran("new", "pool-op")],
        [APART[0]] * 2,
    ],
)
def test_a_program_of_other_layers_is_refused(run: list[LayerMeasurement]) -> None:
    with pytest.raises(StudyError, match="has no partner"):
        executed((CONV, POOL), run)


def test_roofs_of_the_paper() -> None:
    """256 and 192 GMAC/s at 1 GHz; whole bursts through four engines and through the DRAM."""
    top = roofs(NMP, 2)
    assert (top.peak_macs, top.reachable_macs) == (256.0, 256.0 * NMP.mac.efficiency)
    assert roofs(NMP, 1).peak_macs == 512.0
    burst, dme, dram = NMP.dram.burst_bytes, NMP.dme, NMP.dram
    latency = min(dme.burst_cycles, dme.linear_cycles)
    engine = burst / (latency + burst / dme.bytes_per_cycle)
    assert top.engine_bytes == pytest.approx(NMP.cores.tles * engine)
    assert top.dram_bytes == pytest.approx(burst / (dram.cas_cycles + burst / dram.bytes_per_cycle))
    assert top.bytes == min(top.engine_bytes, top.dram_bytes)


@settings(max_examples=examples(100), deadline=None)
@given(reference.convs(), reference.machines())
def test_no_prediction_is_below_the_bound(problem: ConvProblem, machine: NmpMachine) -> None:
    top = roofs(machine, problem.element_bytes)
    work = Work("layer", "conv", (), problem.macs, *conv_bytes(problem), problem)
    for name in ("tso", "tso-noburst", "exact"):
        plan = planner(name).plan(problem, machine)
        if isinstance(plan, ConvPlan):
            assert plan.prediction is not None
            assert plan.prediction.cycles >= work.bound_cycles(top) * (1 - 1e-9)
            moved = plan.prediction
            assert moved.in_bytes + moved.weight_bytes + moved.out_bytes >= work.compulsory_bytes
