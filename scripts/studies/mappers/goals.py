"""What the project set itself beside the best of other mappers, for least traffic."""

from __future__ import annotations

from collections.abc import Sequence

from studies.mappers.question import Row

OURS, BEST = "exact-traffic", "accelforge"
TIMES = 50.0
"""How many times faster than `BEST` the layers of `MODEL` are to be planned, all together."""
MODEL = "resnet18"


def missed_goals(rows: Sequence[Row]) -> list[str]:
    """In words: layers of `MODEL`, and fused layers of any network, that move more than `BEST` has
    them move; the time of planning where all of `MODEL` was asked. Layers that `BEST` has no row of
    are left out."""
    asked = [row for row in rows if row.goal == "bytes"]
    peers = {(row.model, row.layer, row.fused): row for row in asked if row.mapper == BEST}
    pairs = [
        (row, peers[row.model, row.layer, row.fused])
        for row in asked
        if row.mapper == OURS and (row.model, row.layer, row.fused) in peers
    ]
    missed = [
        f"{own.model} {own.layer}{', fused' if own.fused else ''}: {own.dram_bytes:,.0f} bytes, "
        f"{best.mapper} moves {best.dram_bytes:,.0f}"
        for own, best in pairs
        if own.dram_bytes is not None and best.dram_bytes is not None
        and (own.fused or own.model == MODEL) and own.dram_bytes > best.dram_bytes
    ]
    apart = [(own, best) for own, best in pairs if own.model == MODEL and not own.fused]
    used, theirs = (sum(pair[k].cpu_s for pair in apart) for k in range(2))
    if apart and theirs < TIMES * used:
        missed.append(
            f"{MODEL} is planned {theirs / used:.0f} times faster than by {BEST}, the goal is "
            f"{TIMES:g}"
        )
    return missed
