"""Blocks that take what they add from the IN tiles of their head."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tests.codegen.nmp.fixed_layers import SEEDS, filter_shifts, requantizing
from tests.codegen.nmp.forced import Forced
from tests.codegen.nmp.simulated import simulate
from tests.codegen.nmp.test_blocks import Blocking
from tests.codegen.nmp.test_kept_rows import keeping
from tests.codegen.nmp.test_wide_plans import machines, run_drawn
from tests.examples import FILTERED, examples
from tvm_npu.codegen.compile import compile_fixed, generate
from tvm_npu.codegen.fixed_point import element_limits
from tvm_npu.codegen.graph import FixedGraph, q_point_scales
from tvm_npu.codegen.nmp.plan.block import BlockPlan, BlockProblem
from tvm_npu.codegen.nmp.plan.block_check import check_block
from tvm_npu.codegen.nmp.plan.block_cost import predict_block
from tvm_npu.codegen.nmp.plan.block_search import plan_block
from tvm_npu.codegen.nmp.plan.exact_blocks.planner import fastest_plans
from tvm_npu.codegen.nmp.plan.input_residual import adds_what_it_reads, carried_rows
from tvm_npu.codegen.ops import FixedBlock, FixedConv
from tvm_npu.codegen.plan import planner
from tvm_npu.codegen.plan.limits import NO_LIMITS
from tvm_npu.codegen.plan.problem import ConvProblem, Window
from tvm_npu.codegen.reference import run_fixed
from tvm_npu.sim.nmp.machine import NmpMachine, load_nmp_machine

DUAL = load_nmp_machine("nmp-4x8-dual")


def bottleneck(
    extents: tuple[int, int, int],
    filters: int,
    window: tuple[int, int, int, int] | None,
    element_bytes: int,
    seed: int,
    of_filters: dict[str, dict[str, Any]] | None = None,
) -> FixedGraph:
    """A pointwise convolution of ``extents`` (channels, rows, columns), a depthwise one with a
    kernel and padding above and left (``window``) or none, and one back that adds the input."""
    channels, rows, columns = extents
    generator = np.random.default_rng(seed)
    low, high = element_limits(element_bytes)
    dtype = np.int8 if element_bytes == 1 else np.int16
    shapes = {"x": extents, "a": (filters, rows, columns), "z": extents}
    inner = {"shift": 9, "low": 0, "high": high}

    def conv(
        inputs: tuple[str, ...], output: str, shape: tuple[int, ...], **more: Any
    ) -> FixedConv:
        options: dict[str, Any] = {**inner, **(of_filters or {}).get(output, {}), **more}
        return FixedConv(
            output, inputs, (output,),
            weight=generator.integers(low, high + 1, shape).astype(dtype),
            bias=generator.integers(-(1 << 20), 1 << 20, shape[0]).astype(np.int32), **options,
        )  # fmt: skip

    layers = [conv(("x",), "a", (filters, channels, 1, 1))]
    if window is not None:
        height, width, top, left = window
        shapes["b"] = shapes["a"]
        padding = (top, left, height - 1 - top, width - 1 - left)
        layers.append(
            conv(("a",), "b", (filters, 1, height, width), groups=filters, padding=padding)
        )
    made = layers[-1].output
    layers.append(
        conv(
            (made, "x"), "z", (channels, filters, 1, 1), residual_shift=6, accumulator_shift=1,
            low=low,
        )
    )  # fmt: skip
    return FixedGraph(
        tuple(layers), shapes, ("x",), ("z",), q_point_scales(dict.fromkeys(shapes, 8)),
        element_bytes,  # type: ignore[arg-type]
    )  # fmt: skip


@st.composite
def bottlenecks(draw: st.DrawFn, element_bytes: int) -> FixedGraph:
    extents = (draw(st.integers(1, 12)), draw(st.integers(1, 14)), draw(st.integers(1, 9)))
    filters = draw(st.integers(1, 6)) * draw(st.sampled_from((1, 2, 4, 8)))
    window = None
    if draw(st.integers(0, 4)):
        kernel = draw(st.integers(1, 5)), draw(st.integers(1, 3))
        padding = tuple(draw(st.integers(0, size - 1)) for size in kernel)
        window = (*kernel, *padding)
    options = {
        name: {
            "filter_shifts": draw(filter_shifts(number, element_bytes)),
            **draw(requantizing(element_bytes)),
        }
        for name, number in (("a", filters), ("b", filters), ("z", extents[0]))
    }
    return bottleneck(extents, filters, window, element_bytes, draw(SEEDS), options)  # type: ignore[arg-type]



@dataclass
class Taking(Blocking):
    """Of plans for blocks only those that take the residual on chip."""

    taking: dict[BlockProblem, BlockPlan] = field(default_factory=dict)

    def plan(self, problem: object, machine: NmpMachine) -> object:  # type: ignore[override]
        if not isinstance(problem, BlockProblem):
            return super().plan(problem, machine)
        assume(adds_what_it_reads(problem))
        if problem not in self.taking:
            plan = super().plan(problem, machine)
            assert isinstance(plan, BlockPlan)
            if self.data.draw(st.booleans()):
                plan = replace(plan, head=keeping(plan.head, problem.head))
            plan = replace(plan, residual_on_chip=True)
            assume(check_block(problem, plan, machine) is None)
            self.taking[problem] = plan
        return self.taking[problem]


@pytest.mark.parametrize("buffers", [1, 2])
@pytest.mark.parametrize("element_bytes", [1, 2])
@given(st.data())
@settings(
    max_examples=examples(25), deadline=None,
    suppress_health_check=FILTERED,
)  # fmt: skip
def test_they_run_to_the_bit(element_bytes: int, buffers: int, data: st.DataObject) -> None:
    fixed = data.draw(bottlenecks(element_bytes))
    machine = data.draw(machines(buffers, (512, 2048, 8192)))
    (one,) = run_drawn(fixed, machine, Taking(data, buffers), data)
    assert isinstance(one.layer, FixedBlock) and one.plan.residual_on_chip


SHAPES = {
    "one map": ((160, 7, 7), 320, (3, 3, 1, 1)),
    "rows": ((32, 28, 28), 192, (3, 3, 1, 1)),
    "tall": ((24, 40, 20), 96, (5, 3, 2, 1)),
    "no window": ((64, 14, 14), 128, None),
}


@pytest.mark.parametrize("name", ["nmp-4x8", "nmp-4x8-dual", "nmp-4x8-int8"])
@pytest.mark.parametrize("shape", SHAPES)
def test_planners_find_them_and_they_move_the_input_once_less(shape: str, name: str) -> None:
    """Others of the fastest plans, too: some carry rows, some have several steps and places."""
    machine = load_nmp_machine(name)
    size = 1 if machine.default_precision == "int8" else 2
    fixed = bottleneck(*SHAPES[shape], size, seed=len(shape))
    x = np.random.default_rng(1).integers(-99, 99, fixed.shapes["x"])
    inputs = {"x": x.astype(np.int8 if size == 1 else np.int16)}
    expected = run_fixed(fixed, {"x": inputs["x"][None]})["z"][0]
    planned = generate(fixed, machine, planner("exact-traffic")).planned.layers
    (one,) = planned
    assert one.plan.residual_on_chip
    problem = one.problem
    ranked = [
        plan for _, plan in fastest_plans(problem, machine, NO_LIMITS, 400).plans
        if plan.residual_on_chip and check_block(problem, plan, machine) is None
    ]  # fmt: skip
    assert ranked
    for plan in [one.plan, *ranked[:: max(1, len(ranked) // 4)]]:
        plan = replace(plan, prediction=replace(one.plan.prediction, cycles=1.0))
        outputs, found = simulate(compile_fixed(fixed, machine, Forced(plan)), inputs)
        np.testing.assert_array_equal(outputs["z"], expected)
        said = predict_block(problem, plan, machine).moved_bytes
        loads = predict_block(problem, replace(plan, residual_on_chip=False), machine)
        assert found.moved_bytes == said == loads.moved_bytes - x.size * size


HEAD = ConvProblem(
    filters=192, channels=32, groups=1, rows=28, columns=28, in_rows=28, in_columns=28,
    kernel=(1, 1), stride=(1, 1), dilation=(1, 1), padding=(0, 0, 0, 0), element_bytes=2,
    window=Window(28, 28, (3, 3), (1, 1), (1, 1), has_weights=True),
)  # fmt: skip
BLOCK = BlockProblem(HEAD, 32, has_residual=True, adds_input=True)


def taking_plan(problem: BlockProblem) -> BlockPlan:
    ranked = fastest_plans(problem, DUAL, NO_LIMITS, 400).plans
    return next(
        plan for _, plan in ranked
        if plan.residual_on_chip and plan.head.keeps_rows and plan.head.tile_n < 32
        and check_block(problem, plan, DUAL) is None
    )  # fmt: skip


def test_the_checker_finds_what_is_wrong() -> None:
    plan = taking_plan(BLOCK)
    assert carried_rows(BLOCK, plan) == 1
    other = replace(BLOCK, adds_input=False)
    assert "does not add what its head reads" in str(check_block(other, plan, DUAL))
    assert "does not add" in str(check_block(replace(BLOCK, has_residual=False), plan, DUAL))
    head = plan.head
    narrow = replace(plan, head=replace(head, tile_c=14))
    what = "tile_c with residual_on_chip is 14; it must be all 28 columns"
    assert what in str(check_block(BLOCK, narrow, DUAL))
    cut = replace(plan, head=replace(head, tlt_columns=2, tile_c=14))
    assert "column slices and parts with residual_on_chip" in str(check_block(BLOCK, cut, DUAL))
    odd = replace(plan, head=replace(head, tile_n=head.tile_n - 1))
    assert "tile_n with residual_on_chip" in str(check_block(BLOCK, odd, DUAL))


@pytest.mark.parametrize("memory", ["mb0_bytes", "mb2_bytes"])
def test_they_need_room_for_the_residual(memory: str) -> None:
    """The checker's least memory is enough for the program, and less traps or is refused."""
    plan = taking_plan(BLOCK)
    without = replace(plan, residual_on_chip=False)
    least = [_least(one, memory) for one in (plan, without)]
    assert least[0] > 0 and least[0] >= least[1]
    if memory == "mb2_bytes":
        own = 32 // 16
        assert least[0] == least[1] + own * plan.head.tile_r * 28 * 2


def _least(plan: BlockPlan, memory: str) -> int:
    size = 8
    while True:
        memories = DUAL.memories.model_copy(update={memory: size})
        found = check_block(BLOCK, plan, DUAL.model_copy(update={"memories": memories}))
        if found is None:
            return size
        assert isinstance(found.value, int) and found.value > size
        size = found.value


def test_only_blocks_that_add_their_input_ask() -> None:
    plain = replace(BLOCK, adds_input=False)
    plans = fastest_plans(plain, DUAL, NO_LIMITS, 64).plans
    assert not any(plan.residual_on_chip for _, plan in plans)
    for change in (
        {"kernel": (3, 3), "padding": (1, 1, 1, 1)}, {"window": None, "in_rows": 29},
        {"channels": 31},
    ):  # fmt: skip
        assert not adds_what_it_reads(replace(BLOCK, head=replace(HEAD, **change)))
    assert adds_what_it_reads(BLOCK)
    assert isinstance(plan_block(BLOCK, DUAL, NO_LIMITS, "exact"), BlockPlan)
