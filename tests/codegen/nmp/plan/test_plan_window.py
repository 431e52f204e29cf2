"""Plans of pooling, padding and elementwise layers."""

from __future__ import annotations

from math import ceil

from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.codegen.nmp.plan import plan_reference as reference
from tests.codegen.nmp.plan.plan_reference import machine
from tests.examples import examples
from tvm_npu.codegen.nmp.plan.window import (
    FlatProblem,
    WindowPlan,
    WindowProblem,
    plan_flat,
    plan_window,
)
from tvm_npu.codegen.plan.problem import Infeasible
from tvm_npu.sim.nmp.machine import NmpMachine, load_nmp_machine


@st.composite
def windows(draw: st.DrawFn) -> WindowProblem:
    kernel = (draw(st.integers(1, 5)), draw(st.integers(1, 5)))
    stride = (draw(st.integers(1, 3)), draw(st.integers(1, 3)))
    rows, columns = draw(st.integers(1, 9)), draw(st.integers(1, 9))
    real = [(n - 1) * s + k for n, s, k in zip((rows, columns), stride, kernel, strict=True)]
    in_rows, in_columns = (max(1, n - draw(st.integers(0, 2))) for n in real)
    return WindowProblem(
        draw(st.integers(1, 12)), rows, columns, in_rows, in_columns, kernel, stride,
        draw(st.sampled_from((1, 2))),
    )  # fmt: skip


def plain_cycles(
    p: WindowProblem, m: NmpMachine, rs: int, cs: int, tile: tuple[int, int, int]
) -> float:
    """Time of a window plan, step by step."""
    tile_channels, tile_r, tile_c = tile
    channels, rows = ceil(p.channels / cs), ceil(p.rows / rs)
    in_rows = min(p.in_tile_rows(tile_r), p.in_rows)
    in_columns = min(p.in_tile_columns(tile_c), p.in_columns)
    loads, stores, compute = [], [], 0.0
    for _ in range(ceil(rows / tile_r) * ceil(p.columns / tile_c)):
        for begin in range(0, channels, tile_channels):
            number = min(tile_channels, channels - begin)
            piece = [in_rows * in_columns] if in_columns == p.in_columns else [in_columns] * in_rows
            loads.append([n * p.element_bytes for n in piece * number])
            piece = [tile_r * tile_c] if tile_c == p.columns else [tile_c] * tile_r
            stores.append([n * p.element_bytes for n in piece * number])
            window = tile_r * tile_c * p.kernel[0] * p.kernel[1]
            units = number * ceil(window / m.macs_per_cycle(p.element_bytes))
            compute += units / m.mac.efficiency + m.mac.setup_cycles
    busy = min(rs * cs, m.cores.tlts_per_tle)
    moved = loads + stores
    alone = reference.engine_cycles(moved, m)
    own = busy * max(alone, reference.dram_cycles(moved, m)) + compute
    return max(own, rs * cs * reference.dram_cycles(loads + stores, m))


def fits(p: WindowProblem, m: NmpMachine, tile: tuple[int, int, int]) -> bool:
    channels, rows, columns = tile
    in_bytes = channels * p.in_tile_rows(rows) * p.in_tile_columns(columns) * p.element_bytes
    out_bytes = channels * rows * columns * p.element_bytes
    return in_bytes <= m.memories.mb0_bytes and out_bytes <= m.memories.mb2_bytes


