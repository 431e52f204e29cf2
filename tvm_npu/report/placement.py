"""Which operators run on the NPU, which stay on the CPU, and the rule that kept them there."""

from __future__ import annotations

import io
import json
import shutil
import sys
from dataclasses import asdict, dataclass
from typing import Any

from pydantic import TypeAdapter
from rich.console import Console
from rich.table import Table
from rich.text import Text

from tvm_npu.sim.frames import Tabular

WIDTH_OF_TEXT = 120
"""Columns of a report that goes into no terminal."""


@dataclass(frozen=True)
class FallbackCost:
    """What an operator costs on the CPU: the ``elements`` that it goes through (of its result; of a
    reduction or pool, of its operand), microseconds by the rule of `door.paying` (a core that does
    2 operations a nanosecond), bytes of tensors that pass between it and regions, and how many
    regions more there are because it lies between them."""

    elements: int
    cpu_us: float
    crossing_bytes: int
    more_regions: int

    def __add__(self, other: FallbackCost) -> FallbackCost:
        return FallbackCost(
            self.elements + other.elements,
            self.cpu_us + other.cpu_us,
            self.crossing_bytes + other.crossing_bytes,
            self.more_regions + other.more_regions,
        )

    def __str__(self) -> str:
        time_us = f"{self.cpu_us:,.{'0f' if self.cpu_us >= 100 else '2g'}}"
        noun = "element" if self.elements == 1 else "elements"
        text = f"{self.elements:,} {noun}, about {time_us} us on the CPU"
        if self.crossing_bytes:
            text += f"; {self.crossing_bytes:,} bytes pass between CPU and NPU"
        if self.more_regions:
            text += f"; {self.more_regions} more region{'s' * (self.more_regions > 1)}"
        return text


@dataclass(frozen=True)
class Refusal:
    """Why one operator stays on the CPU: the text of the rule that it breaks, what was found, what
    is allowed; what that costs (None: not known), where the rule is written, and what helps
    ("": nothing known)."""

    source: str
    operator: str
    rule: str
    value: str
    limit: str
    cost: FallbackCost | None = None
    page: str = ""
    remedy: str = ""

    def __str__(self) -> str:
        costs = "" if self.cost is None else f"; it costs {self.cost}"
        remedy = f"; what helps: {self.remedy}" if self.remedy else ""
        page = f"; see {self.page}" if self.page else ""
        return (
            f"{self.operator} {self.source!r} stays on the CPU, for it breaks the rule "
            f"\"{self.rule}\" (found: {self.value}; allowed: {self.limit}){costs}{remedy}{page}"
        )


@dataclass(frozen=True)
class RegionReport:
    """One region: its symbol, its operators as (source, operator), its tensors, its MACs, and those
    of each operator (none in reports that are older than they)."""

    symbol: str
    operators: tuple[tuple[str, str], ...]
    inputs: tuple[tuple[int, ...], ...]
    outputs: tuple[tuple[int, ...], ...]
    macs: int
    operator_macs: tuple[int, ...] = ()


@dataclass(frozen=True)
class PartitionReport(Tabular):
    """The split of one model. ``macs`` count one run of the whole model, all images included."""

    machine: str
    precision: str
    planner: str
    regions: tuple[RegionReport, ...]
    refusals: tuple[Refusal, ...]
    total_macs: int

    @property
    def npu_macs(self) -> int:
        return sum(region.macs for region in self.regions)

    @property
    def mac_share(self) -> float:
        """Share of the model's multiply-accumulates that run on the NPU; 0 for a model without."""
        return self.npu_macs / self.total_macs if self.total_macs else 0.0

    def to_dict(self) -> dict[str, Any]:
        return {**asdict(self), "npu_macs": self.npu_macs, "mac_share": self.mac_share}

    def to_json(self) -> str:
        return json.dumps(self.to_dict(), sort_keys=True)

    @staticmethod
    def from_json(text: str) -> PartitionReport:
        return TypeAdapter(PartitionReport).validate_json(text)

    def flat_rows(self) -> list[dict[str, Any]]:
        """A row for each operator: where it runs, and the rule that keeps it off the NPU."""
        found: list[dict[str, Any]] = [
            {"operator": name, "source": source, "place": region.symbol, "rule": None,
             "found": None, "allowed": None, "costs": None, "helps": None}
            for region in self.regions
            for source, name in region.operators
        ]  # fmt: skip
        return found + [
            {"operator": one.operator, "source": one.source, "place": "CPU", "rule": one.rule,
             "found": one.value, "allowed": one.limit,
             "costs": None if one.cost is None else str(one.cost),
             "helps": one.remedy or None}
            for one in self.refusals
        ]  # fmt: skip

    def split_table(self) -> Table:
        """Regions and the CPU: operators, tensors, multiply-accumulates."""
        table = Table(title=f"split for {self.machine}, {self.precision}, {self.planner}")
        table.add_column("part", overflow="fold", no_wrap=True)  # others have blanks to wrap at
        for heading in ("operators", "inputs", "outputs"):
            table.add_column(heading, overflow="fold")
        table.add_column("MACs", justify="right", no_wrap=True)
        for region in self.regions:
            table.add_row(
                Text(region.symbol),
                _counted([name for _, name in region.operators]),
                _shapes(region.inputs),
                _shapes(region.outputs),
                f"{region.macs:,}",
            )
        table.add_row(
            "CPU",
            _counted([refusal.operator for refusal in self.refusals]),
            "",
            "",
            f"{self.total_macs - self.npu_macs:,}",
        )
        return table

    def why_not_table(self) -> Table:
        """One row for each operator that stays on the CPU."""
        table = Table(title="why not on the NPU")
        for heading in ("source", "operator", "broken rule", "found", "allowed", "costs"):
            table.add_column(heading, overflow="fold")
        helps = any(one.remedy for one in self.refusals)
        if helps:
            table.add_column("what helps", overflow="fold")
        for one in self.refusals:
            costs = "" if one.cost is None else str(one.cost)
            cells = [one.source, one.operator, one.rule, one.value, one.limit, costs]
            table.add_row(*map(Text, [*cells, one.remedy] if helps else cells))
        return table

    def __str__(self) -> str:
        out = io.StringIO()
        width = shutil.get_terminal_size().columns if sys.stdout.isatty() else WIDTH_OF_TEXT
        console = Console(file=out, width=width, color_system=None)
        console.print(self.split_table())
        if self.refusals:
            console.print(self.why_not_table())
        noun = "region" if len(self.regions) == 1 else "regions"
        console.print(
            f"{len(self.regions)} {noun}, {self.mac_share:.1%} of {self.total_macs:,} MACs "
            "on the NPU"
        )
        return out.getvalue()


def _counted(names: list[str]) -> str:
    """``["a", "b", "a"]`` -> ``"2 a, 1 b"``, most frequent first."""
    counts: dict[str, int] = {}
    for name in names:
        counts[name] = counts.get(name, 0) + 1
    ordered = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    return ", ".join(f"{count} {name}" for name, count in ordered)


def _shapes(shapes: tuple[tuple[int, ...], ...]) -> str:
    return ", ".join("x".join(map(str, shape)) for shape in shapes)
