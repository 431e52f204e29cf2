"""A sweep as one HTML page that opens without a network: front, parallel axes, sensitivities."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

from tvm_npu.report.page import MISSING, PageError, as_script_data, page_template, with_plots
from tvm_npu.report.page.numbers import figure
from tvm_npu.sim.machine_file import machine_names, machine_toml
from tvm_npu.sweep.designs import Design
from tvm_npu.sweep.judged import Judged
from tvm_npu.sweep.outcome import ACCURACY, MAXIMIZED, MEASURED, means_said
from tvm_npu.sweep.run import SweepResult

MOST_DESIGNS = 4000
"""On a page: a browser moves so many lines at once. Those of the front are always among them."""
SHOWN = (*MEASURED, "macs", "wrong_elements")
"""Of an outcome, in this order; accuracies stand behind them where models have images."""
Links = Mapping[tuple[Design, str], str]
"""Address of the profile of a design and a model."""


@dataclass(frozen=True)
class SweepAxis:
    """A key, a use (planner, precision or batch) or an objective; ``values`` are all that occur, in
    order, and ``at`` their places from 0 to 1."""

    name: str
    kind: Literal["key", "use", "objective"]
    values: tuple[Any, ...]
    at: tuple[float, ...]

    @property
    def title(self) -> str:
        """With the span of its values."""
        ends = dict.fromkeys((*self.values[:1], *self.values[-1:]))
        texts = (str(end) if isinstance(end, bool | str) else figure(end) for end in ends)
        return f"{self.name}: {' to '.join(texts)}"

    def of(self, judged: Judged, objectives: Sequence[str]) -> Any:
        """The value of a design; None: it has none."""
        if self.kind == "key":
            return dict(judged.design.changes).get(self.name)
        if self.kind == "use":
            return getattr(judged.design, self.name)
        score = judged.score(objectives, self.name)
        return None if math.isnan(score) else score


def make_sweep_page(result: SweepResult, profiles: Links | None = None) -> str:
    """The page of ``result``; points lead to their ``profiles``. Raises PageError."""
    template = page_template("swept.html.jinja")
    try:
        from tvm_npu.report.page.swept_figures import sweep_figures
    except ImportError as error:
        raise PageError(MISSING.format(name=error.name or "bokeh")) from error
    stages = [_thinned(stage, result) for stage in result.stages]
    axes = sweep_axes(result)
    scores = [score for stage in stages for one in stage for score in one.scores]
    in_decades = all(score > 0 for score in scores if not math.isnan(score))
    fields = _fields(result)
    columns = [*fields, *result.spec.outcome]
    contents = {
        "axes": [asdict(axis) for axis in axes],
        "objectives": result.spec.search.objectives,
        "large": sorted(MAXIMIZED),
        "models": result.spec.models,
        "sources": [_source(name) for name in result.spec.models],
        "columns": columns,
        "stages": [_points(stage, axes, result, profiles or {}) for stage in stages],
    }
    return template.render(
        result=result,
        axes=axes,
        objectives=result.spec.search.objectives,
        columns=columns,
        large=[name for name in result.spec.search.objectives if name in MAXIMIZED],
        means=means_said(result.spec.search.objectives),
        required=result.spec.search.require,
        best=result.front_designs(),
        designs=[len(stage) for stage in result.stages],
        shown=len(stages[0]),
        in_decades=in_decades,
        most=max((one or 1.0 for row in result.sensitivity.values() for one in row), default=1.0),
        faults=_faults(result),
        contents=as_script_data(contents),
        **with_plots(sweep_figures([axis.title for axis in axes], in_decades), "swept.js"),
    )


def _fields(result: SweepResult) -> tuple[str, ...]:
    return (*SHOWN, *ACCURACY) if result.spec.accuracy else SHOWN


def sweep_axes(result: SweepResult) -> list[SweepAxis]:
    """Keys, planners, precisions and batches that differ, then objectives."""
    stage, objectives = result.stages[0], result.spec.search.objectives
    found: list[SweepAxis] = []
    for name in dict.fromkeys(key for one in stage for key, _ in one.design.changes):
        found.append(_choices(name, "key", {dict(one.design.changes).get(name) for one in stage}))
    for name in ("planner", "precision", "batch"):
        uses = {getattr(one.design, name) for one in stage}
        if len(uses) > 1:
            found.append(_choices(name, "use", uses))
    for at, name in enumerate(objectives):
        scores = {one.scores[at] for each in result.stages for one in each}
        ordered = tuple(sorted(score for score in scores if not math.isnan(score)))
        found.append(SweepAxis(name, "objective", ordered, _places(ordered)))
    return found


def _choices(name: str, kind: Literal["key", "use"], values: set[Any]) -> SweepAxis:
    ordered = sorted(values - {None}, key=lambda value: (isinstance(value, str), value))
    last = len(ordered) - 1
    places = [at / last for at in range(len(ordered))] if last else [0.5]
    return SweepAxis(name, kind, tuple(ordered), tuple(places))


def _places(scores: Sequence[float]) -> tuple[float, ...]:
    """On a scale of decades where all are above 0."""
    if not scores or scores[0] == scores[-1]:
        return (0.5,) * len(scores)
    scale = math.log if scores[0] > 0 else float
    low, high = scale(scores[0]), scale(scores[-1])
    return tuple((scale(score) - low) / (high - low) for score in scores)


def _thinned(stage: Sequence[Judged], result: SweepResult) -> list[Judged]:
    """At most `MOST_DESIGNS`: those of the front, and of the others every so many."""
    if len(stage) <= MOST_DESIGNS:
        return list(stage)
    best = {one.design for one in result.front_designs()}
    step = math.ceil(len(stage) / max(1, MOST_DESIGNS - len(best)))
    return [one for at, one in enumerate(stage) if at % step == 0 or one.design in best]


def _points(
    stage: Sequence[Judged], axes: Sequence[SweepAxis], result: SweepResult, profiles: Links
) -> list[dict[str, Any]]:
    """Designs at one fidelity: ``at`` is the number of its value on each axis, ``rows`` has the
    outcome of each model in the page's columns."""
    objectives, models = result.spec.search.objectives, result.spec.models
    fields = _fields(result)
    best = {one.design for one in result.front_designs()}
    numbers = [{value: at for at, value in enumerate(axis.values)} for axis in axes]
    return [
        {
            "name": one.design.name,
            "planner": one.design.planner,
            "precision": one.design.precision,
            "use": one.design.use,
            "at": [
                places.get(axis.of(one, objectives))
                for axis, places in zip(axes, numbers, strict=True)
            ],
            "front": one.design in best,
            "rows": [
                [*(getattr(outcome, name) for name in fields), *extra.values()]
                for outcome, extra in zip(one.outcomes, one.extras, strict=True)
            ],
            "faults": [outcome.fault for outcome in one.outcomes],
            "machine": machine_text(one.design),
            "loaded_from": one.design.loaded_from if one.design.machine else None,
            "profiles": [profiles.get((one.design, model)) for model in models],
        }
        for one in stage
    ]


def machine_text(design: Design) -> str | None:
    """The machine file of a design with changes; None: there is one, or a machine of that name, or
    its kind refuses it. Files can only extend machines that come with the package."""
    if not design.changes or design.machine is None:
        return None
    if design.loaded_from not in machine_names():
        return machine_toml({**design.machine.model_dump(), "name": "swept"})
    lines = [f"{key} = {json.dumps(value)}" for key, value in design.changes]
    return "\n".join((f"extends = {json.dumps(design.loaded_from)}", 'name = "swept"', *lines))


def _source(model: str) -> str:
    """What `tvm_npu.profile` takes for a model of the specification, in Python."""
    return repr(model) if os.path.isfile(model) else f"models.build({model!r})"


def _faults(result: SweepResult) -> list[tuple[str, int]]:
    """Reasons without an outcome and how many points have them, the most frequent first."""
    counts: dict[str, int] = {}
    for row in result.rows:
        if row["fault"] is not None:
            counts[row["fault"]] = counts.get(row["fault"], 0) + 1
    return sorted(counts.items(), key=lambda one: -one[1])
