"""The page's plots, as Bokeh figures without colours of text: the script sets those by theme."""

from __future__ import annotations

from typing import Any

import numpy as np
from bokeh.models import ColumnDataSource, CustomJSTickFormatter, HoverTool, NumeralTickFormatter
from bokeh.models.annotations import Span
from bokeh.plotting import figure

from tvm_npu.report.profile import Profile

COLOURS = {"mac": "#4477aa", "dma": "#cc8833", "control": "#aa4488", "waits": "#888888"}
"""Told apart by people who see few colours; the same as in page.css."""
TOOLS = "xpan,xwheel_zoom,box_zoom,reset"
HEIGHT = 380
LONGEST_TICK = 16


def figures(profile: Profile, timelines: list[dict[str, Any]]) -> dict[str, Any]:
    """By the place on the page that they go to."""
    found: dict[str, Any] = {
        "timeline": _timeline(), "fill": _fill(), "peaks": _peaks(profile),
    }  # fmt: skip
    if profile.timing:
        found["dram"] = _dram(profile)
        found["times"] = _times(profile)
        found["roofline"] = _roofline(profile)
    return found


def blank(name: str, **options: Any) -> Any:
    """A plot as wide as the page."""
    plot = figure(
        name=name, height=HEIGHT, sizing_mode="stretch_width", tools=TOOLS,
        toolbar_location="above", background_fill_alpha=0, border_fill_alpha=0,
        outline_line_color=None, **options,
    )  # fmt: skip
    plot.toolbar.logo = None
    plot.grid.grid_line_color = "#888888"
    plot.grid.grid_line_alpha = 0.25
    return plot


def _times(profile: Profile) -> Any:
    """For each layer its time, and in it the busiest units' work."""
    rows = [(k, row, row.breakdown) for k, row in enumerate(profile.layers)]
    per_us = profile.frequency_mhz
    source = ColumnDataSource(
        {
            "at": [k for k, _, _ in rows],
            "name": [row.name for _, row, _ in rows],
            "us": [row.time_us for _, row, _ in rows],
            "bound": ["" if b is None else b.bound for _, _, b in rows],
            "colour": [COLOURS["waits"] if b is None else COLOURS[b.bound] for _, _, b in rows],
            "mac": [0 if b is None else b.mac_cycles / per_us for _, _, b in rows],
            "dma": [0 if b is None else b.dma_cycles / per_us for _, _, b in rows],
            "waits": [0 if b is None else b.wait_cycles / per_us for _, _, b in rows],
            "mac_at": [k - 0.25 for k, _, _ in rows],
            "dma_at": [k for k, _, _ in rows],
            "wait_at": [k + 0.25 for k, _, _ in rows],
        }
    )
    plot = blank("times", x_axis_label="layer, in order of execution", y_axis_label="us")
    plot.vbar(x="at", top="us", width=0.9, source=source, fill_color="colour", fill_alpha=0.25,
              line_color="colour")  # fmt: skip
    for part, at in (("mac", "mac_at"), ("dma", "dma_at"), ("waits", "wait_at")):
        label = {"mac": "MAC units", "dma": "moving data", "waits": "no unit works"}[part]
        plot.vbar(x=at, top=part, width=0.22, source=source, color=COLOURS[part],
                  legend_label=label)  # fmt: skip
    plot.add_tools(
        HoverTool(tooltips=[("layer", "@name"), ("us", "@us{0,0.0}"), ("bound", "@bound"),
                            ("MAC units", "@mac{0,0.0}"), ("moving data", "@dma{0,0.0}"),
                            ("no unit works", "@waits{0,0.0}")])
    )  # fmt: skip
    names_on_axis(plot, [row.name for row in profile.layers])
    plot.yaxis.formatter = NumeralTickFormatter(format="0,0[.]00")
    legend(plot)
    return plot


def names_on_axis(plot: Any, names: list[str]) -> None:
    """The name of place k at tick k."""
    plot.xaxis.formatter = CustomJSTickFormatter(
        args={"names": [_short(name) for name in names]},
        code="return Number.isInteger(tick) ? names[tick] ?? '' : ''",
    )
    plot.xaxis.major_label_orientation = 0.9


def _short(name: str) -> str:
    """Long names would leave no room for the plot."""
    return name if len(name) <= LONGEST_TICK else f"{name[:7]}…{name[-8:]}"


def legend(plot: Any) -> None:
    """Above the plot, in a line."""
    plot.legend.background_fill_alpha = 0
    plot.legend.border_line_alpha = 0
    plot.legend.orientation = "horizontal"
    plot.add_layout(plot.legend[0], "above")


