"""Layers, plans and small machines for tests of tile planners, and a walk over a plan's steps."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from functools import cache
from typing import Any

from hypothesis import strategies as st

from tvm_npu.codegen.plan.loops.plan import (
    LOOPS,
    LoopPlan,
    can_be_touched_only,
    in_extent,
    steps,
    trips,
)
from tvm_npu.codegen.plan.problem import ConvProblem
from tvm_npu.sim.machine_file import load_machine, machine_from_dict
from tvm_npu.sim.tiles.machine import TileMachine


@cache
def setup(name: str) -> TileMachine:
    machine = load_machine(f"setup-{name}")
    assert isinstance(machine, TileMachine)
    return machine


def small(input_bytes: int = 1024, weight_bytes: int = 512, output_bytes: int = 1024,
          **array: Any) -> TileMachine:  # fmt: skip
    """Set-up A with small memories and an array of 4 x 4."""
    values = setup("a").model_dump()
    values["name"] = "small"
    values["memories"] = {
        "input_bytes": input_bytes, "weight_bytes": weight_bytes, "output_bytes": output_bytes,
        "bias_bytes": 64,
    }  # fmt: skip
    values["array"] = {**values["array"], "width": 4, "height": 4, **array}
    values["mover"] = {"setup_cycles": 10.0, "segment_cycles": 2.0, "bytes_per_cycle": 4.0}
    machine = machine_from_dict(values)
    assert isinstance(machine, TileMachine)
    return machine


def shared(shared_bytes: int = 4096) -> TileMachine:
    values = small().model_dump()
    values["memories"] = {"shared_bytes": shared_bytes, "bias_bytes": 64}
    machine = machine_from_dict(values)
    assert isinstance(machine, TileMachine)
    return machine


def core(shared_bytes: int = 2048) -> TileMachine:
    """A core with a DMA controller and little memory."""
    values = load_machine("zynq-7020").model_dump(exclude_none=True)
    values["memories"] = {"shared_bytes": shared_bytes, "bias_bytes": 64}
    machine = machine_from_dict(values)
    assert isinstance(machine, TileMachine)
    return machine


def layer(filters: int, channels: int, size: int, kernel: int = 3, stride: int = 1,
          padding: int | None = None, **changes: Any) -> ConvProblem:  # fmt: skip
    """A square layer as a set-up sees it: every value in 4 bytes."""
    edge = kernel // 2 if padding is None else padding
    in_size = (size - 1) * stride + kernel - 2 * edge
    values: dict[str, Any] = dict(
        filters=filters, channels=channels, groups=1, rows=size, columns=size,
        in_rows=in_size, in_columns=in_size, kernel=(kernel, kernel), stride=(stride, stride),
        dilation=(1, 1), padding=(edge,) * 4, element_bytes=4, accumulator_bytes=4,
    )  # fmt: skip
    return ConvProblem(**{**values, **changes})


@st.composite
def problems(draw: st.DrawFn) -> ConvProblem:
    groups = draw(st.sampled_from((1, 1, 1, 2, 3)))
    kernel = draw(st.sampled_from(((1, 1), (3, 3), (2, 3), (1, 5))))
    stride = draw(st.sampled_from(((1, 1), (2, 2), (3, 1))))
    dilation = draw(st.sampled_from(((1, 1), (1, 1), (2, 1))))
    rows, columns = draw(st.integers(1, 7)), draw(st.integers(1, 7))
    sizes, padding = [], []
    for axis, out in enumerate((rows, columns)):
        reach = (kernel[axis] - 1) * dilation[axis] + 1
        before = draw(st.integers(0, reach - 1))
        needed = (out - 1) * stride[axis] + reach
        after = draw(st.integers(0, reach - 1))
        sizes.append(max(needed - before - after, 1) + draw(st.integers(0, stride[axis] - 1)))
        padding.append((before, after))
    return ConvProblem(
        filters=groups * draw(st.integers(1, 7)),
        channels=groups * draw(st.integers(1, 7)),
        groups=groups,
        rows=rows,
        columns=columns,
        in_rows=sizes[0],
        in_columns=sizes[1],
        kernel=kernel,
        stride=stride,
        dilation=dilation,
        padding=(padding[0][0], padding[1][0], padding[0][1], padding[1][1]),
        element_bytes=draw(st.sampled_from((1, 2, 4))),
        has_residual=draw(st.booleans()),
        accumulator_bytes=draw(st.sampled_from((4, 8))),
    )


@st.composite
def plans(draw: st.DrawFn, problem: ConvProblem) -> LoopPlan:
    filters, channels = problem.filters // problem.groups, problem.channels // problem.groups
    tile_groups = draw(st.integers(1, problem.groups))
    whole = tile_groups > 1
    plan = LoopPlan(
        tile_m=filters if whole else draw(st.integers(1, filters)),
        tile_n=channels if whole else draw(st.integers(1, channels)),
        tile_r=draw(st.integers(1, problem.rows)),
        tile_c=draw(st.integers(1, problem.columns)),
        order=tuple(draw(st.permutations(LOOPS))),
        tile_groups=tile_groups,
        buffers=draw(st.sampled_from((1, 2))),
    )
    if can_be_touched_only(problem) and draw(st.booleans()):
        return replace(plan, touched_only=True)
    plan = replace(plan, resident=draw(st.sampled_from(("", "IN", "W"))))
    keeps_rows = not plan.resident and draw(st.booleans()) and can_keep_rows(problem, plan)
    return replace(plan, keeps_rows=keeps_rows)


def can_keep_rows(problem: ConvProblem, plan: LoopPlan) -> bool:
    """No loop over channels or columns lies inside of that over rows."""
    inside = plan.order[plan.order.index("R") :]
    return all(trips(problem, plan, loop) == 1 for loop in inside if loop in "NC")


def walked(problem: ConvProblem, plan: LoopPlan) -> Counter[str]:
    """Transfers, runs and bytes of every stream, counted step by step."""
    found: Counter[str] = Counter()
    size, taps = problem.element_bytes, problem.kernel[0] * problem.kernel[1]

    def move(stream: str, runs: int, moved: int) -> None:
        if moved:
            found[f"{stream} transfers"] += 1
            found[f"{stream} segments"] += runs
            found[f"{stream} bytes"] += moved

    before: tuple[object, range] = (None, range(0))
    there: dict[str, tuple[object, set[object]]] = {}

    def came(tensor: str, place: object, tile: object) -> bool:
        """Whether a tile has to come: a resident one is beside others of its place, any other
        alone."""
        own, tiles = there.get(tensor, (None, set()))
        if place == own and tile in tiles:
            return False
        if place != own or plan.resident != tensor:
            tiles = set()
        there[tensor] = place, tiles | {tile}
        return True

    for step in steps(problem, plan):
        assert step.loads_in == came("IN", (step.groups, step.rows, step.columns), step.channels)
        assert step.loads_weights == came("W", (step.groups, step.filters), step.channels)
        groups, filters, channels = step.groups[1], step.filters[1], step.channels[1]
        if step.loads_in and plan.touched_only:
            points = step.rows[1] * step.columns[1]
            for _ in range(groups * channels):
                move("in", points, points * size)
        elif step.loads_in:
            first, rows, _ = in_extent(problem, *step.rows, "R")
            columns = in_extent(problem, *step.columns, "C")[1]
            count = groups * channels
            place = (step.groups, step.channels, step.columns)
            coming = set(range(first, first + rows))
            if plan.keeps_rows and place == before[0] and first > before[1].start:
                coming -= set(before[1])
            if rows * columns:
                before = (place, range(first, first + rows))
            if len(coming) < rows:
                for _ in range(count):
                    move("in", 1 if columns == problem.in_columns else len(coming),
                         len(coming) * columns * size)  # fmt: skip
                rows = 0
            runs = _runs(count, rows, columns, rows == problem.in_rows,
                         columns == problem.in_columns)  # fmt: skip
            move("in", runs, count * rows * columns * size)
        if step.loads_weights:
            all_channels = channels == problem.channels // problem.groups
            move("weights", 1 if all_channels else filters,
                 groups * filters * channels * taps * size)  # fmt: skip
        count = groups * filters
        outputs = count * step.rows[1] * step.columns[1]
        runs = _runs(count, step.rows[1], step.columns[1], step.rows[1] == problem.rows,
                     step.columns[1] == problem.columns)  # fmt: skip
        if step.enters_out and not step.first:
            move("partial loads", runs, outputs * problem.accumulator_bytes)
        if step.last:
            move("out", runs, outputs * size)
            if problem.has_residual:
                move("residual", runs, outputs * size)
        elif step.leaves_out:
            move("partial stores", runs, outputs * problem.accumulator_bytes)
    return found


def _runs(count: int, rows: int, columns: int, all_rows: bool, all_columns: bool) -> int:
    if not all_columns:
        return count * rows
    return 1 if all_rows else count
