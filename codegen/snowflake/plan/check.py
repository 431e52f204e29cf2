"""Whether a plan is sound for a layer, counted independently of what planners and code use: tile by
tile and CU by CU, from the windows of single results."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from tvm_npu.codegen.plan.faults import PlanFault
from tvm_npu.codegen.plan.problem import ConvProblem
from tvm_npu.codegen.snowflake.plan.division import parts_of
from tvm_npu.codegen.snowflake.plan.tiling import ConvShape, SnowflakePlan, conv_shape
from tvm_npu.codegen.snowflake.steps.windows import Axis
from tvm_npu.sim.snowflake.isa import LANES, VMACS, WORD_BYTES
from tvm_npu.sim.snowflake.machine import SnowflakeMachine

_Claim = tuple[bool, str, object, object]


def plan_fault(
    problem: ConvProblem, plan: SnowflakePlan, machine: SnowflakeMachine
) -> PlanFault | None:
    """The first fault; None for a sound plan. Of a layer that clusters share out each one's part
    is looked at: tiles are no larger than that."""
    clusters = machine.clusters.count
    parts = parts_of(problem, plan.divides, clusters)
    if not parts:
        return PlanFault("divides", plan.divides, f"something for each of {clusters} clusters")
    found = _first(_tiles(conv_shape(problem), plan))
    for part in parts:
        shape = conv_shape(part.problem)
        mine = plan if clusters == 1 else replace(
            plan, tile_m=min(plan.tile_m, shape.filters), tile_r=min(plan.tile_r, shape.rows.out),
            tile_c=min(plan.tile_c, shape.columns.out),
        )  # fmt: skip
        found = found or _first(_claims(part.problem, mine, machine))
    return found


def _first(claims: Iterator[_Claim]) -> PlanFault | None:
    for holds, what, value, limit in claims:
        if not holds:
            return PlanFault(what, value, limit)
    return None


def _claims(
    problem: ConvProblem, plan: SnowflakePlan, machine: SnowflakeMachine
) -> Iterator[_Claim]:
    """(holds, thing, value, limit); later claims rely on earlier ones."""
    yield problem.window is None, "window", problem.window, "none on Snowflake"
    shape = conv_shape(problem)
    modes = ("lane",) if shape.is_depthwise else ("coop", "indp")
    yield plan.mode in modes, "mode", plan.mode, " or ".join(modes)
    yield plan.stays in ("maps", "kernels"), "stays", plan.stays, "maps or kernels"
    yield from _tiles(shape, plan)
    for name, axis in (("rows", shape.rows), ("columns", shape.columns)):
        empty = [at for at in range(axis.out) if not _window(axis, at)]
        yield not empty, f"{name} of results without input", empty, "none"
    kernels = WORD_BYTES * _kernel_words(shape, plan, machine)
    limit = machine.clusters.wbuf_bytes
    yield kernels <= limit, "a tile of kernels in a WBuf, bytes", kernels, f"at most {limit}"
    maps = WORD_BYTES * _maps_and_results(shape, plan, machine)
    limit = machine.clusters.mbuf_bytes
    yield maps <= limit, "a tile of maps and results in an MBuf, bytes", maps, f"at most {limit}"


def _tiles(shape: ConvShape, plan: SnowflakePlan) -> Iterator[_Claim]:
    for name, size, most in (
        ("tile_m", plan.tile_m, shape.filters),
        ("tile_r", plan.tile_r, shape.rows.out),
        ("tile_c", plan.tile_c, shape.columns.out),
    ):
        whole = isinstance(size, int) and not isinstance(size, bool)
        yield whole and 1 <= size <= most, name, size, f"an integer from 1 to {most}"


def _window(axis: Axis, at: int) -> range:
    """Inputs from the first to the last that result ``at`` can touch, without padding."""
    begin = at * axis.stride - axis.before
    end = begin + (axis.kernel - 1) * axis.dilation
    touched = [
        begin + tap * axis.dilation
        for tap in range(axis.kernel)
        if 0 <= begin + tap * axis.dilation < axis.size
    ]
    return range(max(0, begin), min(end, axis.size - 1) + 1) if touched else range(0)


def _lines(words: int) -> int:
    return (words + LANES - 1) // LANES


def _kernel_words(shape: ConvShape, plan: SnowflakePlan, machine: SnowflakeMachine) -> int:
    """Of the largest tile in a WBuf; one group of filters of a single result whose window is the
    whole map comes in parts, however long it is."""
    taps = shape.rows.kernel * shape.columns.kernel
    if plan.mode == "coop":
        together, group = VMACS * machine.clusters.cus, LANES * (1 + _lines(taps * shape.planes))
    else:
        together = VMACS * LANES
        group = LANES * (2 + taps * (1 if plan.mode == "lane" else shape.planes))
    groups = -(-plan.tile_m // together)
    if groups == 1 and plan.mode != "lane" and _is_whole_map(shape):
        return min(group, machine.wbuf_words // 2)
    return groups * group


def _is_whole_map(shape: ConvShape) -> bool:
    return all(
        axis.out == 1 and axis.kernel == axis.size and _window(axis, 0) == range(axis.size)
        for axis in (shape.rows, shape.columns)
    )


def _maps_and_results(shape: ConvShape, plan: SnowflakePlan, machine: SnowflakeMachine) -> int:
    """Words of the largest tile of maps and of the largest tile of results in an MBuf."""
    planes = min(shape.planes, plan.tile_m) if plan.mode == "lane" else shape.planes
    rows = list(_parts(shape.rows.out, plan.tile_r))
    columns = list(_parts(shape.columns.out, plan.tile_c))
    cus = machine.clusters.cus
    if plan.mode == "coop":
        tall, down = _extent(shape.rows, rows), plan.tile_r
        wide, across = _extent(shape.columns, columns), plan.tile_c
    elif shape.rows.out == 1 and _touches_no_padding(shape.columns):
        # Columns are dealt to the CUs, and lie as if every CU had as many.
        tall, down = _reach(shape.rows, 1), 1
        across = -(-plan.tile_c // cus)
        wide = _reach(shape.columns, across)
    else:
        down = -(-plan.tile_r // cus)
        tall = _reach(shape.rows, down)
        wide, across = _extent(shape.columns, columns), plan.tile_c
    results = down * across * min(plan.tile_m, shape.filters)
    return LANES * (_lines(tall * wide * planes) + _lines(results))


def _parts(total: int, size: int) -> Iterator[range]:
    for begin in range(0, total, size):
        yield range(begin, min(begin + size, total))


def _touched(axis: Axis, begin: int, count: int) -> set[int]:
    """Inputs under ``count`` results from ``begin`` on, padding included: of each tap those from
    the first result's to the last's."""
    first = begin * axis.stride - axis.before
    last = first + (count - 1) * axis.stride
    return {
        at
        for tap in range(axis.kernel)
        for at in range(first + tap * axis.dilation, last + tap * axis.dilation + 1)
    }


def _extent(axis: Axis, parts: list[range]) -> int:
    """Inputs of the largest part."""
    return max(
        sum(0 <= at < axis.size for at in _touched(axis, part.start, len(part))) for part in parts
    )


def _reach(axis: Axis, count: int) -> int:
    """Inputs under ``count`` windows, padding included."""
    return len(_touched(axis, 0, count))


def _touches_no_padding(axis: Axis) -> bool:
    ends = [at * axis.stride - axis.before for at in (0, axis.out - 1)]
    return ends[0] >= 0 and ends[1] + (axis.kernel - 1) * axis.dilation < axis.size