def _roofline(profile: Profile) -> Any:
    """Multiply-accumulates a cycle over multiply-accumulates a byte, both on scales of decades."""
    points = [
        (row, row.macs / row.dram_bytes, row.macs / row.cycles)
        for row in profile.layers
        if row.cycles and row.macs and row.dram_bytes
    ]
    plot = blank(
        "roofline", x_axis_type="log", y_axis_type="log",
        x_axis_label="multiply-accumulates a byte of DRAM",
        y_axis_label="multiply-accumulates a cycle",
    )  # fmt: skip
    low = min([intensity for _, intensity, _ in points], default=1.0) / 2
    high = 2 * max([intensity for _, intensity, _ in points], default=1.0)
    peak, ridge = profile.roofs.macs_per_cycle, profile.roofs.ridge
    high = max(high, 4 * ridge) if ridge else high
    edge = [low, high] if ridge is None else [low, min(max(ridge, low), high), high]
    roof = [
        peak if ridge is None else min(peak, peak * intensity / ridge) for intensity in edge
    ]
    plot.line(edge, roof, line_width=2, color="#888888", legend_label="roof")
    drawn: list[Any] = []
    for bound, colour in COLOURS.items():
        chosen = [one for one in points if one[0].breakdown and one[0].breakdown.bound == bound]
        if chosen:
            source = ColumnDataSource(
                {
                    "x": [x for _, x, _ in chosen],
                    "y": [y for _, _, y in chosen],
                    "name": [row.name for row, _, _ in chosen],
                    "us": [row.time_us for row, _, _ in chosen],
                }
            )
            drawn.append(plot.scatter("x", "y", source=source, size=9, color=colour, alpha=0.8,
                                      legend_label=bound))  # fmt: skip
    plot.add_tools(
        HoverTool(renderers=drawn, tooltips=[
            ("layer", "@name"), ("us", "@us{0,0.0}"), ("MACs a byte", "@x{0,0.0}"),
            ("MACs a cycle", "@y{0,0.0}"),
        ])
    )  # fmt: skip
    legend(plot)
    return plot


def _timeline() -> Any:
    """Filled by the script with the layer that is chosen."""
    source = ColumnDataSource(
        {key: [] for key in ("y", "left", "right", "colour", "alpha", "label", "tile", "unit")},
        name="slices",
    )
    plot = blank("timeline", x_axis_label="cycles from the layer's first event", y_range=["-"],
                  x_range=(0, 1))  # fmt: skip
    plot.xaxis.formatter = NumeralTickFormatter(format="0,0")
    plot.hbar(y="y", left="left", right="right", height=0.8, source=source, color="colour",
              fill_alpha="alpha", line_alpha=0.4)  # fmt: skip
    plot.add_tools(
        HoverTool(tooltips=[("unit", "@unit"), ("work", "@label"), ("tile", "@tile"),
                            ("from", "@left{0,0.0}"), ("to", "@right{0,0.0}")])
    )  # fmt: skip
    return plot


def _fill() -> Any:
    """Filled by the script: share of each memory that holds what is still needed."""
    source = ColumnDataSource({"xs": [], "ys": [], "part": [], "colour": []}, name="shares")
    plot = blank(
        "fill", x_axis_label="cycles from the layer's first event", y_axis_label="% of the memory",
        y_range=(0, 100), x_range=(0, 1),
    )  # fmt: skip
    plot.xaxis.formatter = NumeralTickFormatter(format="0,0")
    plot.multi_line("xs", "ys", source=source, line_color="colour", line_width=2,
                    legend_field="part")  # fmt: skip
    legend(plot)
    return plot


def _dram(profile: Profile) -> Any:
    """Bytes of activations in use over the time of an inference."""
    rows = [row for row in profile.layers if row.dram_live_bytes is not None]
    ends = np.cumsum([row.time_us or 0.0 for row in rows])
    source = ColumnDataSource(
        {
            "left": [0.0, *ends[:-1].tolist()] if rows else [],
            "right": ends.tolist(),
            "bytes": [row.dram_live_bytes for row in rows],
            "name": [row.name for row in rows],
        }
    )
    plot = blank("dram", x_axis_label="us", y_axis_label="bytes of activations in use")
    plot.quad(left="left", right="right", bottom=0, top="bytes", source=source,
              fill_color=COLOURS["mac"], fill_alpha=0.25, line_color=COLOURS["mac"])  # fmt: skip
    plot.xaxis.formatter = NumeralTickFormatter(format="0,0[.]00")
    plot.yaxis.formatter = NumeralTickFormatter(format="0,0")
    plot.add_tools(HoverTool(tooltips=[("layer", "@name"), ("in use", "@bytes{0,0} bytes"),
                                       ("from", "@left{0,0.0} us"),
                                       ("to", "@right{0,0.0} us")]))  # fmt: skip
    return plot


PART_COLOURS = ("#4477aa", "#cc8833", "#228855", "#aa4488", "#66aacc", "#777777")


def _peaks(profile: Profile) -> Any:
    """For each layer the highest byte used of each memory on the chip, of its size."""
    plot = blank(
        "peaks", x_axis_label="layer, in order of execution", y_axis_label="% of the memory",
        y_range=(0, 105),
    )  # fmt: skip
    parts = [part for part in profile.capacity_bytes if part in profile.totals.peak_bytes]
    for part, colour in zip(parts, PART_COLOURS * len(parts), strict=False):
        size = profile.capacity_bytes[part]
        used = [row.peak_bytes.get(part, 0) for row in profile.layers]
        source = ColumnDataSource(
            {
                "at": list(range(len(used))),
                "share": [100 * peak / size for peak in used],
                "bytes": used,
                "name": [row.name for row in profile.layers],
                "part": [part] * len(used),
            }
        )
        plot.step("at", "share", source=source, mode="center", color=colour, line_width=2,
                  legend_label=part)  # fmt: skip
        plot.scatter("at", "share", source=source, color=colour, size=6)
    plot.add_layout(Span(location=100, dimension="width", line_dash="dashed", line_color="#888888"))
    plot.add_tools(HoverTool(tooltips=[("layer", "@name"), ("@part", "@bytes{0,0} bytes"),
                                       ("of the memory", "@share{0.0} %")]))  # fmt: skip
    names_on_axis(plot, [row.name for row in profile.layers])
    if parts:
        legend(plot)
    return plot
