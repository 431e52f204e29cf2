"""The report as one HTML page that opens without a network: everything it needs is inside.

Needs the extra ``report`` (Jinja2 and Bokeh). `make_page` fills ``page.html.jinja``.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from importlib import resources
from typing import TYPE_CHECKING, Any

from tvm_npu.errors import NpuError
from tvm_npu.report.breakdown import IN_WORDS
from tvm_npu.report.model_graph import ModelGraph
from tvm_npu.report.placement import PartitionReport
from tvm_npu.report.profile import Profile
from tvm_npu.report.runs import RegionRun

if TYPE_CHECKING:
    from jinja2 import Template

MISSING = "this needs {name}: pip install '.[report]'"


class PageError(NpuError):
    """The page cannot be made: a package is missing, or a file to compare with is no profile."""


def make_page(
    profile: Profile,
    runs: Sequence[RegionRun],
    graph: ModelGraph | None = None,
    sqnr_db: Mapping[tuple[str, str], tuple[float | None, float | None]] | None = None,
    others: Sequence[Mapping[str, Any]] = (),
    advice: Mapping[tuple[str, str], str] | None = None,
) -> str:
    """The page of ``profile``; ``runs`` are what it was made of. ``sqnr_db`` has for layers (own,
    accumulated) signal to noise, ``advice`` what would help. ``others`` are profiles to compare
    with, as `Profile.to_dict` gives them. Raises PageError."""
    template = page_template("page.html.jinja")
    try:
        from tvm_npu.report.page.figures import figures
    except ImportError as error:
        raise PageError(MISSING.format(name=error.name or "bokeh")) from error
    from tvm_npu.report.page.comparison import comparison
    from tvm_npu.report.page.drawing import draw
    from tvm_npu.report.page.timelines import timelines
    from tvm_npu.report.page.words import layer_words

    drawn = timelines(runs)
    return template.render(
        profile=profile,
        bounds=_bounds(profile),
        words=[layer_words(row, profile) for row in profile.layers],
        in_words=IN_WORDS,
        refusals=grouped(profile.report),
        graph=None if graph is None else draw(graph, profile, sqnr_db or {}),
        sqnr_db=sqnr_db or {},
        advice=advice or {},
        comparison=comparison(profile.to_dict(), others),
        timelines=as_script_data(drawn),
        shares=page_source("shares.js"),
        **with_plots(figures(profile, drawn), "page.js"),
    )


def with_plots(plots: dict[str, Any], behaviour: str) -> dict[str, Any]:
    """What templates of pages with Bokeh's ``plots`` take beside their own: ``parts`` (a place for
    each plot), the scripts, the last of them the file ``behaviour``, and the style."""
    from bokeh.document import Document
    from bokeh.embed import components
    from bokeh.resources import Resources

    document = Document()
    with document.models.freeze():  # else it looks through all plots for each
        for plot in plots.values():
            document.add_root(plot)
    script, parts = components(plots)
    return {
        "parts": parts,
        "script": script,
        "bokeh": "\n".join(Resources(mode="inline", components=["bokeh"]).js_raw),
        "shared": page_source("shared.js"),
        "behaviour": page_source(behaviour),
        "style": page_source("page.css"),
    }


def as_script_data(values: Any) -> str:
    """JSON that can stand in a script element. ValueError for NaN."""
    text = json.dumps(values, separators=(",", ":"), allow_nan=False)
    return text.replace("<", "\\u003c")


def page_template(name: str) -> Template:
    """A template of this package, with the filters of `numbers`. Raises PageError without
    Jinja2."""
    try:
        import jinja2
    except ImportError as error:
        raise PageError(MISSING.format(name="jinja2")) from error
    from tvm_npu.report.page.numbers import FILTERS

    environment = jinja2.Environment(
        loader=jinja2.FunctionLoader(page_source), autoescape=True, trim_blocks=True,
        lstrip_blocks=True, undefined=jinja2.StrictUndefined,
    )  # fmt: skip
    environment.filters.update(FILTERS)
    return environment.get_template(name)


def page_source(name: str) -> str:
    """A file of this package: templates, style, behaviour."""
    return (resources.files(__package__ or __name__) / name).read_text("utf-8")


def _bounds(profile: Profile) -> dict[str, float]:
    """Share of the time by what binds it, the largest first."""
    found: dict[str, float] = {}
    for layer in profile.layers:
        if layer.breakdown is not None:
            bound = layer.breakdown.bound
            found[bound] = found.get(bound, 0.0) + (layer.cycles or 0.0)
    total = sum(found.values()) or 1.0
    return {
        name: cycles / total for name, cycles in sorted(found.items(), key=lambda one: -one[1])
    }


def grouped(report: PartitionReport) -> list[dict[str, Any]]:
    """Refusals of one rule, operator and value as one row with all sources."""
    rows: dict[tuple[str, ...], dict[str, Any]] = {}
    for one in report.refusals:
        key = one.operator, one.rule, one.value, one.limit
        row = rows.setdefault(
            key,
            {"operator": one.operator, "rule": one.rule, "value": one.value, "limit": one.limit,
             "page": one.page, "remedy": one.remedy, "sources": [], "cost": None},
        )  # fmt: skip
        row["sources"].append(one.source)
        if one.cost is not None:
            row["cost"] = one.cost if row["cost"] is None else row["cost"] + one.cost
    return list(rows.values())
