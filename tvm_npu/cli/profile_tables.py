"""A profile as text: layers (in one table, or in two where the terminal is narrow), totals, the
split between NPU and CPU."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Sequence
from dataclasses import replace

from rich.console import Console
from rich.table import Table

from tvm_npu.cli.profile import LayerRow, Profile
from tvm_npu.cli.tables import Column, fitted_widths, make_table, natural_width
from tvm_npu.report import Refusal
from tvm_npu.sim.units import LOADED, STORED

UNKNOWN = "-"
LISTED_NAMES = 8
"""Operators that one line names; JSON has all."""
READABLE_NAME = 20
"""Characters below which a layer's name is not shortened for the sake of another column."""


def print_profile(profile: Profile, console: Console) -> None:
    images = f" of {profile.images_per_run} images" if profile.images_per_run > 1 else ""
    console.print(
        f"{profile.model} on {profile.machine} ({profile.precision}, {profile.planner}): "
        f"{profile.runs} inference{'s' if profile.runs > 1 else ''}{images}"
    )
    random = f"random (standard normal, seed {profile.seed})"
    console.print(f"input and number ranges: {profile.calibration or random}\n")
    for table in _layer_tables(profile, console.width):
        console.print(table)
        console.print()
    for line in _total_lines(profile):
        console.print(line)
    if profile.output_sqnr_db is not None:
        console.print(f"output SQNR on calibration data: {profile.output_sqnr_db:.1f} dB")
    console.print()
    _print_split(profile, console)


def _layer_tables(profile: Profile, width: int) -> list[Table]:
    """One table if it is narrow enough; else one of times and one of bytes, and one of source
    operators where they would be shortened or squeeze the layers' names."""
    names, times, transfers, code = _columns(profile)
    whole = [*names, *times, *transfers, *code]
    if natural_width(whole) <= width:
        return [make_table(whole, width)]
    *which, kind, source = names
    bytes_moved = make_table([*which, *transfers, *code], width, "bytes moved")
    first = [*which, kind, source, *times]
    layer = len(which) - 1
    widths = fitted_widths(first, width)
    readable = min(READABLE_NAME, which[layer].width)
    if widths[layer] >= readable and widths[layer + 2] == source.width:
        return [make_table(first, width), bytes_moved]
    bare = [replace(column, total="") for column in which]
    return [
        make_table([*which, kind, *times], width),
        bytes_moved,
        make_table([*bare, source], width, "source operators"),
    ]


def _columns(
    profile: Profile,
) -> tuple[list[Column], list[Column], list[Column], list[Column]]:
    """(layer, kind, source), (MACs, cycles, ...), bytes by stream, code size."""
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
    code = [column("code\nbytes", lambda of: count(of.code_bytes), count(totals.code_bytes))]
    return names, times, transfers, code


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
    seconds = ", ".join(
        f"{name.replace('_', ' ')} {spent:.2f} s" for name, spent in profile.host_seconds.items()
    )
    lines.append(f"on this computer: {seconds}")
    return lines


def _print_split(profile: Profile, console: Console) -> None:
    report = profile.report
    cpu_macs = report.total_macs - report.npu_macs
    operators = sum(len(region.operators) for region in report.regions)
    console.print(
        f"NPU: {percent(report.mac_share)} of the MACs ({count(report.npu_macs)}), "
        f"{_plural(operators, 'operator')} in {_plural(len(report.regions), 'region')}"
    )
    console.print(
        f"CPU: {percent(1 - report.mac_share if report.total_macs else 0.0)} of the MACs "
        f"({count(cpu_macs)}), {_plural(len(report.refusals), 'operator')}"
    )
    if report.refusals:
        console.print()
        print_refusals(report.refusals, console)


def print_refusals(refusals: Sequence[Refusal], console: Console) -> None:
    """Prints why operators stay on the CPU, grouped by rule, operator and what was found."""
    rules: dict[tuple[str, str], dict[tuple[str, str], list[str]]] = {}
    for item in refusals:
        found = rules.setdefault((item.rule, item.limit), {})
        found.setdefault((item.operator, item.value), []).append(item.source or UNKNOWN)
    console.print("why not on the NPU:")
    for (rule, limit), operators in rules.items():
        _print_indented(f"{rule} Allowed: {limit}.", 2, console)
        for (operator, value), sources in operators.items():
            found_text = "" if value == operator else f" ({value})"
            _print_indented(f"{operator}{found_text}: {_some(sources)}", 4, console)


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


def _plural(number: int, noun: str) -> str:
    return f"{number} {noun}" + ("" if number == 1 else "s")


def count(number: int) -> str:
    return f"{number:,}"


def whole(number: float | None) -> str:
    return UNKNOWN if number is None else f"{number:,.0f}"


def microseconds(number: float | None) -> str:
    return UNKNOWN if number is None else f"{number:,.1f}"


def percent(share: float | None) -> str:
    return UNKNOWN if share is None else f"{100 * share:.1f} %"
