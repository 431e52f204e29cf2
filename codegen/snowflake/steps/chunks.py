"""Which groups of filters and which results of a step go into one chunk."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from tvm_npu.codegen.snowflake.steps.windows import Run, cut

FIRST_VECTORS = 16
"""Vector instructions of a step's first chunk, at least: transfers issue behind it."""
CHUNKS = 4

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
    rows = sum(run.count for run in down)
    columns = sum(run.count for run in across)
    total, small = (rows, min(rows // 2, -(-FIRST_VECTORS // (2 * columns)))) if rows > 1 else (
        columns, FIRST_VECTORS // 2
    )  # fmt: skip
    pieces: Iterable[Range] = ((0, total),)
    if groups == 1:
        pieces = _pieces(total, small)
    elif group == groups - 1 and groups < CHUNKS:
        pieces = cut(0, total, -(-total // (CHUNKS + 1 - groups)))
    for begin, count in pieces:
        if rows > 1:
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
