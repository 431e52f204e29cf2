"""One profiled model as data: a row for each layer, totals, the split, and all of it as JSON."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from tvm_npu.codegen.program.format import LayerEntry, Program, Segment
from tvm_npu.report.breakdown import Breakdown, Roofs, break_down
from tvm_npu.report.energy import layer_energy_uj, run_energy_uj
from tvm_npu.report.memory import capacities, fullest, peaks_by_layer
from tvm_npu.report.model_macs import macs_by_layer
from tvm_npu.report.placement import PartitionReport
from tvm_npu.report.runs import RegionRun
from tvm_npu.sim.frames import Tabular
from tvm_npu.sim.machine_parts import ELEMENT_BYTES
from tvm_npu.sim.statistics import LayerStatistics, RunStatistics, add
from tvm_npu.sim.units import Link

SCHEMA = "tvm-npu profile 1"
_LINKS = ("loaded", "stored", "ring", "forwarded")
"""Their bytes stand in every file, also of machines without them."""


@dataclass(frozen=True)
class LayerRow:
    """One layer of one inference, averaged over the runs. Cycle figures and ``breakdown`` are None
    where the cycle model was off or the planner predicts nothing. ``code_bytes`` counts once, not
    per image; ``peak_bytes`` are of the first image, by part of the machine, up to the highest
    byte used; ``energy_uj`` is None where the machine file gives no energies;
    ``dram_live_bytes`` are those of activations in use, of an image (`report.dram`)."""

    region: str
    name: str
    kind: str
    source: tuple[str, ...]
    precision: str
    macs: int
    cycles: float | None
    time_us: float | None
    mac_utilization: float | None
    predicted_cycles: float | None
    bytes_by_link: dict[str, dict[str, int]]
    bursts: int
    instructions: int
    code_bytes: int
    breakdown: Breakdown | None = None
    peak_bytes: dict[str, int] = field(default_factory=dict)
    energy_uj: float | None = None
    plan: dict[str, Any] | None = None
    dram_live_bytes: int | None = None

    @property
    def dram_bytes(self) -> int:
        """Loaded and stored."""
        return sum(sum(self.bytes_by_link.get(link, {}).values()) for link in _LINKS[:2])


@dataclass(frozen=True)
class Totals:
    """All regions of one inference, averaged over the runs; ``cycles_per_run`` singly.
    ``frames_per_s`` is of the NPU alone. ``dram_peak_bytes`` is the largest region's program with
    code, constants and activations; ``dram_peak_segments`` are these, without the bytes between
    them; ``peak_bytes`` as in `LayerRow`. ``bound_cycles``: below which no plan gets, however
    layers are joined; None where nobody knows. ``times_bound``: how many times that the inference
    takes."""

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
    frames_per_s: float | None = None
    breakdown: Breakdown | None = None
    dram_peak_bytes: int = 0
    dram_peak_segments: dict[str, int] = field(default_factory=dict)
    peak_bytes: dict[str, int] = field(default_factory=dict)
    energy_uj: float | None = None
    bound_cycles: float | None = None
    times_bound: float | None = None


@dataclass(frozen=True)
class Profile(Tabular):
    """``calibration`` is where ranges and input came from; None: random, from ``seed``.
    ``capacity_bytes`` is of one memory of each part on the chip."""

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
    roofs: Roofs
    capacity_bytes: dict[str, int]
    dram_bytes: dict[str, int]
    """Of all regions' segments, by segment."""
    output_sqnr_db: float | None = None
    """Of the worst output against float, on calibration data; None without, or if none differs."""
    host_seconds: dict[str, float] = field(default_factory=dict)

    shown_columns = ("layer", "kind", "macs", "cycles", "time_us", "bound", "roofline_share")

    def flat_rows(self) -> list[dict[str, Any]]:
        """A row for each layer."""
        from tvm_npu.report.table import rows

        return rows(self)

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


def layer_rows(run: RegionRun, report: PartitionReport) -> list[LayerRow]:
    """The layers of one region of ``report``. Needs at least one run."""
    entries = run.session.program.layers
    (region,) = (region for region in report.regions if region.symbol == run.symbol)
    macs = macs_by_layer(region, entries, run.runs[0].runs)
    peaks = [{}] * len(entries) if run.events is None else peaks_by_layer(run.events)
    live: Sequence[int | None] = run.live_bytes or [None] * len(entries)
    rows = [
        _layer_row(run, entry, [of.layers[index] for of in run.runs], macs[index], peaks[index])
        for index, entry in enumerate(entries)
    ]
    return [replace(row, dram_live_bytes=live[index]) for index, row in enumerate(rows)]


