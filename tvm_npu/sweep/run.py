"""Runs a sweep: designs through their fidelities, results kept, the front found."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from tvm_npu.sim.frames import Tabular
from tvm_npu.sim.limits import DEFAULT, Limits, check_limits
from tvm_npu.sim.machine_parts import ELEMENT_BYTES
from tvm_npu.sim.paths import as_path
from tvm_npu.sim.texts import shown
from tvm_npu.sweep.accuracies import Accuracies
from tvm_npu.sweep.designs import Design, DesignSpace
from tvm_npu.sweep.engines import Engine, Processes
from tvm_npu.sweep.formulas import evaluate, number
from tvm_npu.sweep.front import sensitivities
from tvm_npu.sweep.genetic import generations
from tvm_npu.sweep.groups import Asked, evaluated
from tvm_npu.sweep.images import ModelImages
from tvm_npu.sweep.judged import Judged, best_first, front, promoted
from tvm_npu.sweep.models import ModelSource, machine_class, model_bytes
from tvm_npu.sweep.outcome import ACCURACY, RIGHT, Outcome, mean
from tvm_npu.sweep.preparations import OtherRegionsError, PreparedModel, prepared
from tvm_npu.sweep.spec import Fidelity, SweepError, SweepSpec
from tvm_npu.sweep.store import Store, result_key

Row = dict[str, Any]
Progress = Callable[[str, int, int], None]
"""Called with the fidelity, designs done, and designs in all as far as known."""
WRITE_S = 0.5
"""Between two writes to the store."""


@dataclass(frozen=True)
class SweepResult(Tabular):
    """``rows``: a row a fidelity, design and model, in the order of the designs; ``on_front`` is
    said of designs, all models together, at the last fidelity they reached. ``sensitivity``: see
    `front.sensitivities`, at the first fidelity."""

    spec: SweepSpec
    rows: tuple[Row, ...]
    sensitivity: dict[str, tuple[float | None, ...]]
    stages: tuple[tuple[Judged, ...], ...]
    """The designs at each fidelity."""
    evaluated: int
    """Points that were not in the store."""

    def front_designs(self) -> tuple[Judged, ...]:
        """Those of the last fidelity that no other is better than, by their first objective."""
        objectives = self.spec.search.objectives
        return tuple(best_first(front(self.stages[-1], objectives), objectives))

    def front(self) -> tuple[Row, ...]:
        return tuple(row for row in self.rows if row["on_front"])

    def flat_rows(self) -> list[Row]:
        """`rows` with a column for each key that is varied."""
        return [
            {**{name: row[name] for name in row if name != "keys"}, **row["keys"]}
            for row in self.rows
        ]


def run_sweep(
    spec: SweepSpec,
    store: str | Path,
    engine: Engine | None = None,
    progress: Progress | None = None,
    limits: Limits = DEFAULT,
) -> SweepResult:
    """Results go into the folder ``store`` as they come, and what it has already is not computed
    again. The result depends on the specification, ``limits`` (what each simulation may take) and
    the code alone. Raises SweepError for a specification that does not work out; points that fail,
    also at a limit, are rows with their ``fault``."""
    if not isinstance(spec, SweepSpec):
        raise SweepError(f"a specification is {shown(spec)}; expected a SweepSpec")
    check_limits(limits)
    folder = as_path(store, "the store of a sweep", SweepError)
    run = _Run(spec, folder, engine or Processes(1), progress or (lambda *_: None), limits)
    try:
        return run.result()
    finally:
        run.close()


@dataclass(frozen=True)
class _Models:
    """All models of a sweep, the files where they are prepared, and what workers read those
    from."""

    sources: list[ModelSource]
    files: list[Path]
    shared: list[Any]


class _Run:
    def __init__(
        self, spec: SweepSpec, folder: Path, engine: Engine, progress: Progress, limits: Limits
    ) -> None:
        self.spec, self.engine, self.progress, self.limits = spec, engine, progress, limits
        self.space = DesignSpace(spec)
        self.store, self.folder = Store(folder), folder
        self.contents = {name: model_bytes(name) for name in spec.models}
        self.images = {name: ModelImages(one) for name, one in spec.accuracy.items()}
        self.evaluated = 0
        self._prepared: dict[Any, list[PreparedModel]] = {}
        self._shared: dict[Path, Any] = {}
        self._accuracies = Accuracies(self.store, engine, self._measured, limits)

    def _measured(self, model: str, images: int) -> None:
        self.progress(f"accuracy of {Path(model).stem}, images", images, images)

    def close(self) -> None:
        self.engine.stop()
        self.store.close()

    def result(self) -> SweepResult:
        (first, *more), search = self.spec.fidelity, self.spec.search
        judged = self._first(first)
        stages = [judged]
        for fidelity in more:
            kept = promoted(judged, search.objectives, search.promote)
            judged = self._judge([one.design for one in kept], fidelity)
            stages.append(judged)
        best = {one.design for one in front(judged, search.objectives)}
        rows = [
            row
            for stage in stages
            for one in stage
            for row in self._rows(one, stage is judged and one.design in best)
        ]
        scores = np.array([one.scores for one in stages[0]]).reshape(len(stages[0]), -1)
        changes = [dict(one.design.changes) for one in stages[0]]
        return SweepResult(
            self.spec, tuple(rows), sensitivities(changes, scores, search.objectives),
            tuple(map(tuple, stages)), self.evaluated,
        )  # fmt: skip

    def _first(self, fidelity: Fidelity) -> list[Judged]:
        search, space = self.spec.search, self.space
        listed = list(space.of_files())
        if search.method == "grid":
            return self._judge([*listed, *space.grid()], fidelity)
        if search.method == "random":
            chosen = space.random(search.designs, search.seed) if space.base else ()
            return self._judge([*listed, *chosen], fidelity)
        judged = self._judge(listed, fidelity)
        return judged + generations(
            space, search, lambda designs: self._judge(designs, fidelity)
        )

    def _judge(self, designs: Sequence[Design], fidelity: Fidelity) -> list[Judged]:
        """Designs with their outcomes, one run of each model evaluated once for all batches."""
        single = [replace(one, batch=1) if one.batch > 1 else one for one in designs]
        each = list(dict.fromkeys(single))
        found = dict(zip(each, self._frames(each, fidelity), strict=True))
        if self.spec.accuracy:
            found = {one: self._with_accuracy(one, outcomes) for one, outcomes in found.items()}
        return [
            self._judged(design, fidelity, found[one])
            for design, one in zip(designs, single, strict=True)
        ]

    def _with_accuracy(self, design: Design, frames: Sequence[Outcome]) -> list[Outcome]:
        found = list(frames)
        if all(one.fault is not None for one in frames):
            return found
        models = self._models(design)
        for at, (source, file) in enumerate(zip(models.sources, models.files, strict=True)):
            if source.images is not None and found[at].fault is None:
                right = self._accuracies.of(source, file, design)
                self._check_labels(source.name, right)
                found[at] = found[at].with_accuracy(right)
        return found

    def _check_labels(self, model: str, found: Outcome) -> None:
        asked = [name for name in self.spec.search.objectives if name in RIGHT]
        if asked and found.fault is None and found.top1 is None:
            raise SweepError(
                f"objective {asked[0]!r}: the images of model {model!r} have no labels; give them, "
                "or take agreement (with float) or sqnr_db"
            )

    def _frames(self, designs: Sequence[Design], fidelity: Fidelity) -> list[list[Outcome]]:
        """Outcomes of one run of each model on designs, those of the store first."""
        known: dict[int, list[Outcome]] = {}
        missing: list[Asked] = []
        keys: dict[int, list[str]] = {}
        for index, design in enumerate(designs):
            if design.machine is None:
                known[index] = [Outcome(fault=design.fault)] * len(self.contents)
                continue
            try:
                models = self._models(design)
            except OtherRegionsError as error:
                fault = f"{type(error).__name__}: {error}"
                known[index] = [Outcome(fault=fault)] * len(self.contents)
                continue
            keys[index] = [
                result_key(file.stem, design, fidelity, self.limits) for file in models.files
            ]
            found = [self.store.get(key) for key in keys[index]]
            if None in found:
                missing.append(Asked(index, design, models.shared))
            else:
                known[index] = [one for one in found if one is not None]
        self.progress(fidelity, len(known), len(designs))
        batch: list[tuple[str, Outcome]] = []
        written = time.monotonic()
        try:
            with closing(evaluated(self.engine, missing, fidelity, self.limits)) as results:
                for index, result in results:
                    if isinstance(result, Exception):
                        text = f"{type(result).__name__}: {result}"
                        result = [Outcome(fault=text) for _ in self.spec.models]
                    else:
                        batch += zip(keys[index], result, strict=True)
                    known[index] = result
                    self.evaluated += len(result)
                    if time.monotonic() - written >= WRITE_S:
                        self.store.put(batch)
                        batch, written = [], time.monotonic()
                    self.progress(fidelity, len(known), len(designs))
        finally:
            self.store.put(batch)
        return [known[index] for index in range(len(designs))]

    def _models(self, design: Design) -> _Models:
        """Prepared for the design's machine and precision. Raises OtherRegionsError."""
        models = [self._model(name, design) for name in self.contents]
        files = [one.file for one in models if one.file is not None]
        for file in files:
            if file not in self._shared:
                self._shared[file] = self.engine.share(file)
        return _Models([one.source for one in models], files, [self._shared[one] for one in files])

    def _model(self, name: str, design: Design) -> PreparedModel:
        machine, precision = design.machine, design.precision_used
        assert machine is not None and precision is not None
        key = name, machine.isa, precision, machine.requantization(precision)
        known = self._prepared.setdefault(key, [])
        asks = machine_class(machine, precision)
        for one in known:
            if machine_class(one.source.machine, precision) == asks and one.serves(machine):
                found = one
                break
        else:
            content, images = self.contents[name], self.images.get(name)
            found = prepared(ModelSource(name, content, machine, precision, images), self.folder)
            known.append(found)
        found.check_regions(machine, known[0])
        return found

    def _judged(
        self, design: Design, fidelity: Fidelity, frames: Sequence[Outcome]
    ) -> Judged:
        devices = 1 if design.machine is None else design.machine.device_count
        outcomes = tuple(one.of_batch(design.batch, devices) for one in frames)
        extras = tuple(self._extras(design, outcome) for outcome in outcomes)
        values = []
        for name in self.spec.search.objectives:
            each = [
                extra[name] if name in extra else getattr(outcome, name)
                for outcome, extra in zip(outcomes, extras, strict=True)
            ]
            whole = [float(value) for value in each if value is not None]
            values.append(mean(name, whole) if len(whole) == len(each) else math.nan)
            if len(whole) == len(each) and math.isnan(values[-1]):
                fault = Outcome(fault=_no_mean(name, whole, self.spec.models))
                return self._judged(design, fidelity, [fault] * len(frames))
        meets = all(
            outcome.fault is None
            and bool(evaluate(text, {**self._names(design, outcome), **extra}, "search.require"))
            for text in self.spec.search.require
            for outcome, extra in zip(outcomes, extras, strict=True)
        )
        return Judged(design, fidelity, outcomes, extras, tuple(values), meets)

    def _names(self, design: Design, outcome: Outcome) -> dict[str, Any]:
        """What formulas and requirements can name."""
        assert design.machine is not None and design.precision_used is not None
        return {
            **design.machine.model_dump(), **outcome.to_dict(), "batch": design.batch,
            "element_bytes": ELEMENT_BYTES[design.precision_used],
        }  # fmt: skip

    def _extras(self, design: Design, outcome: Outcome) -> dict[str, float | None]:
        """What the specification's formulas make of an outcome."""
        formulas = self.spec.outcome
        if outcome.fault is not None or design.machine is None:
            return dict.fromkeys(formulas)
        names = self._names(design, outcome)
        return {
            name: number(one.formula, names, f"outcome {name!r}")
            for name, one in formulas.items()
        }

    def _rows(self, judged: Judged, on_front: bool) -> Iterable[Row]:
        design, spec = judged.design, self.spec
        left_out = () if spec.accuracy else ACCURACY
        meets = {"meets": judged.meets} if spec.search.require else {}
        for name, outcome, extra in zip(
            spec.models, judged.outcomes, judged.extras, strict=True
        ):
            values = outcome.to_dict().items()
            yield {
                "fidelity": judged.fidelity,
                "machine": design.name,
                "model": Path(name).stem if Path(name).suffix == ".onnx" else name,
                "planner": design.planner,
                "precision": design.precision_used,
                "batch": design.batch,
                **{key: value for key, value in values if key not in left_out},
                **extra,
                "keys": dict(design.changes),
                **meets,
                "on_front": on_front,
            }


def _no_mean(objective: str, values: Sequence[float], models: Sequence[str]) -> str:
    """Why an objective has no geometric mean over the models."""
    value, model = min(zip(values, models, strict=True))
    return (
        f"SweepError: objective {objective!r} is {value:g} on model {model!r}, and models are "
        "judged together by geometric means, which need values of at least 0; give a formula of "
        "such values, or sweep the models one by one"
    )
