"""A profile as text: layers (in one table, or in two where the terminal is narrow), totals, the
split between NPU and CPU."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import reduce
from operator import add

from rich.console import Console
from rich.table import Table

from tvm_npu.cli.tables import Column, fitted_widths, make_table, natural_width, plural
from tvm_npu.report.breakdown import IN_WORDS, Breakdown
from tvm_npu.report.placement import Refusal
from tvm_npu.report.profile import LayerRow, Profile
from tvm_npu.sim.units import LOADED, STORED

UNKNOWN = "-"
EXPLAINED_IN = "docs/report.md"
LISTED_NAMES = 8
"""Operators that one line names; JSON has all."""
READABLE_NAME = 20
"""Characters below which a layer's name is not shortened for the sake of another column."""


def print_profile(profile: Profile, console: Console, verbose: bool = False) -> None:
    images = f" of {profile.images_per_run} images" if profile.images_per_run > 1 else ""
    console.print(
        f"{profile.model} on {profile.machine} ({profile.precision}, {profile.planner}): "
        f"{plural(profile.runs, 'inference')}{images}"
    )
    random = f"random (standard normal, seed {profile.seed})"
    console.print(f"input and number ranges: {profile.calibration or random}\n")
    _print_layers(profile, console, verbose)
    for line in _total_lines(profile):
        console.print(line)
    if profile.output_sqnr_db is not None:
        console.print(f"output SQNR on calibration data: {profile.output_sqnr_db:.1f} dB")
    console.print()
    _print_split(profile, console)


def _print_layers(profile: Profile, console: Console, verbose: bool) -> None:
    """One table if it is narrow enough; else several if ``verbose``, or one without the columns
    that have no room, which a line names."""
    names, times, binding, transfers = _columns(profile)
    whole = [*names, *times, *binding, *transfers]
    left_out: list[str] = []
    if natural_width(whole) <= console.width:
        tables = [make_table(whole, console.width)]
    elif verbose:
        tables = _several_tables(names, times, binding, transfers, console.width)
    else:
        *which, kind, source = names
        *counts, predicted = times
        by_weight = [*which, *counts, *binding, predicted, kind, *transfers, source]
        shown, left_out = _with_room(by_weight, console.width)
        tables = [make_table(shown, console.width)]
    for table in tables:
        console.print(table)
        console.print()
    if left_out:
        _print_indented(
            f"left out in {console.width} columns: {', '.join(left_out)}; --verbose, a wider "
            "terminal, --csv FILE and --json FILE show all", 0, console,
        )  # fmt: skip
        console.print()


def _with_room(columns: Sequence[Column], width: int) -> tuple[list[Column], list[str]]:
    """The first columns that fit beside each other with readable names, and the headings of the
    others."""
    shown = list(columns)
    left_out: list[str] = []

    def readable(column: Column) -> Column:
        if not column.name or column.width <= READABLE_NAME:
            return column
        return replace(column, cells=("x" * READABLE_NAME,))

    while len(shown) > 1 and natural_width([readable(column) for column in shown]) > width:
        left_out.insert(0, shown.pop().heading.replace("\n", " "))
    return shown, left_out


def _several_tables(
    names: list[Column], times: list[Column], binding: list[Column], transfers: list[Column],
    width: int,
) -> list[Table]:
    """Times, what binds, and bytes apart, and source operators where they would be shortened or
    squeeze the layers' names."""
    *which, kind, source = names
    behind = [make_table([*which, *transfers], width, "bytes moved")]
    if binding:
        behind.insert(0, make_table([*which, *binding], width, "what binds"))
    first = [*which, kind, source, *times]
    layer = len(which) - 1
    widths = fitted_widths(first, width)
    readable = min(READABLE_NAME, which[layer].width)
    if widths[layer] >= readable and widths[layer + 2] == source.width:
        return [make_table(first, width), *behind]
    bare = [replace(column, total="") for column in which]
    return [
        make_table([*which, kind, *times], width),
        *behind,
        make_table([*bare, source], width, "source operators"),
    ]


