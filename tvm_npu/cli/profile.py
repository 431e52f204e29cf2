"""One profiled model as data: a row for each layer, totals, the split, and all of it as JSON."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from tvm_npu.codegen.program.format import LayerEntry, Program
from tvm_npu.report import PartitionReport
from tvm_npu.runtime.session import Session
from tvm_npu.sim.statistics import LayerStatistics, RunStatistics
from tvm_npu.sim.units import Link

SCHEMA = "tvm-npu profile 1"
_LINKS = ("loaded", "stored", "ring", "forwarded")
"""Their bytes stand in every file, also of machines without them."""


class RegionRun:
    """A region's session; keeps the statistics of every run. A run may hold several images."""

    def __init__(self, symbol: str, program: Program, timing: bool) -> None:
        self.symbol = symbol
        self.session = Session(program, timing=timing)
        self.runs: list[RunStatistics] = []

    def run(self, arrays: Sequence[np.ndarray[Any, Any]]) -> list[Any]:
        outputs = self.session.run(list(arrays))
        last = self.session.statistics
        if last is not None:
            self.runs.append(last)
        return outputs


@dataclass(frozen=True)
class LayerRow:
    """One layer of one inference, averaged over the runs. Cycle figures are None where the cycle
    model was off or the planner predicts nothing. ``code_bytes`` counts once, not per image."""

    region: str
    name: str
    kind: str
    source: tuple[str, ...]
    macs: int
    cycles: float | None
    time_us: float | None
    mac_utilization: float | None
    predicted_cycles: float | None
    bytes_by_link: dict[str, dict[str, int]]
    bursts: int
    instructions: int
    code_bytes: int


@dataclass(frozen=True)
class Totals:
    """All regions of one inference, averaged over the runs; ``cycles_per_run`` singly."""

    macs: int
    cycles: float | None
    time_us: float | None
    mac_utilization: float | None
    predicted_cycles: float
    bytes_by_link: dict[str, dict[str, int]]
    instructions: int
    instruction_cache_misses: int
    code_bytes: int
    cycles_per_run: tuple[float, ...]


@dataclass(frozen=True)
class Profile:
    """``calibration`` is where ranges and input came from; None: random, from ``seed``."""

    model: str
    machine: str
    frequency_mhz: float
    precision: str
    planner: str
    timing: bool
    runs: int
    images_per_run: int
    calibration: str | None
    seed: int
    layers: tuple[LayerRow, ...]
    totals: Totals
    report: PartitionReport
    links: tuple[Link, ...]
    output_sqnr_db: float | None = None
    """Of the worst output against float, on calibration data; None without, or if none differs."""
    host_seconds: dict[str, float] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """Plain values; keys carry units, what is not known is None."""
        values = asdict(self)
        report = self.report
        del values["report"], values["links"]
        for part in (values["totals"], *values["layers"]):
            moved = part.pop("bytes_by_link")
            part.update({f"{link}_bytes": moved.get(link, {}) for link in (*_LINKS, *moved)})
        split = {
            "npu_macs": report.npu_macs,
            "cpu_macs": report.total_macs - report.npu_macs,
            "total_macs": report.total_macs,
            "npu_mac_share": report.mac_share,
            "regions": [asdict(region) for region in report.regions],
            "cpu_operators": [asdict(refusal) for refusal in report.refusals],
        }
        return {"schema": SCHEMA, **values, "split": split}


def layer_rows(run: RegionRun) -> list[LayerRow]:
    """The layers of one region. Needs at least one run."""
    frequency_mhz = run.session.machine.frequency_mhz
    return [
        _layer_row(run.symbol, entry, [of.layers[index] for of in run.runs], run, frequency_mhz)
        for index, entry in enumerate(run.session.program.layers)
    ]


def _layer_row(
    region: str,
    entry: LayerEntry,
    measured: list[LayerStatistics],
    run: RegionRun,
    frequency_mhz: float,
) -> LayerRow:
    session = run.session
    rounds = -(-run.runs[0].runs // (session.program.batch * session.machine.device_count))
    timing = run.session.timing
    cycles = statistics.fmean(one.cycles for one in measured) if timing else None
    first = measured[0]
    return LayerRow(
        region=region,
        name=entry.name,
        kind=entry.kind,
        source=tuple(dict.fromkeys(entry.source)),
        macs=entry.macs * run.runs[0].runs,
        cycles=cycles,
        time_us=None if cycles is None else cycles / frequency_mhz,
        mac_utilization=(
            statistics.fmean(one.mac_utilization for one in measured) if timing else None
        ),
        predicted_cycles=(
            None if entry.predicted_cycles is None else entry.predicted_cycles * rounds
        ),
        bytes_by_link=first.bytes_by_link,
        bursts=first.bursts,
        instructions=first.instructions,
        code_bytes=first.code_bytes,
    )


def totals(runs: Sequence[RegionRun], layers: Sequence[LayerRow]) -> Totals:
    """Sums over all regions; the regions of one inference run one after another."""
    timing = all(run.session.timing for run in runs)
    firsts = [run.runs[0] for run in runs]
    per_run = tuple(sum(of.cycles for of in inference) for inference in _inferences(runs))
    cycles = statistics.fmean(per_run) if timing else None
    return Totals(
        macs=sum(layer.macs for layer in layers),
        cycles=cycles,
        time_us=(
            sum(
                statistics.fmean(of.cycles for of in run.runs) / run.session.machine.frequency_mhz
                for run in runs
            )
            if timing
            else None
        ),
        mac_utilization=_utilization(runs) if timing else None,
        predicted_cycles=sum(layer.predicted_cycles or 0.0 for layer in layers),
        bytes_by_link={
            link: _summed([first.bytes_over(link) for first in firsts])
            for link in dict.fromkeys(link for first in firsts for link in first.bytes_by_link)
        },
        instructions=sum(first.instructions for first in firsts),
        instruction_cache_misses=sum(first.instruction_cache_misses for first in firsts),
        code_bytes=sum(first.code_bytes for first in firsts),
        cycles_per_run=per_run if timing else (),
    )


def _inferences(runs: Sequence[RegionRun]) -> list[tuple[RunStatistics, ...]]:
    """Statistics grouped by inference: every region has run once in each."""
    return list(zip(*(run.runs for run in runs), strict=True))


def _utilization(runs: Sequence[RegionRun]) -> float:
    """Of all regions, weighted by their cycles."""
    measured = [of for run in runs for of in run.runs]
    cycles = sum(of.cycles for of in measured)
    return sum(of.mac_utilization * of.cycles for of in measured) / cycles if cycles else 0.0


def _summed(counts: Sequence[Mapping[str, int]]) -> dict[str, int]:
    keys = dict.fromkeys(key for count in counts for key in count)
    return {key: sum(count.get(key, 0) for count in counts) for key in keys}
