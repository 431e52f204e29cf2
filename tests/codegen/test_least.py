"""What the doors ask before they give a layer to a machine: answers agree with what is planned."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.codegen.tiles.tile_cases import tile_machine
from tvm_npu.codegen.least import least_needs
from tvm_npu.codegen.plan.loops.plan import LoopPlan
from tvm_npu.codegen.plan.loops.room import check_loop_plan
from tvm_npu.codegen.plan.problem import ConvProblem, Infeasible
from tvm_npu.codegen.tiles.plan.loop_machine import loop_machine
from tvm_npu.codegen.tiles.plan.pools import WindowShape, window_tiles
from tvm_npu.sim.nmp.machine import load_nmp_machine

LAYER = ConvProblem(2, 2, 1, 8, 8, 16, 16, (9, 9), (1, 1), (1, 1), (0, 0, 0, 0), 1,
                    has_residual=True)  # fmt: skip
SIZES = st.integers(8, 40).map(lambda n: 8 * n)
MEMORIES = st.one_of(st.tuples(SIZES), st.tuples(SIZES, SIZES, SIZES))
KERNELS = st.tuples(st.integers(1, 9), st.integers(1, 9))


@given(MEMORIES, KERNELS, st.integers(1, 2), st.sampled_from(((1, 2, 4, 8), (4, 4, 4, 8))))
def test_convolutions_that_fit_have_a_plan(
    memories: tuple[int, ...], kernel: tuple[int, int], dilation: int, words: tuple[int, ...]
) -> None:
    machine = tile_machine(memories, words)  # type: ignore[arg-type]
    reach = ((kernel[0] - 1) * dilation + 1, (kernel[1] - 1) * dilation + 1)
    problem = replace(
        LAYER, kernel=kernel, dilation=(dilation, dilation), rows=21 - reach[0],
        columns=21 - reach[1], in_rows=20, in_columns=20, element_bytes=words[0],
        accumulator_bytes=words[2],
    )  # fmt: skip
    needs = least_needs(machine, "int8")
    fits = needs.conv_input(reach, kernel).fits and needs.conv_weight(reach, kernel).fits
    assert fits == (check_loop_plan(problem, LoopPlan(1, 1, 1, 1), loop_machine(machine)) is None)


@given(MEMORIES, KERNELS)
def test_pools_that_fit_have_tiles(memories: tuple[int, ...], window: tuple[int, int]) -> None:
    machine = tile_machine(memories, (4, 4, 4, 8))
    shape = WindowShape(3, 8, 8, 20, 20, window, (1, 1), (0, 0), 4)
    if least_needs(machine, "int8").pool_input(window).fits:
        assert not isinstance(window_tiles(shape, machine), Infeasible)


@pytest.mark.parametrize(
    ("precision", "needed"), [("int8", 45), ("int16", 90)]
)  # fmt: skip
def test_an_nmp_answers_for_its_scratchpads(precision: str, needed: int) -> None:
    """A dilated kernel of 5 x 5 reads 5 of a window's 9 rows, whole; a pool reads all."""
    needs = least_needs(load_nmp_machine("nmp-4x8"), precision)  # type: ignore[arg-type]
    need = needs.conv_input((9, 9), (5, 5))
    assert (need.needed, need.memory, need.available) == (needed, "MB0", 8192)
    assert needs.pool_input((9, 9)).needed * 5 == needed * 9
    assert needs.conv_weight((9, 9), (5, 5)).memory == "MB1"
    biases = needs.biases(32769)
    assert (biases.needed, biases.where, biases.fits) == (4100, "in each TLT", False)