def _layer_row(
    run: RegionRun,
    entry: LayerEntry,
    measured: list[LayerStatistics],
    macs: int,
    peak_bytes: dict[str, int],
) -> LayerRow:
    session = run.session
    machine = session.machine
    rounds = _rounds(run)
    timing = session.timing
    cycles = statistics.fmean(one.cycles for one in measured) if timing else None
    first = measured[0]
    roofs = Roofs.of(machine, ELEMENT_BYTES[entry.precision])
    return LayerRow(
        region=run.symbol,
        name=entry.name,
        kind=entry.kind,
        source=tuple(dict.fromkeys(entry.source)),
        precision=entry.precision,
        macs=macs,
        cycles=cycles,
        time_us=None if cycles is None else cycles / machine.frequency_mhz,
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
        breakdown=break_down(first, macs, roofs, run.devices_used) if timing else None,
        peak_bytes=peak_bytes,
        energy_uj=(
            None
            if machine.energy is None
            else layer_energy_uj(first, machine.energy, entry.precision)
        ),
        plan=entry.plan,
    )


def totals(runs: Sequence[RegionRun], layers: Sequence[LayerRow], images: int) -> Totals:
    """Sums over all regions; the regions of one inference, of so many ``images``, run one after
    another."""
    timing = all(run.session.timing for run in runs)
    firsts = [run.runs[0] for run in runs]
    per_run = tuple(sum(of.cycles for of in inference) for inference in _inferences(runs))
    cycles = statistics.fmean(per_run) if timing else None
    macs = sum(layer.macs for layer in layers)
    time_us = _time_us(runs) if timing else None
    energies = [run_energy_uj(run.runs[0], run.session) for run in runs]
    bounds = [run.bound_cycles for run in runs]
    bound = None if None in bounds else sum(one or 0.0 for one in bounds)
    largest = max((run.session.program for run in runs), key=lambda one: one.size_bytes)
    return Totals(
        macs=macs,
        cycles=cycles,
        time_us=time_us,
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
        frames_per_s=images / time_us * 1e6 if time_us else None,
        breakdown=_whole(runs, firsts, macs) if timing else None,
        dram_peak_bytes=largest.size_bytes,
        dram_peak_segments=_segment_bytes([largest]),
        peak_bytes=dict(fullest([layer.peak_bytes for layer in layers])),
        energy_uj=None if None in energies else sum(one or 0.0 for one in energies),
        bound_cycles=bound,
        times_bound=cycles / bound if cycles and bound else None,
    )


def _rounds(run: RegionRun) -> int:
    """How often a region's program runs in one run, one after the other."""
    session = run.session
    return -(-run.runs[0].runs // (session.program.batch * session.machine.device_count))


def _time_us(runs: Sequence[RegionRun]) -> float:
    return sum(
        statistics.fmean(of.cycles for of in run.runs) / run.session.machine.frequency_mhz
        for run in runs
    )


def _whole(
    runs: Sequence[RegionRun], firsts: Sequence[RunStatistics], macs: int
) -> Breakdown:
    """Of the first inference: the regions' units are those of one machine."""
    machine = runs[0].session.machine
    whole = firsts[0]
    for first in firsts[1:]:
        whole = add(_without_layers(whole), _without_layers(first))
    element_bytes = ELEMENT_BYTES[runs[0].session.program.precision]
    return break_down(whole, macs, Roofs.of(machine, element_bytes), runs[0].devices_used)


def _without_layers(run: RunStatistics) -> RunStatistics:
    """Regions have different ones."""
    return replace(run, layers=())


def profile_of(
    runs: Sequence[RegionRun],
    report: PartitionReport,
    model: str,
    *,
    images: int,
    calibration: str | None = None,
    seed: int = 0,
    output_sqnr_db: float | None = None,
    host_seconds: Mapping[str, float] | None = None,
) -> Profile:
    """What the ``runs`` of all regions of ``report`` cost; each has run at least once. ``images``:
    of one run of the model, `calibration.images_of_run`."""
    session = runs[0].session
    machine = session.machine
    rows = [row for run in runs for row in layer_rows(run, report)]
    return Profile(
        model=model,
        machine=machine.name,
        frequency_mhz=machine.frequency_mhz,
        precision=report.precision,
        planner=report.planner,
        timing=session.timing,
        runs=len(runs[0].runs),
        images_per_run=images,
        calibration=calibration,
        seed=seed,
        layers=tuple(rows),
        totals=totals(runs, rows, images),
        report=report,
        links=machine.links(),
        roofs=Roofs.of(machine, ELEMENT_BYTES[session.program.precision]),
        capacity_bytes=capacities(machine),
        dram_bytes=_segment_bytes([run.session.program for run in runs]),
        output_sqnr_db=output_sqnr_db,
        host_seconds=dict(host_seconds or {}),
    )


def _segment_bytes(programs: Sequence[Program]) -> dict[str, int]:
    return {
        segment.value: sum(program.segments[segment].size_bytes for program in programs)
        for segment in Segment
    }


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
