"""Max feature maps and 2x2 pools behind convolutions: made in the MBufs, to the reference's bits,
and nothing that lies between is stored or loaded."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from studies.snowflake_layers.mutants import Fate, judge_program, mutants
from tests.codegen.snowflake.snowflake_cases import MACHINES, machine, outcome
from tests.examples import examples
from tvm_npu.codegen import ops
from tvm_npu.codegen.compile import compile_fixed
from tvm_npu.codegen.graph import FixedGraph, FixedLayer, Shape
from tvm_npu.codegen.graph.scale import q_point_scales
from tvm_npu.codegen.plan import NO_LIMITS, Planner
from tvm_npu.codegen.plan import planner as planner_called
from tvm_npu.codegen.plan.problem import ConvProblem
from tvm_npu.codegen.snowflake.plan.behind import maxima_plan, maxima_problem
from tvm_npu.codegen.snowflake.plan.exact import ExactPlanner
from tvm_npu.codegen.snowflake.plan.tiling import SnowflakePlan

EXACT = ExactPlanner("exact", NO_LIMITS)
RANDOM = settings(deadline=None, max_examples=examples(25), phases=[Phase.explicit, Phase.generate])


@dataclass(frozen=True)
class Case:
    """A convolution of ``size`` maps and what is behind it."""

    channels: int
    size: tuple[int, int]
    filters: int
    kernel: int
    stride: int
    feature_map: bool
    pool: bool


def chain(case: Case, seed: int = 0) -> FixedGraph:
    rng = np.random.default_rng(seed)
    kernel = (case.kernel, case.kernel)
    border = case.kernel // 2
    rows, columns = ((n + 2 * border - case.kernel) // case.stride + 1 for n in case.size)
    layers: list[FixedLayer] = [
        ops.FixedConv(
            "conv", ("x",), ("t0",),
            rng.integers(-300, 300, (case.filters, case.channels, *kernel)).astype(np.int16),
            rng.integers(-(1 << 20), 1 << 20, case.filters).astype(np.int32),
            (case.stride, case.stride), (border,) * 4, shift=9, low=-30000, high=31000,
        )
    ]  # fmt: skip
    filters = case.filters
    shapes: dict[str, Shape] = {
        "x": (case.channels, *case.size), "t0": (filters, rows, columns)
    }  # fmt: skip
    if case.feature_map:
        filters //= 2
        layers.append(
            ops.FixedMaxFeatureMap("mfm", ("t0",), ("t1",), shift=0, low=-9000, high=20000)
        )
        shapes["t1"] = (filters, rows, columns)
    if case.pool:
        source = layers[-1].output
        layers.append(
            ops.FixedPool(
                "pool", (source,), ("t2",), "max", (2, 2), (2, 2), shift=0, low=-8000, high=19000
            )
        )
        shapes["t2"] = (filters, rows // 2, columns // 2)
    scales = q_point_scales(dict.fromkeys(shapes, 8))
    return FixedGraph(tuple(layers), shapes, ("x",), (layers[-1].output,), scales, 2)


@st.composite
def cases(draw: st.DrawFn) -> Case:
    feature_map = draw(st.booleans())
    return Case(
        draw(st.sampled_from((1, 3, 16, 24, 48, 64))),
        (draw(st.integers(4, 24)), draw(st.integers(4, 24))),
        2 * draw(st.sampled_from((1, 5, 16, 24, 40, 64, 100))),
        draw(st.sampled_from((1, 3, 5))), draw(st.sampled_from((1, 1, 2))), feature_map,
        not feature_map or draw(st.booleans()),
    )  # fmt: skip


@RANDOM
@given(
    cases(), st.sampled_from(MACHINES), st.sampled_from(("snowflake", "exact")),
    st.integers(0, 99),
)  # fmt: skip
def test_random_chains(case: Case, name: str, planner: str, seed: int) -> None:
    found = outcome(chain(case, seed), machine(name), planner, seed=seed)
    assert (found.wrong, found.hazards) == (0, ())


ONE = (
    Case(48, (32, 32), 96, 3, 1, True, True), Case(3, (32, 32), 96, 5, 1, True, True),
    Case(64, (32, 32), 64, 3, 1, False, True), Case(48, (32, 32), 96, 1, 1, True, False),
    Case(192, (16, 16), 256, 3, 1, True, False),
)  # fmt: skip


@pytest.mark.parametrize("name", ["snowflake-1cc", "snowflake-4cc"])
def test_exact_is_not_behind_the_papers_planner(name: str) -> None:
    """By predicted time, with all maxima in one layer: Light CNN-9's, whose tiles of least time for
    the convolutions alone suit maxima less."""
    on, gained = machine(name), []
    for planes, size, filters, kernel in ((1, 128, 96, 5), (48, 64, 192, 3), (96, 32, 384, 3)):
        fixed = chain(Case(planes, (size, size), filters, kernel, 1, True, True))
        conv, feature_map, pool = fixed.layers
        layer = ops.FixedConvMaxima(
            "all", fixed.inputs, fixed.outputs, conv=conv, feature_map=feature_map, pool=pool  # type: ignore[arg-type]
        )
        asked = maxima_problem(layer, fixed.shapes)
        exact, paper, alone = (
            getattr(maxima_plan(asked, on, one), "prediction", None)
            for one in (EXACT, planner_called("snowflake"), Alone(EXACT))
        )
        assert exact is not None
        assert paper is None or exact.cycles <= paper.cycles
        gained.append(alone is None or exact.cycles < alone.cycles)
    assert any(gained)


@dataclass(frozen=True)
class Alone:
    """A planner that gives its answer and nothing else."""

    planner: Planner

    @property
    def name(self) -> str:
        return self.planner.name

    def plan(self, problem: ConvProblem, machine: Any) -> Any:
        return self.planner.plan(problem, machine)


@pytest.mark.parametrize("case", ONE, ids=str)
@pytest.mark.parametrize("name", ("snowflake-1cc", "snowflake-4cc"))
def test_what_lies_between_never_moves(case: Case, name: str) -> None:
    """One layer; what is stored is what the last one leaves; less time than layers of their own
    would need for their bytes."""
    on, fixed = machine(name), chain(case)
    found = outcome(fixed, on)
    assert (found.wrong, found.hazards) == (0, ())
    (planned,) = found.planned_cycles
    links, runs = found.statistics.bytes_by_link, found.statistics.runs
    result = 2 * int(np.prod(fixed.shapes[fixed.outputs[0]]))
    assert links["stored"]["out"] == runs * result
    cycles = found.statistics.cycles / runs
    assert planned == pytest.approx(cycles, rel=0.25)


def test_transfers_hide_behind_sums() -> None:
    """Maxima are short: what the next step needs comes beside the sums in front of them. So the
    layer takes the time of its sums or of its transfers, whichever is longer, after all its maps
    and the first tile of kernels have come."""
    fixed, on = chain(Case(512, (8, 8), 128, 3, 1, False, True)), machine("snowflake-4cc")
    found = outcome(fixed, on)
    (entry,) = found.program.layers
    assert found.wrong == 0 and entry.plan is not None
    moved, tiles = entry.plan["prediction"], 128 / entry.plan["tile_m"]
    first = (moved["in_bytes"] + moved["weight_bytes"] / tiles) / on.memory_bytes_per_cycle
    sums, transfers = (
        max(unit.busy_cycles for unit in found.statistics.units if unit.name.startswith(name))
        for name in ("mac", "memory")
    )
    runs = found.statistics.runs
    assert found.statistics.cycles / runs < 1.02 * max(sums, transfers) / runs + first


def test_no_order_can_be_taken_out() -> None:
    """A sample of all mutants: each is caught, or ordered otherwise."""
    case = Case(16, (8, 8), 32, 3, 1, True, True)
    fixed, rng = chain(case), np.random.default_rng(3)
    program = compile_fixed(fixed, machine("snowflake-1cc"), "snowflake")
    assert len(program.layers) == 1
    inputs = [rng.integers(-900, 900, (1, *fixed.shapes["x"])).astype(np.int16)]
    chosen = list(mutants(program.code))
    judged = judge_program(program, inputs, chosen[:: max(1, len(chosen) // 24)])
    assert not judged.of(Fate.WRONG) and judged.of(Fate.CAUGHT), str(judged)


def test_maps_that_come_to_all_clusters_count_once() -> None:
    """VGG's fourth stage on four clusters: filters are divided, since maps that come again and
    again come for all clusters at once."""
    on = machine("snowflake-4cc")
    layer = ConvProblem(512, 512, 1, 28, 28, 28, 28, (3, 3), (1, 1), (1, 1), (1,) * 4, 2)
    plan = planner_called("snowflake").plan(layer, on)
    assert isinstance(plan, SnowflakePlan) and plan.prediction is not None
    assert plan.divides == "filters"
    assert plan.prediction.cycles < 1.05 * layer.macs / 1024
