"""Tables of tile sizes: every size along a loop that no other one dominates."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from math import prod

import numpy as np
from numpy.typing import NDArray

from tvm_npu.codegen.plan.limits import NO_LIMITS, TileLimits
from tvm_npu.codegen.plan.loops.axes import NONE_KEPT, in_axis, kept_rows
from tvm_npu.codegen.plan.loops.cost import iterations
from tvm_npu.codegen.plan.loops.exact import search
from tvm_npu.codegen.plan.loops.machine import LoopMachine, most_taps
from tvm_npu.codegen.plan.loops.plan import Loop, extent
from tvm_npu.codegen.plan.loops.space import limited
from tvm_npu.codegen.plan.problem import ConvProblem

Table = NDArray[np.int64]
_NO_INPUT = (0,) * (search.KEPT - search.LARGEST + 1)
"""Columns about rows and columns of the IFM, in a table of filters or channels."""


def loop_table(
    problem: ConvProblem,
    machine: LoopMachine,
    loop: Loop,
    limits: TileLimits = NO_LIMITS,
    keeps_rows: bool = False,
) -> tuple[Table, Table]:
    """All tile sizes along a loop that no other one of as many tiles dominates, largest first:
    size, trips, array passes, and for rows and columns `InAxis` (largest, inside, full, filled) and
    `KeptRows` (tiles that keep none, those that keep some and bring others, rows that are kept).
    The passes of channels are those of all taps. With ``keeps_rows`` the rows inside are those that
    come from outside; without, none are kept. And the same of every size, smallest first."""
    total, pes = extent(problem, loop), machine.pes_on(loop)
    most = limited(problem, loop, limits)
    if loop == "M":
        return _plain_table(total, pes, most)
    if loop == "N":
        return _channel_table(total, pes, most, prod(problem.kernel), machine.taps_at_once)
    rows = []
    for size in range(1, most + 1):
        axis = in_axis(problem, loop, size)
        kept = kept_rows(problem, size) if keeps_rows and loop == "R" else NONE_KEPT
        counts = -(-total // size), iterations(total, size, pes)
        own = axis.largest, axis.inside - kept.kept, axis.full, axis.filled
        rows.append((size, *counts, *own, axis.filled - kept.tiles, kept.bringing, kept.kept))
    return _undominated(rows), np.array(rows, np.int64)


@lru_cache(maxsize=256)
def _plain_table(total: int, pes: int, most: int) -> tuple[Table, Table]:
    """`loop_table` of filters."""
    rows = [
        (size, -(-total // size), iterations(total, size, pes), *_NO_INPUT)
        for size in range(1, most + 1)
    ]
    return _undominated(rows), np.array(rows, np.int64)


@lru_cache(maxsize=256)
def _channel_table(
    total: int, pes: int, most: int, taps: int, taps_at_once: int
) -> tuple[Table, Table]:
    """`loop_table` of channels, as many taps at once as there is room for."""
    rows = [
        (
            size,
            -(-total // size),
            iterations(total, size, pes) * -(-taps // most_taps(taps_at_once, pes, size, taps)),
            *_NO_INPUT,
        )
        for size in range(1, most + 1)
    ]
    return _undominated(rows), np.array(rows, np.int64)


def _undominated(rows: Iterable[tuple[int, ...]]) -> Table:
    kept: dict[tuple[int, ...], list[tuple[int, ...]]] = {}
    for row in rows:
        same = (search.TRIPS, search.FILLED, search.AFRESH, search.BRINGING)
        alike = kept.setdefault(tuple(row[column] for column in same), [])
        if not any(_dominates(other, row) for other in alike):
            alike.append(row)
    table = sorted((row for alike in kept.values() for row in alike), reverse=True)
    return np.array(table, np.int64)


def _dominates(one: tuple[int, ...], other: tuple[int, ...]) -> bool:
    """``one`` is smaller and loses in nothing."""
    return (
        one[search.PASSES] <= other[search.PASSES]
        and one[search.LARGEST] <= other[search.LARGEST]
        and one[search.INSIDE] <= other[search.INSIDE]
        and one[search.KEPT] <= other[search.KEPT]
        and one[search.FULL] >= other[search.FULL]
    )