def _columns(
    profile: Profile,
) -> tuple[list[Column], list[Column], list[Column], list[Column]]:
    """(layer, kind, source), (MACs, cycles, ..., predicted), (bound, ...), bytes by stream and of
    code."""
    layers, totals = profile.layers, profile.totals

    def column(
        heading: str, cell: Callable[[LayerRow], str], total: str = "", name: bool = False
    ) -> Column:
        return Column(heading, tuple(cell(layer) for layer in layers), name, total)

    names = [column("layer", lambda of: of.name, "total", name=True)]
    regions = tuple(dict.fromkeys(layer.region for layer in layers))
    if len(regions) > 1:
        names.insert(0, column("region", lambda of: str(regions.index(of.region))))
    names.append(column("kind", lambda of: of.kind, name=True))
    names.append(column("source", lambda of: ", ".join(of.source), name=True))
    binding: list[Column] = []
    times = [column("MACs", lambda of: count(of.macs), count(totals.macs))]
    if profile.timing:
        times += [
            column("cycles", lambda of: whole(of.cycles), whole(totals.cycles)),
            column("us", lambda of: microseconds(of.time_us), microseconds(totals.time_us)),
            column(
                "MAC\nuse",
                lambda of: percent(of.mac_utilization),
                percent(totals.mac_utilization),
            ),
        ]
        binding = _binding_columns(column, totals.breakdown)
    predicted = whole(totals.predicted_cycles)
    times.append(column("predicted\ncycles", lambda of: whole(of.predicted_cycles), predicted))
    transfers = [
        column(
            f"{link.verb}\n{stream}",
            _bytes_of(link.name, stream),
            count(total),
        )
        for link in profile.links
        for stream, total in totals.bytes_by_link[link.name].items()
    ]
    code = column("code\nbytes", lambda of: count(of.code_bytes), count(totals.code_bytes))
    return names, times, binding, [*transfers, code]


def _binding_columns(
    column: Callable[..., Column], whole_run: Breakdown | None
) -> list[Column]:
    """What binds each layer, and the busiest units' cycles."""

    def cell(value: Callable[[Breakdown], str]) -> Callable[[LayerRow], str]:
        return lambda of: UNKNOWN if of.breakdown is None else value(of.breakdown)

    def both(heading: str, value: Callable[[Breakdown], str]) -> Column:
        total = UNKNOWN if whole_run is None else value(whole_run)
        return column(heading, cell(value), total)

    return [
        replace(both("bound", lambda of: of.bound), key=True),
        both("of\nroof", lambda of: percent(of.roofline_share)),
        both("MAC\ncycles", lambda of: whole(of.mac_cycles)),
        both("DMA\ncycles", lambda of: whole(of.dma_cycles)),
        both("wait\ncycles", lambda of: whole(of.wait_cycles)),
    ]


def _bytes_of(link: str, stream: str) -> Callable[[LayerRow], str]:
    return lambda layer: count(layer.bytes_by_link[link].get(stream, 0))


def _total_lines(profile: Profile) -> list[str]:
    totals = profile.totals
    moved = {link: sum(totals.bytes_by_link[link.name].values()) for link in profile.links}
    lines = []
    if profile.timing and totals.cycles is not None:
        each = totals.cycles_per_run
        spread = f" ({min(each):,.0f} to {max(each):,.0f})" if max(each) > min(each) else ""
        lines.append(
            f"one inference: {whole(totals.cycles)} cycles{spread} = "
            f"{microseconds(totals.time_us)} us at {profile.frequency_mhz:g} MHz, "
            f"{percent(totals.mac_utilization)} MAC use"
        )
        lines += _binding_lines(profile)
    else:
        lines.append("cycles: not modelled (--no-timing)")
    lines.append(
        f"{count(totals.macs)} MACs, {count(totals.instructions)} instructions, "
        f"{count(totals.code_bytes)} bytes of code"
    )
    always = (LOADED, STORED)
    lines.append(
        ", ".join(
            f"{count(total)} bytes {link.meaning}"
            for link, total in moved.items()
            if total or link in always
        )
    )
    lines += _memory_lines(profile)
    seconds = ", ".join(
        f"{name.replace('_', ' ')} {spent:.2f} s"
        for name, spent in profile.host_seconds.items()
        if name != "sqnr" or profile.output_sqnr_db is not None
    )
    lines.append(f"on this computer: {seconds}")
    if profile.timing:
        lines.append(f"what bound, roof and the other figures are: {EXPLAINED_IN}")
    return lines


