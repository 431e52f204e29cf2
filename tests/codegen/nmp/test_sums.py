"""Pairs of pointwise convolutions, one of which adds what the other makes, run as one layer."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tests.codegen.nmp.fixed_layers import (
    SEEDS,
    filter_shifts,
    random_tensors,
    requantizing,
)
from tests.codegen.nmp.plan.plan_reference import conv
from tests.codegen.nmp.simulated import simulate
from tests.codegen.nmp.test_cascades import predicted
from tests.codegen.nmp.test_wide_plans import Drawn, machines, plans, run_drawn
from tests.examples import FILTERED, examples
from tvm_npu.codegen.compile import generate
from tvm_npu.codegen.fixed_point import element_limits
from tvm_npu.codegen.graph import FixedGraph, Shape, q_point_scales
from tvm_npu.codegen.nmp.plan.conv_plan import ConvPlan
from tvm_npu.codegen.nmp.plan.conv_sum import SumProblem
from tvm_npu.codegen.nmp.plan.sum_check import check_sum
from tvm_npu.codegen.nmp.plan.sum_cost import predict_sum
from tvm_npu.codegen.nmp.plan.sum_search import plan_sum
from tvm_npu.codegen.ops import FixedConv, FixedConvSum, operator_of
from tvm_npu.codegen.ops.registry import kind_of, layer_macs
from tvm_npu.codegen.passes.sums import possible_sums
from tvm_npu.codegen.plan import planner
from tvm_npu.codegen.plan.problem import ConvProblem, Infeasible
from tvm_npu.codegen.reference import run_fixed
from tvm_npu.sim.nmp.machine import NmpMachine, load_nmp_machine

ALONE = ConvPlan("multicast", "KS", 1, 1, "OS", 1, 1, 1, 1, prediction=predicted(1e9))


def convolution(
    seed: int, name: str, inputs: tuple[str, ...], filters: int, channels: int, size: int,
    **more: Any,
) -> FixedConv:  # fmt: skip
    generator = np.random.default_rng(seed)
    low, high = element_limits(size)
    weight = generator.integers(low, high + 1, (filters, channels, 1, 1))
    more = {"shift": 8 * size, "low": low, "high": high, **more}
    return FixedConv(
        name, inputs, (name,), weight=weight.astype(np.int8 if size == 1 else np.int16),
        bias=generator.integers(-(1 << 20), 1 << 20, filters).astype(np.int32), **more,
    )  # fmt: skip


def graph_of(
    filters: int, channels: tuple[int, int], place: tuple[int, int], stride: tuple[int, int],
    size: int = 2, first: dict[str, Any] | None = None, second: dict[str, Any] | None = None,
    seed: int = 0, beside: tuple[int, int] = (0, 0),
) -> FixedGraph:  # fmt: skip
    """y = conv(x) + conv(a); ``beside``: rows and columns of x that no window sees."""
    one = convolution(seed, "e", ("a",), filters, channels[0], size, **(first or {}))
    two = convolution(
        seed + 1, "y", ("x", "e"), filters, channels[1], size, stride=stride, **(second or {})
    )
    extents = [(place[axis] - 1) * stride[axis] + 1 + beside[axis] for axis in (0, 1)]
    shapes: dict[str, Shape] = {
        "a": (channels[0], *place), "x": (channels[1], *extents),
        "e": (filters, *place), "y": (filters, *place),
    }  # fmt: skip
    return FixedGraph(
        (one, two), shapes, ("a", "x"), ("y",), q_point_scales(dict.fromkeys(shapes, 8)),
        size,  # type: ignore[arg-type]
    )  # fmt: skip


@st.composite
def sums(draw: st.DrawFn, size: int) -> FixedGraph:
    filters, place = draw(st.integers(1, 12)), (draw(st.integers(1, 9)), draw(st.integers(2, 9)))
    stride = draw(st.integers(1, 3)), draw(st.integers(1, 3))

    def ends() -> dict[str, Any]:
        shifts = draw(filter_shifts(filters, size))
        return {**draw(requantizing(size, -2)), "filter_shifts": shifts}

    adds = {"accumulator_shift": draw(st.integers(0, 3)), "residual_shift": draw(st.integers(0, 8))}
    beside = tuple(draw(st.integers(0, one - 1)) for one in stride)
    return graph_of(
        filters, (draw(st.integers(1, 12)), draw(st.integers(1, 12))), place, stride, size,
        ends(), {**ends(), **adds}, draw(SEEDS), beside,  # type: ignore[arg-type]
    )  # fmt: skip


@dataclass
class Summing(Drawn):
    """Likes sums, and finds all else very slow."""

    name: str = "summing"
    plans_windows: bool = True
    plans_sums: bool = True

    def plan(self, problem: object, machine: NmpMachine) -> ConvPlan:  # type: ignore[override]
        if not isinstance(problem, SumProblem):
            return ALONE
        if problem not in self.known:
            plan = self.data.draw(sum_plans(problem, machine, self.buffers))
            self.known[problem] = plan  # type: ignore[index]
        return self.known[problem]  # type: ignore[index]


@st.composite
def sum_plans(
    draw: st.DrawFn, problem: SumProblem, machine: NmpMachine, buffers: int
) -> ConvPlan:
    """A sound one."""
    own = problem.first.channels
    plan = draw(plans(problem.whole, machine, buffers))
    tile_n = draw(st.sampled_from([one for one in range(1, own + 1) if own % one == 0]))
    split = "KS" if plan.row_slices * plan.column_slices == 1 else "KS&OFM"
    split = "OFM" if plan.filter_slices == 1 else split
    plan = replace(
        plan, tile_n=tile_n, keeps_in=False, split=split,  # type: ignore[arg-type]
        prediction=predicted(1.0),
    )  # fmt: skip
    assume(check_sum(problem, plan, machine) is None)
    assert predict_sum(problem, plan, machine).cycles > 0
    return plan


@pytest.mark.parametrize("buffers", [1, 2])
@pytest.mark.parametrize("size", [1, 2])
@given(st.data())
@settings(
    max_examples=examples(40), deadline=None,
    suppress_health_check=FILTERED,
)  # fmt: skip
def test_any_sum_runs_to_the_bit(size: int, buffers: int, data: st.DataObject) -> None:
    fixed = data.draw(sums(size))
    layers = run_drawn(fixed, data.draw(machines(buffers)), Summing(data, buffers), data)
    assert [type(one.layer) for one in layers] == [FixedConvSum]


CASES = {
    "first stage": (256, (64, 64), (56, 56), (1, 1)),
    "fourth stage": (512, (128, 256), (14, 14), (2, 2)),
    "small": (48, (24, 40), (13, 9), (1, 1)),
    "wide": (64, (32, 16), (28, 28), (2, 2)),
}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("size", [1, 2])
@pytest.mark.parametrize("name", ["nmp-4x8", "nmp-4x8-dual"])
def test_predicted_and_simulated_times_agree(name: str, size: int, case: str) -> None:
    machine = load_nmp_machine(name)
    fixed = graph_of(*CASES[case], size)
    program = generate(fixed, machine, Summed(planner("exact"))).program()
    (entry,) = program.layers
    assert entry.kind == "conv+conv"
    tensors = random_tensors(fixed, 1)
    outputs, statistics = simulate(program, tensors)
    right = run_fixed(fixed, {name: values[None] for name, values in tensors.items()})["y"][0]
    np.testing.assert_array_equal(outputs["y"], right)
    assert entry.predicted_cycles == pytest.approx(statistics.cycles, rel=0.05)


@dataclass(frozen=True)
class Summed:
    """As another planner, but finds all layers but sums very slow."""

    other: Any
    name: str = "summed"
    plans_windows: bool = True
    plans_sums: bool = True

    def plan(self, problem: Any, machine: NmpMachine) -> Any:
        found = self.other.plan(problem, machine)
        if isinstance(problem, SumProblem):
            return found
        return replace(found, prediction=replace(found.prediction, cycles=1e12))


@pytest.mark.parametrize("name", ["nmp-4x8", "nmp-4x8-dual"])
def test_exact_takes_the_sum_where_it_is_faster(name: str) -> None:
    machine = load_nmp_machine(name)
    fixed = graph_of(*CASES["first stage"])
    tensors = random_tensors(fixed, 1)
    cycles = {}
    for one in ("exact", "exact-layers"):
        generated = generate(fixed, machine, one)
        kinds = [type(layer.layer) for layer in generated.planned.layers]
        assert kinds == ([FixedConvSum] if one == "exact" else [FixedConv, FixedConv])
        cycles[one] = simulate(generated.program(), tensors)[1].cycles
    assert cycles["exact"] < 0.85 * cycles["exact-layers"]


POINT = conv(8, 4, (6, 6), (1, 1))
PROBLEM = SumProblem(POINT, replace(POINT, channels=6))
PLAN = ConvPlan("multicast", "KS", 1, 1, "OS", 1, 2, 2, 6)


def test_a_sound_plan() -> None:
    assert check_sum(PROBLEM, PLAN, load_nmp_machine("nmp-4x8")) is None


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        ({"tile_n": 3}, "channels of the first over tiles"),
        ({"mode": "grouped"}, "mode of a sum"),
        ({"tile_n": 10, "keeps_in": True}, "keeps_in of a sum"),
        ({"tile_r": 7}, "tile_r"),
    ],
)
def test_faults_of_plans(change: dict[str, Any], fault: str) -> None:
    found = check_sum(PROBLEM, replace(PLAN, **change), load_nmp_machine("nmp-4x8"))
    assert found is not None and fault in str(found)


@pytest.mark.parametrize(
    ("memory", "least"),
    [("mb0_bytes", 2 * 12 * 2 + 12 * 2), ("bias_bytes", 2 * 4)],
)  # fmt: skip
def test_room_to_the_byte(memory: str, least: int) -> None:
    """An IN tile of 2 channels beside an OUT tile of 2 x 6; two biases for the one filter of a
    TLT."""
    machine = load_nmp_machine("nmp-4x8")

    def with_bytes(size: int) -> NmpMachine:
        memories = machine.memories.model_copy(update={memory: size})
        return machine.model_copy(update={"memories": memories})

    assert check_sum(PROBLEM, PLAN, with_bytes(least)) is None
    found = check_sum(PROBLEM, PLAN, with_bytes(least - 1))
    assert found is not None and found.value == least


@pytest.mark.parametrize(
    ("memory", "buffer", "least"),
    [("mb0_bytes", "MB0", 2 + 2), ("bias_bytes", "the bias buffer", 2 * 4)],
)  # fmt: skip
def test_the_least_room_of_a_sum(memory: str, buffer: str, least: int) -> None:
    """A value of an IN tile beside one of an OUT tile."""
    machine = load_nmp_machine("nmp-4x8")
    memories = machine.memories.model_copy(update={memory: least - 1})
    small = machine.model_copy(update={"memories": memories})
    found = plan_sum(PROBLEM, small, "exact", (PLAN,))
    message = f"{least} bytes of {buffer} needed, {least - 1} available"
    assert isinstance(found, Infeasible) and message in str(found)
    none = plan_sum(PROBLEM, small, "exact", ())
    assert "a sum needs rings and pointwise convolutions" in str(none)


@pytest.mark.parametrize(
    ("part", "change", "fault"),
    [
        ("first", {"stride": (2, 2)}, "stride of the first"),
        ("first", {"rows": 5}, "what the second makes"),
        ("second", {"kernel": (3, 3)}, "kernel of a sum"),
        ("second", {"has_residual": True}, "a residual of a sum"),
    ],
)
def test_faults_of_problems(part: str, change: dict[str, Any], fault: str) -> None:
    layer: ConvProblem = getattr(PROBLEM, part)
    problem = replace(PROBLEM, **{part: replace(layer, **change)})
    found = check_sum(problem, PLAN, load_nmp_machine("nmp-4x8"))
    assert found is not None and fault in str(found)


@pytest.mark.parametrize("change", ["output", "reader", "table", "kernel", "stride"])
def test_pairs_that_are_no_sum(change: str) -> None:
    fixed = graph_of(4, (3, 5), (4, 4), (1, 1))
    (found,) = possible_sums(fixed)
    assert found.inputs == ("a", "x") and found.outputs == ("y",)
    first, second = fixed.layers
    assert isinstance(first, FixedConv)
    if change == "output":
        fixed = replace(fixed, outputs=("y", "e"))
    elif change == "reader":
        other = replace(first, name="o", inputs=("e",), outputs=("o",))
        fixed = replace(fixed, layers=(first, second, other))
    elif change == "table":
        fixed = replace(fixed, layers=(replace(first, slopes=np.ones(1, np.int16)), second))
    elif change == "kernel":
        wider = replace(first, weight=np.zeros((4, 3, 3, 3), np.int16))
        fixed = replace(fixed, layers=(wider, second))
    else:
        fixed = replace(fixed, layers=(replace(first, stride=(2, 2)), second))
    assert not possible_sums(fixed)


def test_what_a_sum_is() -> None:
    fixed = graph_of(4, (3, 5), (4, 4), (2, 1))
    (found,) = possible_sums(fixed)
    assert kind_of(found) == "conv+conv"
    assert layer_macs(found, fixed.shapes) == sum(
        layer_macs(layer, fixed.shapes) for layer in fixed.layers
    )
    shapes = [fixed.shapes[name] for name in found.inputs]
    assert operator_of(found).shapes(found, shapes, [fixed.shapes["y"]]) == (fixed.shapes["y"],)
