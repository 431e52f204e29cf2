"""The tables and sentences for people."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from studies.double_buffer.measuring import LayerRow
from studies.double_buffer.published import (
    CACHED_REDUCTION,
    NAIVE_MEMORY_SHARES,
    OPTIMAL_MEMORY_SHARES,
    TRANSFER_RATIO,
    UNCACHED_REDUCTION,
    UNCACHED_SECONDS,
)
from studies.harness.tables import Sheet
from tvm_npu.cli.tables import Column


def tables(rows: Sequence[LayerRow]) -> Iterator[Sheet]:
    """Transfers and memory by layer; then whole times."""
    yield Sheet(
        "Transfers and memory: naive and optimal tiles",
        [
            Column("layer", tuple(row.layer for row in rows), name=True),
            Column("tile naive\nM N R C", tuple(_tile(row.naive_tile) for row in rows)),
            Column("tile optimal\nM N R C", tuple(_tile(row.optimal_tile) for row in rows)),
            Column("naive\nMcycles", tuple(f"{row.naive_cycles / 1e6:.1f}" for row in rows)),
            Column("optimal\nMcycles", tuple(f"{row.optimal_cycles / 1e6:.1f}" for row in rows)),
            Column("ratio", tuple(f"{row.naive_cycles / row.optimal_cycles:.2f}" for row in rows)),
            Column(
                "memory naive\npaper / ours %",
                tuple(
                    f"{100 * NAIVE_MEMORY_SHARES[row.layer]:.0f} / "
                    f"{100 * row.naive_memory_share:.0f}"
                    for row in rows
                ),
            ),
            Column(
                "memory optimal\npaper / ours %",
                tuple(
                    f"{100 * OPTIMAL_MEMORY_SHARES[row.layer]:.0f} / "
                    f"{100 * row.optimal_memory_share:.0f}"
                    for row in rows
                ),
            ),
            Column(
                "all tilings of 80 %\nquarter, median; fullest",
                tuple(
                    f"{row.quarter_ratio:.1f} {row.median_ratio:.1f}; {row.fullest_ratio:.1f}"
                    for row in rows
                ),
            ),
        ],
    )
    yield Sheet(
        "Whole layers, seconds",
        [
            Column("layer", tuple(row.layer for row in rows), name=True),
            *(
                Column(
                    f"{word} s\n{key}",
                    tuple(f"{getattr(row, f'{word}_{key}_s'):.2f}" for row in rows),
                )
                for word in ("uncached", "cached")
                for key in ("none", "naive", "optimal")
            ),
        ],
    )


def _tile(tile: tuple[int, ...]) -> str:
    return " ".join(map(str, tile))


def total(rows: Sequence[LayerRow], key: str) -> float:
    return float(sum(getattr(row, key) for row in rows))


def lines(rows: Sequence[LayerRow]) -> Iterator[str]:
    """What the run shows, beside the paper."""
    naive, optimal = total(rows, "naive_cycles"), total(rows, "optimal_cycles")
    yield (
        f"Transfer time, naive over optimal: {naive / optimal:.2f} (paper about "
        f"{TRANSFER_RATIO:g}); of all tilings that fill 80 % of the memory a quarter is better "
        f"than {_weighted(rows, 'quarter_ratio'):.1f}, half than "
        f"{_weighted(rows, 'median_ratio'):.1f}; the fullest ones take "
        f"{_weighted(rows, 'fullest_ratio'):.1f} (by Equation 1)."
    )
    estimated = [
        (estimate, simulated)
        for row in rows
        for estimate, simulated in (
            (row.naive_estimated_cycles, row.naive_cycles),
            (row.optimal_estimated_cycles, row.optimal_cycles),
        )
    ]
    error = sum(abs(estimate / real - 1) for estimate, real in estimated) / len(estimated)
    yield (
        f"Equation 1 against the simulated controller: mean error {100 * error:.0f} % (the "
        "equation fetches every OUT tile at every step and takes transfers one after another)."
    )
    yield _more_is_not_less(rows)
    none = total(rows, "uncached_none_s")
    for key in ("naive", "optimal"):
        ours = total(rows, f"uncached_{key}_s")
        yield (
            f"Without caches: {ours:.0f} s with {key} tiles against {none:.0f} s without double "
            f"buffers, {100 * (ours / none - 1):+.0f} % (paper {UNCACHED_SECONDS[key]:.0f} against "
            f"{UNCACHED_SECONDS['none']:.0f} s, {-100 * UNCACHED_REDUCTION:+.0f} % for optimal)."
        )
    none, ours = total(rows, "cached_none_s"), total(rows, "cached_optimal_s")
    yield (
        f"With caches: {ours:.0f} s against {none:.0f} s, {100 * (ours / none - 1):+.0f} % (paper "
        f"{-100 * CACHED_REDUCTION:+.0f} %)."
    )
    yield f"Bits off: {sum(row.bit_mismatches for row in rows)}."


def _weighted(rows: Sequence[LayerRow], key: str) -> float:
    """A ratio to the best tiling, over all layers together."""
    best = sum(row.optimal_estimated_cycles for row in rows)
    return sum(getattr(row, key) * row.optimal_estimated_cycles for row in rows) / best


def _more_is_not_less(rows: Sequence[LayerRow]) -> str:
    """An example of more memory and more transfer time, the largest difference of the run."""
    worse = [row for row in rows if row.naive_memory_share > row.optimal_memory_share]
    if not worse:
        return "No layer's naive tile takes more memory than its optimal one in this run."
    row = max(worse, key=lambda one: one.naive_memory_share - one.optimal_memory_share)
    return (
        f"More memory is not less transfer: {row.layer} fills {100 * row.naive_memory_share:.0f} % "
        f"with its naive tile and moves for {row.naive_cycles / 1e6:.1f} Mcycles, "
        f"{100 * row.optimal_memory_share:.0f} % with the optimal one and moves for "
        f"{row.optimal_cycles / 1e6:.1f}."
    )
