"""Room of tiles in MBuf and WBuf, for compiled code: what `tiling.Geometry` says, in numbers."""

from __future__ import annotations

from typing import NamedTuple

from tvm_npu.codegen.snowflake.plan.counting import (
    COOP,
    LANE,
    span,
    tap_step,
    touched,
    whole_lines,
)
from tvm_npu.codegen.snowflake.plan.numbers import Numbers
from tvm_npu.codegen.snowflake.plan.tiling import KERNEL_PLACES
from tvm_npu.sim.compiled import device
from tvm_npu.sim.compiled.arithmetic import ceil_div
from tvm_npu.sim.snowflake.isa import LANES, VMACS


class Choice(NamedTuple):
    """A `SnowflakePlan` in numbers."""

    mode: int
    m: int
    r: int
    c: int
    maps_stay: bool


@device
def together(n: Numbers, mode: int) -> int:
    """Filters that are computed at a time."""
    return VMACS * n.cus if mode == COOP else VMACS * LANES


@device
def kernel_at(mode: int) -> int:
    return LANES if mode == COOP else 2 * LANES


@device
def kernel_words(n: Numbers, mode: int) -> int:
    """What a group of filters takes in a WBuf."""
    taps = n.rows.kernel * n.columns.kernel
    if mode == COOP:
        return LANES + whole_lines(taps * n.planes)
    return 2 * LANES + LANES * (taps if mode == LANE else taps * n.planes)


@device
def can_split_depth(n: Numbers, mode: int) -> bool:
    """The window is the whole map."""
    rows, columns = n.rows, n.columns
    whole = rows.size == rows.kernel and rows.out == 1
    whole = whole and columns.size == columns.kernel and columns.out == 1
    return whole and rows.before == 0 and columns.before == 0 and mode != LANE


@device
def depth_words(n: Numbers, mode: int) -> int:
    """Words of a kernel that come at a time."""
    room = n.wbuf // 2 if can_split_depth(n, mode) else n.wbuf
    most = room - kernel_at(mode)
    whole = kernel_words(n, mode) - kernel_at(mode)
    return whole if whole <= most else most // LANES * LANES


@device
def depth_parts(n: Numbers, mode: int) -> int:
    return ceil_div(kernel_words(n, mode) - kernel_at(mode), depth_words(n, mode))


@device
def kernels_words(n: Numbers, p: Choice) -> int:
    """The largest tile of kernels in a WBuf."""
    if depth_parts(n, p.mode) > 1:
        return kernel_at(p.mode) + depth_words(n, p.mode)
    return ceil_div(min(p.m, n.filters), together(n, p.mode)) * kernel_words(n, p.mode)


@device
def spreads_columns(n: Numbers, mode: int) -> bool:
    """Columns, not rows, are dealt to the CUs."""
    axis = n.columns
    end = (axis.out - 1) * axis.stride - axis.before + (axis.kernel - 1) * axis.dilation + 1
    return mode != COOP and n.rows.out == 1 and axis.before <= 0 and end <= axis.size


@device
def share(n: Numbers, mode: int, results: int) -> int:
    """Rows or columns of a tile that one CU has."""
    return results if mode == COOP else ceil_div(results, n.cus)


@device
def tile_planes(n: Numbers, p: Choice) -> int:
    return min(n.planes, p.m) if p.mode == LANE else n.planes


@device
def tile_rows(n: Numbers, mode: int, r: int) -> int:
    """Input rows of the largest tile."""
    if mode != COOP:
        return span(n.rows, r if spreads_columns(n, mode) else share(n, mode, r))
    tall = 0
    for begin in range(0, n.rows.out, r):
        count = min(r, n.rows.out - begin)
        tall = max(tall, touched(n.rows, begin, count, tap_step(n.rows, count)))
    return tall


@device
def tile_columns(n: Numbers, mode: int, c: int) -> int:
    """Input columns of the largest tile."""
    if spreads_columns(n, mode):
        return span(n.columns, share(n, mode, c))
    wide = 0
    for begin in range(0, n.columns.out, c):
        count = min(c, n.columns.out - begin)
        wide = max(wide, touched(n.columns, begin, count, tap_step(n.columns, count)))
    return wide


@device
def out_words(n: Numbers, p: Choice) -> int:
    """The largest tile of results in an MBuf."""
    spread = spreads_columns(n, p.mode)
    dealt = share(n, p.mode, p.c if spread else p.r)
    return whole_lines(dealt * (p.r if spread else p.c) * min(p.m, n.filters))


@device
def places(
    n: Numbers, p: Choice, tall: int, wide: int, kernels: int
) -> tuple[int, int, int]:
    """Places of maps, kernels and results; (0, 0, 0) where they do not fit. ``tall`` and ``wide``
    are those of the largest tile of maps, ``kernels`` its words of kernels."""
    if kernels > n.wbuf:
        return 0, 0, 0
    if depth_parts(n, p.mode) > 1 and (
        not can_split_depth(n, p.mode) or p.m > together(n, p.mode)
    ):
        return 0, 0, 0
    map_tiles = ceil_div(n.rows.out, p.r) * ceil_div(n.columns.out, p.c)
    filter_tiles = ceil_div(n.filters, p.m)
    kernel_places = 2 if kernels <= n.wbuf // 2 // LANES * LANES else 1
    if n.wbuf // kernels > 2 and filter_tiles * depth_parts(n, p.mode) > 2:
        kernel_places = min(KERNEL_PLACES, n.wbuf // kernels)
    loads = map_tiles * n.groups
    if p.mode == LANE or (not p.maps_stay and map_tiles > 1):
        loads *= filter_tiles
    maps, out = whole_lines(tall * wide * tile_planes(n, p)), out_words(n, p)
    turns = p.mode == COOP and n.cus > 1
    outs = 2 if loads * filter_tiles > 1 and not turns else 1
    for map_places in range(2 if loads > 1 else 1, 0, -1):
        for out_places in range(outs, 0, -1):
            if map_places * maps + out_places * out <= n.mbuf:
                return map_places, kernel_places, n.cus if turns else out_places
    return 0, 0, 0
