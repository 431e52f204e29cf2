"""A plan of an NMP as steps on tiles, as an execution plan in text lists them."""

from __future__ import annotations

from collections.abc import Iterator

from tvm_npu.codegen.nmp.emit.shares import CoreShare, core_shares
from tvm_npu.codegen.nmp.plan.conv_plan import ConvPlan
from tvm_npu.codegen.plan.loops.plan import Range, Step
from tvm_npu.codegen.plan.problem import ConvProblem
from tvm_npu.sim.nmp.machine import NmpMachine

_Box = tuple[Range, Range, Range, Range, Range]
"""Groups, filters, channels (the latter of one group), rows, columns."""


def core_steps(problem: ConvProblem, plan: ConvPlan, machine: NmpMachine) -> Iterator[Step]:
    """The tiles of an NMP's plan, one core after another, each core's in its order of execution, as
    steps that keep what the step before left on chip."""
    return _steps(problem, tuple(_boxes(problem, plan, machine)))


def _boxes(problem: ConvProblem, plan: ConvPlan, machine: NmpMachine) -> Iterator[_Box]:
    filters, channels = problem.filters // problem.groups, problem.channels // problem.groups
    is_grouped = plan.mode == "grouped"
    items = problem.groups if is_grouped else filters
    shares = core_shares(plan, problem.rows, problem.columns, items, machine)
    for core in shares.cores:
        if core is None or min(core.rows, core.columns, core.items) == 0:
            continue
        if is_grouped:
            yield from _grouped_boxes(plan, core, filters, channels)
            continue
        for group in range(problem.groups):
            yield from _core_boxes(plan, core, group, channels)


def _core_boxes(plan: ConvPlan, core: CoreShare, group: int, channels: int) -> Iterator[_Box]:
    """IS: rows, columns, channels, all filters; OS: rows, columns, filters, channels; WS: filters,
    rows, columns, channels."""
    rows, columns = (core.first_row, core.rows), (core.first_column, core.columns)
    filters = (core.first_item, core.items)
    own = core.items if plan.schedule == "IS" else plan.tile_m
    if plan.schedule == "WS":
        order = [
            (m, r, c)
            for m in _parts(filters, own)
            for r in _parts(rows, plan.tile_r)
            for c in _parts(columns, plan.tile_c)
        ]
    else:
        order = [
            (m, r, c)
            for r in _parts(rows, plan.tile_r)
            for c in _parts(columns, plan.tile_c)
            for m in _parts(filters, own)
        ]
    for m, r, c in order:
        for n in _parts((0, channels), plan.tile_n):
            yield (group, 1), m, n, r, c


def _grouped_boxes(plan: ConvPlan, core: CoreShare, filters: int, channels: int) -> Iterator[_Box]:
    """OS: places, then groups; WS: groups, then places."""
    all_groups = list(_parts((core.first_item, core.items), max(plan.tile_m // filters, 1)))
    places = [
        (r, c)
        for r in _parts((core.first_row, core.rows), plan.tile_r)
        for c in _parts((core.first_column, core.columns), plan.tile_c)
    ]
    if plan.schedule == "WS":
        pairs = [(group, place) for group in all_groups for place in places]
    else:
        pairs = [(group, place) for place in places for group in all_groups]
    for group, (r, c) in pairs:
        yield group, (0, filters), (0, channels), r, c


def _steps(problem: ConvProblem, boxes: tuple[_Box, ...]) -> Iterator[Step]:
    depth = problem.channels // problem.groups
    summed: dict[tuple[Range, Range, Range, Range], int] = {}
    held: _Box | None = None
    for number, box in enumerate(boxes):
        groups, filters, channels, rows, columns = box
        following = boxes[number + 1] if number + 1 < len(boxes) else None
        out = (groups, filters, rows, columns)
        before = summed.get(out, 0)
        summed[out] = before + channels[1]
        yield Step(
            groups, filters, channels, rows, columns,
            loads_in=held is None or _in(held) != _in(box),
            loads_weights=held is None or held[:3] != box[:3],
            enters_out=held is None or _out(held) != out,
            first=before == 0,
            last=summed[out] == depth,
            leaves_out=following is None or _out(following) != out,
        )  # fmt: skip
        held = box


def _in(box: _Box) -> tuple[Range, Range, Range, Range]:
    return box[0], box[2], box[3], box[4]


def _out(box: _Box) -> tuple[Range, Range, Range, Range]:
    return box[0], box[1], box[3], box[4]


def _parts(total: Range, size: int) -> Iterator[Range]:
    """The runs of ``size`` that a range is cut into."""
    begin, count = total
    for offset in range(0, count, size):
        yield begin + offset, min(size, count - offset)