@settings(max_examples=examples(100), deadline=None)
@given(problem=windows(), mach=reference.machines(256))
@example(  # four columns read the IFM's whole width and need no more tiles than three
    problem=WindowProblem(1, 1, 5, 5, 11, (5, 5), (1, 2), 2),
    mach=machine(1, 1, (120, 64, 64, 64)),
)
def test_window_plan_fits_and_is_the_fastest(problem: WindowProblem, mach: NmpMachine) -> None:
    plan = plan_window(problem, mach)
    if isinstance(plan, Infeasible):
        assert not fits(problem, mach, (1, 1, 1))
        return
    assert plan.row_slices * plan.channel_slices <= mach.core_count
    assert 1 <= plan.row_slices <= problem.rows
    assert 1 <= plan.channel_slices <= problem.channels
    tile = (plan.tile_channels, plan.tile_r, plan.tile_c)
    assert min(tile) >= 1 and fits(problem, mach, tile)
    full_width = fits(problem, mach, (1, 1, problem.columns))
    assert (plan.tile_c == problem.columns) or not full_width
    mine = plain_cycles(problem, mach, plan.row_slices, plan.channel_slices, tile)
    assert abs(mine - plan.cycles) <= 1e-9 * mine
    for row_slices in range(1, min(problem.rows, mach.core_count) + 1):
        channel_slices = min(problem.channels, mach.core_count // row_slices)
        for tile_r in range(1, ceil(problem.rows / row_slices) + 1):
            for tile_c in [problem.columns] if full_width else range(1, problem.columns + 1):
                for channels in range(1, ceil(problem.channels / channel_slices) + 1):
                    other = (channels, tile_r, tile_c)
                    if fits(problem, mach, other):
                        time = plain_cycles(problem, mach, row_slices, channel_slices, other)
                        assert plan.cycles <= time * (1 + 1e-9)


def test_pooling_of_a_large_map_keeps_all_cores_busy() -> None:
    nmp = load_nmp_machine("nmp-4x8")
    plan = plan_window(WindowProblem(64, 56, 56, 112, 112, (3, 3), (2, 2), 2), nmp)
    assert isinstance(plan, WindowPlan)
    assert plan.row_slices * plan.channel_slices == 32 and plan.tile_c == 56


def test_too_wide_a_map_is_cut_in_columns() -> None:
    nmp = load_nmp_machine("nmp-4x8")
    plan = plan_window(WindowProblem(3, 64, 5000, 64, 5000, (1, 1), (1, 1), 2), nmp)
    assert isinstance(plan, WindowPlan) and plan.tile_c < 5000


def test_infeasible_window() -> None:
    nmp = load_nmp_machine("nmp-4x8")
    plan = plan_window(WindowProblem(6, 1, 1, 100, 100, (100, 100), (1, 1), 2), nmp)
    assert str(plan) == (
        "smallest IN tile (one window of 100x100): 20000 bytes of MB0 needed, 8192 available; "
        "use a smaller window, or raise memories.mb0_bytes"
    )


@settings(max_examples=examples(200), deadline=None)
@given(
    problem=st.builds(
        FlatProblem, st.integers(1, 5000), st.sampled_from((1, 2)), st.sampled_from((1, 2))
    ),
    mach=reference.machines(),
)
def test_flat_plan_covers_everything_and_fits(problem: FlatProblem, mach: NmpMachine) -> None:
    plan = plan_flat(problem, mach)
    size, memories = problem.element_bytes, mach.memories
    assert plan.core_elements * mach.core_count >= problem.elements
    assert plan.core_elements * size % mach.dram.burst_bytes == 0
    # No core has a burst more than an even share needs.
    share = ceil(problem.elements / mach.core_count)
    assert (plan.core_elements - share) * size < mach.dram.burst_bytes
    assert 1 <= plan.tile_elements <= plan.core_elements
    buffers = [memories.mb0_bytes, memories.mb2_bytes]
    buffers += [memories.mb1_bytes] if problem.operands == 2 else []
    assert plan.tile_elements * size <= min(buffers)
    # As few tiles as the smallest buffer allows in whole bursts.
    most = min(buffers) // mach.dram.burst_bytes * mach.dram.burst_bytes // size
    if most:
        tiles = ceil(plan.core_elements / plan.tile_elements)
        assert tiles == ceil(plan.core_elements / most)
        assert plan.tile_elements * size % mach.dram.burst_bytes == 0
    assert plan.cycles > 0


def test_flat_time_by_hand() -> None:
    """2048 elements on 2 x 2 cores of 4-kB buffers: 512 each, one tile."""
    mach = machine(2, 2, (4096, 4096, 4096, 64))
    plan = plan_flat(FlatProblem(2048, 2, 2), mach)
    assert (plan.core_elements, plan.tile_elements) == (512, 512)
    one = 16 + 8 * 20 + 1024 / 1.5  # 1-D: linear_burst_cycles
    assert abs(plan.cycles - (2 * 3 * one + 64 / 0.75 + 8)) < 1e-9 * plan.cycles
