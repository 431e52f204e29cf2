"""The plots of a sweep's page; the script fills them with the designs that are chosen."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from bokeh.models import (
    ColumnDataSource,
    CustomJS,
    CustomJSTickFormatter,
    HoverTool,
    NoOverlap,
    TapTool,
)

from tvm_npu.report.page.figures import COLOURS, HEIGHT, blank, names_on_axis

CHOSEN = """const [first] = cb_obj.indices;
const detail = source.data.design[first];
if (detail !== undefined) dispatchEvent(new CustomEvent("design", {detail}));
"""
"""Tells the page's script which design was clicked on."""
SHORT = """return new Intl.NumberFormat(
  "en", {notation: "compact", maximumSignificantDigits: 3}).format(tick)"""
"""200K in place of 2.000e+5."""
TOOLTIPS = [("design", "@label"), ("", "@text")]


def sweep_figures(axes: Sequence[str], in_decades: bool) -> dict[str, Any]:
    """By the place on the page that they go to; ``axes`` are those of the parallel lines."""
    return {"front": _front(in_decades), "lines": _lines(axes)}


def _front(in_decades: bool) -> Any:
    kind = "log" if in_decades else "linear"
    plot = blank("front", x_axis_label="-", y_axis_label="-", x_axis_type=kind, y_axis_type=kind)
    for axis in plot.axis:
        axis.formatter = CustomJSTickFormatter(code=SHORT)
        axis.major_label_policy = NoOverlap()
    edge = ColumnDataSource({"x": [], "y": []}, name="edge")
    plot.step("x", "y", source=edge, mode="after", line_color=COLOURS["mac"], line_width=1.5)
    names = ("x", "y", "label", "text", "colour", "size", "design")
    marks = _clickable({name: [] for name in names}, "marks")
    drawn = plot.scatter("x", "y", source=marks, size="size", color="colour", alpha=0.7,
                         nonselection_alpha=0.7)  # fmt: skip
    plot.add_tools(HoverTool(renderers=[drawn], tooltips=TOOLTIPS), TapTool(renderers=[drawn]))
    return plot


def _lines(axes: Sequence[str]) -> Any:
    """One line a design over all axes, each from its least value at 0 to its largest at 1."""
    plot = blank("lines", x_range=(-0.3, len(axes) - 0.7), y_range=(-0.05, 1.05))
    names = ("xs", "ys", "label", "text", "colour", "width", "design")
    source = _clickable({name: [] for name in names}, "threads")
    drawn = plot.multi_line("xs", "ys", source=source, line_color="colour", line_width="width",
                            line_alpha=0.7, nonselection_line_alpha=0.7)  # fmt: skip
    plot.add_tools(HoverTool(renderers=[drawn], tooltips=TOOLTIPS), TapTool(renderers=[drawn]))
    names_on_axis(plot, list(axes))
    plot.xaxis.ticker = list(range(len(axes)))
    plot.yaxis.visible = False
    plot.ygrid.visible = False
    plot.xgrid.grid_line_alpha = 0.8
    plot.height = HEIGHT + 120
    return plot


def _clickable(columns: dict[str, list[Any]], name: str) -> ColumnDataSource:
    source = ColumnDataSource(columns, name=name)
    chosen = CustomJS(args={"source": source}, code=CHOSEN)
    source.selected.js_on_change("indices", chosen)
    return source
