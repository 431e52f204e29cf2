"""Which groups of filters and which results of a step go into one chunk."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from tvm_npu.codegen.snowflake.steps.windows import Run, cut

FIRST_VECTORS = 16
"""Vector instructions of a step's first chunk, at least: transfers issue behind it."""
CHUNKS = 4
"""Of a step, about."""
LANE_CHUNKS, LANE_CHUNKS_OF_MANY = 5, 10
"""The same in mode lane, where the memory takes as long for a tile as its sums do: transfers that
wait for a long chunk leave it idle. A tile of some planes needs many transfers, a row each."""
MOST_TRANSFERS = 16
"""That are written as one block behind a chunk."""
LEAST_TOGETHER, TRANSFER_CYCLES = 4, 12
"""Transfers that are issued behind a chunk if there are as many, and what the core takes for one:
more come where the queue hides them."""

Range = tuple[int, int]


def group_parts(groups: int) -> tuple[Range, ...]:
    """The first group alone, the rest in few parts."""
    if groups == 1:
        return ((0, 1),)
    rest = groups - 1
    parts = min(CHUNKS - 1, rest)
    found = [(0, 1)]
    at = 1
    for part in range(parts):
        size = rest // parts + (part < rest % parts)
        found.append((at, size))
        at += size
    return tuple(found)


def result_parts(
    down: tuple[Run, ...], across: tuple[Run, ...], group: int, groups: int
) -> Iterator[tuple[tuple[Run, ...], tuple[Run, ...]]]:
    """The rows (columns where there is one row) of a chunk of filters from ``group`` on in parts,
    so that transfers can issue between them: of a lone group a small one first; of few groups the
    last's, so that there are `CHUNKS`; else all at once."""
    total, small = _results(down, across)
    pieces: Iterable[Range] = ((0, total),)
    if groups == 1:
        pieces = _pieces(total, small)
    elif group == groups - 1 and groups < CHUNKS:
        pieces = cut(0, total, -(-total // (CHUNKS + 1 - groups)))
    yield from _parts_of(down, across, pieces)


def lane_parts(
    down: tuple[Run, ...], across: tuple[Run, ...], group: int, groups: int, chunks: int
) -> Iterator[tuple[tuple[Run, ...], tuple[Run, ...]]]:
    """The same in mode lane for each of ``groups`` groups: about ``chunks`` in all, of the first
    group a small one first."""
    total, small = _results(down, across)
    first = small if group == 0 else 0
    size = max(1, -(-(total - first) // -(-chunks // groups)))
    begun = ((0, first),) if first else ()
    yield from _parts_of(down, across, (*begun, *cut(first, total - first, size)))


def _results(down: tuple[Run, ...], across: tuple[Run, ...]) -> Range:
    """How many rows there are (columns where there is one row), and how many are few."""
    rows = sum(run.count for run in down)
    columns = sum(run.count for run in across)
    if rows > 1:
        return rows, min(rows // 2, -(-FIRST_VECTORS // (2 * columns)))
    return columns, min(columns, FIRST_VECTORS // 2)


def _parts_of(
    down: tuple[Run, ...], across: tuple[Run, ...], pieces: Iterable[Range]
) -> Iterator[tuple[tuple[Run, ...], tuple[Run, ...]]]:
    by_rows = sum(run.count for run in down) > 1
    for begin, count in pieces:
        if by_rows:
            yield _part_of(down, begin, count), across
        else:
            yield down, _part_of(across, begin, count)


def _pieces(total: int, first: int) -> Iterator[Range]:
    first = min(first, total)
    yield 0, first
    at, parts = first, CHUNKS - 1
    while at < total:
        size = -(-(total - at) // parts)
        yield at, size
        at += size
        parts = max(1, parts - 1)


def _part_of(whole: tuple[Run, ...], begin: int, count: int) -> tuple[Run, ...]:
    """The results from ``begin`` on of ``whole``."""
    found = []
    for run in whole:
        low, high = max(begin, run.begin), min(begin + count, run.begin + run.count)
        if low < high:
            found.append(replace(run, begin=low, count=high - low))
    return tuple(found)
