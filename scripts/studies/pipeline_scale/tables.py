"""The study as tables for people."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from studies.harness.tables import Sheet
from studies.pipeline_scale.rows import FleetRow, ScaleRow
from tvm_npu.cli.tables import Column


def scale_sheet(rows: Sequence[ScaleRow]) -> Sheet:
    def cells(of: Callable[[ScaleRow], Any], text: str = "{}") -> tuple[str, ...]:
        return tuple("-" if of(row) is None else text.format(of(row)) for row in rows)

    return Sheet(
        "Search time and quality (share of the optimum's throughput, or of a bound's)",
        [
            Column("search", cells(lambda row: row.search), key=True),
            Column("places", cells(lambda row: row.places)),
            Column("kinds", cells(lambda row: row.kinds)),
            Column("layers", cells(lambda row: row.layers)),
            Column("stages", cells(lambda row: row.stages)),
            Column("trials", cells(lambda row: row.trials)),
            Column("CPU s", cells(lambda row: row.cpu_s, "{:.3f}")),
            Column("share", cells(lambda row: row.share, "{:.3f}")),
            Column("of", cells(lambda row: row.reference), key=True),
        ],
    )


def fleet_sheet(rows: Sequence[FleetRow]) -> Sheet:
    def cells(of: Callable[[FleetRow], Any], text: str = "{}") -> tuple[str, ...]:
        return tuple(text.format(of(row)) for row in rows)

    return Sheet(
        "Unequal machines behind one stream (frames a second)",
        [
            Column("machines", cells(lambda row: row.machines)),
            Column("frames by", cells(lambda row: row.policy), key=True),
            Column("on paper", cells(lambda row: row.paper, "{:.2f}")),
            Column("simulated", cells(lambda row: row.simulated, "{:.2f}")),
            Column("latency\ns", cells(lambda row: row.latency_s, "{:.2f}")),
            Column("99 %\ns", cells(lambda row: row.latency_p99_s, "{:.2f}")),
        ],
    )