def _binding_lines(profile: Profile) -> list[str]:
    """Frames a second, and what binds layers, by the share of time that they take."""
    totals = profile.totals
    lines = [f"{totals.frames_per_s or 0.0:,.1f} frames a second (the NPU alone)"]
    if totals.times_bound is not None:
        lines.append(
            f"bound: no plan takes less than {whole(totals.bound_cycles)} cycles, however layers "
            f"are joined; this one takes {times(totals.times_bound)} that"
        )
    if totals.energy_uj is not None:
        lines.append(f"{totals.energy_uj:,.1f} uJ an inference by the machine file's [energy]")
    cycles: dict[str, float] = {}
    for layer in profile.layers:
        if layer.breakdown is not None:
            bound = layer.breakdown.bound
            cycles[bound] = cycles.get(bound, 0.0) + (layer.cycles or 0.0)
    total = sum(cycles.values()) or 1.0
    for bound in sorted(IN_WORDS, key=lambda bound: -cycles.get(bound, 0.0)):
        if bound in cycles:
            lines.append(f"{percent(cycles[bound] / total)} of the time bound by {IN_WORDS[bound]}")
    return lines


def _memory_lines(profile: Profile) -> list[str]:
    """Peak use of the memory outside of the chip and of those on it."""
    totals = profile.totals
    whose = " for the largest region" if len(profile.report.regions) > 1 else ""
    parts = {name: size for name, size in totals.dram_peak_segments.items() if size}
    between = totals.dram_peak_bytes - sum(parts.values())
    segments = [f"{count(size)} {name}" for name, size in parts.items()]
    segments += [f"{count(between)} between them"] if between else []
    lines = [f"DRAM: {count(totals.dram_peak_bytes)} bytes{whose} ({', '.join(segments)})"]
    peaks = ", ".join(
        f"{part} {count(peak)} of {count(profile.capacity_bytes[part])}"
        for part, peak in totals.peak_bytes.items()
    )
    return [*lines, f"memories on the chip, highest byte used: {peaks}"] if peaks else lines


def _print_split(profile: Profile, console: Console) -> None:
    report = profile.report
    cpu_macs = report.total_macs - report.npu_macs
    operators = sum(len(region.operators) for region in report.regions)
    console.print(
        f"NPU: {percent(report.mac_share)} of the MACs ({count(report.npu_macs)}), "
        f"{plural(operators, 'operator')} in {plural(len(report.regions), 'region')}"
    )
    console.print(
        f"CPU: {percent(1 - report.mac_share if report.total_macs else 0.0)} of the MACs "
        f"({count(cpu_macs)}), {plural(len(report.refusals), 'operator')}"
    )
    if report.refusals:
        console.print()
        print_refusals(report.refusals, console)


def print_refusals(refusals: Sequence[Refusal], console: Console) -> None:
    """Prints why operators stay on the CPU, grouped by rule, operator and what was found, what each
    group costs there, and what helps."""
    rules: dict[str, dict[tuple[str, str, str], list[Refusal]]] = {}
    for item in refusals:
        found = rules.setdefault(item.rule, {})
        found.setdefault((item.operator, item.value, item.limit), []).append(item)
    console.print("why not on the NPU:")
    for rule, operators in rules.items():
        _print_indented(f"broken rule: {rule}", 2, console)
        for (operator, value, limit), group in operators.items():
            sources = [one.source or UNKNOWN for one in group]
            _print_indented(f"{operator}: {_some(sources)}", 4, console)
            _print_indented(f"found: {value}; allowed: {limit}; see {group[0].page}", 6, console)
            costs = [one.cost for one in group if one.cost is not None]
            if costs:
                _print_indented(f"costs: {reduce(add, costs)}", 6, console)
        remedies = dict.fromkeys(one.remedy for group in operators.values() for one in group)
        for remedy in filter(None, remedies):
            _print_indented(f"what helps: {remedy}", 4, console)


def _print_indented(text: str, indent: int, console: Console) -> None:
    """Lines after the first stand two blanks further in."""
    first, rest = " " * indent, " " * (indent + 2)
    filled = textwrap.fill(
        text, console.width, initial_indent=first, subsequent_indent=rest,
        break_long_words=False, break_on_hyphens=False,
    )  # fmt: skip
    console.print(filled, soft_wrap=True)


def _some(names: Sequence[str]) -> str:
    more = len(names) - LISTED_NAMES
    listed = ", ".join(names[:LISTED_NAMES])
    return f"{listed} and {more} more" if more > 0 else listed


def count(number: int) -> str:
    return f"{number:,}"


def whole(number: float | None) -> str:
    return UNKNOWN if number is None else f"{number:,.0f}"


def microseconds(number: float | None) -> str:
    return UNKNOWN if number is None else f"{number:,.1f}"


def times(ratio: float) -> str:
    return f"{ratio:,.{1 if ratio >= 10 else 2}f} times"


def percent(share: float | None) -> str:
    return UNKNOWN if share is None else f"{100 * share:.1f} %"
