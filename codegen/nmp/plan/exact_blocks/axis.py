"""Kinds of turns along the rows or the columns of a block, in numba: `turns.place_turns` in sums
over the parts of a TLE, from which transfers of a place are products."""

from __future__ import annotations

from functools import partial

from tvm_npu.sim import compiled
from tvm_npu.sim.compiled.arithmetic import ceil_div

device = partial(compiled.device, references=False)

# Of a kind of turns: how many, the most of the OFM that a TLT multiplies, what is stored of the
# first part and passed to its window; sums over parts of what is passed to windows.
TURNS, MIDDLE, FIRST_OUT, FIRST_PASSED, PASSED_TILES, PASSED = range(6)
# Of what is loaded and stored: tiles, their extents, and of rows: bursts of full width, of those
# the bursts of tiles that lack rows, and tiles that have all; of columns: bursts of a row of
# narrow tiles, then wide tiles that are boxes, and those that are 1-D transfers.
IN, IN_EXTENT, IN_LINES, IN_SINGLE, IN_WHOLE = range(6, 11)
OUT, OUT_EXTENT, OUT_LINES, OUT_SINGLE, OUT_WHOLE = range(11, 16)
KIND_WIDTH = 16


@device
def _add(kind, at, extent, whole, is_rows, is_linear, line_bytes, size, burst):
    """Columns from ``at`` on: one tile that loads or stores ``extent`` of ``whole``."""
    kind[at] += 1
    kind[at + 1] += extent
    if is_rows:
        bursts = ceil_div(extent * line_bytes, burst)
        kind[at + 2] += bursts
        if extent == whole:
            kind[at + 4] += 1
        else:
            kind[at + 3] += bursts
    elif extent < whole:
        kind[at + 2] += ceil_div(extent * size, burst)
    elif is_linear:
        kind[at + 4] += 1
    else:
        kind[at + 3] += 1


@device
def _tile(block, is_rows, first, extent, kept):
    """(OFM that is computed, IFM that is loaded, OFM that is passed to a window) of a tile that
    stores ``extent`` from ``first`` on: `turns.tile_at`."""
    if is_rows:
        step, window, border = block.step_rows, block.kernel_rows, block.window_rows
        stride, span, padding = block.stride_rows, block.span_rows, block.padding_rows
        middle_all, in_all = block.rows, block.in_rows
    else:
        step, window, border = block.step_columns, block.kernel_columns, block.window_columns
        stride, span, padding = block.stride_columns, block.span_columns, block.padding_columns
        middle_all, in_all = block.columns, block.in_columns
    begin, end = first, first + extent
    if block.has_window:
        low = first * step - border
        begin, end = max(low, 0), min(low + (extent - 1) * step + window, middle_all)
    passed = end - begin
    begin += kept
    low = begin * stride - padding
    high = low + (end - begin - 1) * stride + span
    return end - begin, max(0, min(high, in_all) - max(low, 0)), passed


@device
def add_kinds(block, machine, is_rows, first, count, parts, tile, kept, seen, kinds):
    """Kinds of turns of ``parts`` parts of ``count`` positions from ``first`` on, in the order in
    which they first appear: how many. ``seen`` is for their tiles."""
    size, burst = block.element_bytes, machine.burst_bytes
    in_all = block.in_rows if is_rows else block.in_columns
    out_all = block.out_rows if is_rows else block.out_columns
    in_line, out_line = block.in_columns * size, block.out_columns * size
    base, extra = count // parts, count % parts
    found = 0
    for turn in range(ceil_div(base + (extra > 0), tile)):
        at = first
        for part in range(parts):
            run = base + (part < extra)
            extent = max(0, min(tile, run - turn * tile))
            middle, real, passed = 0, 0, 0
            if extent:
                middle, real, passed = _tile(
                    block, is_rows, at + turn * tile, extent, kept if turn else 0
                )
            seen[found, part, 0], seen[found, part, 1] = extent, middle
            seen[found, part, 2], seen[found, part, 3] = real, passed
            at += run
        known = 0
        while known < found and not _is_same(seen, known, found, parts):
            known += 1
        if known < found:
            kinds[known, TURNS] += 1
            continue
        kind = kinds[found]
        for column in range(KIND_WIDTH):
            kind[column] = 0
        kind[TURNS] = 1
        kind[FIRST_OUT], kind[FIRST_PASSED] = seen[found, 0, 0], seen[found, 0, 3]
        for part in range(parts):
            extent, middle = seen[found, part, 0], seen[found, part, 1]
            real, passed = seen[found, part, 2], seen[found, part, 3]
            kind[MIDDLE] = max(kind[MIDDLE], middle)
            if passed:
                kind[PASSED_TILES] += 1
                kind[PASSED] += passed
            if real:
                _add(kind, IN, real, in_all, is_rows, block.linear_in, in_line, size, burst)
            if extent:
                _add(kind, OUT, extent, out_all, is_rows, True, out_line, size, burst)
        found += 1
    return found


@device
def _is_same(seen, one, other, parts):
    for part in range(parts):
        for column in range(4):
            if seen[one, part, column] != seen[other, part, column]:
                return False
    return True
