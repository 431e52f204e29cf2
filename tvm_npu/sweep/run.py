"""Runs a sweep: designs through their fidelities, results kept, the front found."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tvm_npu.codegen.backends import backend_of
from tvm_npu.sim.description import MachineDescription
from tvm_npu.sim.frames import Tabular
from tvm_npu.sim.limits import DEFAULT, Limits
from tvm_npu.sim.machine_parts import ELEMENT_BYTES, Precision
from tvm_npu.sweep.designs import Design, DesignSpace
from tvm_npu.sweep.engines import Engine, Processes, run_tasks
from tvm_npu.sweep.evaluate import Outcome, evaluate_all
from tvm_npu.sweep.formulas import number
from tvm_npu.sweep.front import Scores, geometric_mean, ranks, sensitivities
from tvm_npu.sweep.genetic import generations
from tvm_npu.sweep.models import model_bytes, prepared
from tvm_npu.sweep.spec import Fidelity, SweepSpec
from tvm_npu.sweep.store import Store, result_key

Row = dict[str, Any]
Progress = Callable[[str, int, int], None]
"""Called with the fidelity, designs done, and designs in all as far as known."""
WRITE_S = 0.5
"""Between two writes to the store."""


@dataclass(frozen=True)
class Judged:
    """A design at one fidelity: an outcome a model, and its scores by objective (NaN: none)."""

    design: Design
    fidelity: Fidelity
    outcomes: tuple[Outcome, ...]
    extras: tuple[dict[str, float | None], ...]
    scores: tuple[float, ...]

    def score(self, objectives: Sequence[str], name: str) -> float:
        return self.scores[objectives.index(name)]


@dataclass(frozen=True)
class SweepResult(Tabular):
    """``rows``: a row a fidelity, design and model, in the order of the designs; ``on_front`` is
    said of designs, all models together, at the last fidelity they reached. ``sensitivity``: see
    `front.sensitivities`, at the first fidelity."""

    spec: SweepSpec
    rows: tuple[Row, ...]
    sensitivity: dict[str, tuple[float, ...]]
    stages: tuple[tuple[Judged, ...], ...]
    """The designs at each fidelity."""
    evaluated: int
    """Points that were not in the store."""

    def front_designs(self) -> tuple[Judged, ...]:
        """Those of the last fidelity that no other is better than, by their first objective."""
        return tuple(sorted(_front(self.stages[-1]), key=lambda one: one.scores))

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
    run = _Run(spec, Path(store), engine or Processes(1), progress or (lambda *_: None), limits)
    try:
        return run.result()
    finally:
        run.close()


class _Run:
    def __init__(
        self, spec: SweepSpec, folder: Path, engine: Engine, progress: Progress, limits: Limits
    ) -> None:
        self.spec, self.engine, self.progress, self.limits = spec, engine, progress, limits
        self.space = DesignSpace(spec)
        self.store, self.folder = Store(folder), folder
        self.contents = {name: model_bytes(name) for name in spec.models}
        self.evaluated = 0
        self._shared: dict[Any, tuple[list[str], list[Any]]] = {}

    def close(self) -> None:
        self.engine.stop()
        self.store.close()

    def result(self) -> SweepResult:
        first, *more = self.spec.fidelity
        judged = self._first(first)
        stages = [judged]
        for fidelity in more:
            kept = [one.design for one in promoted(judged, self.spec.search.promote)]
            judged = self._judge(kept, fidelity)
            stages.append(judged)
        best = {one.design for one in _front(judged)}
        rows = [
            row
            for stage in stages
            for one in stage
            for row in self._rows(one, stage is judged and one.design in best)
        ]
        scores = np.array([one.scores for one in stages[0]]).reshape(len(stages[0]), -1)
        changes = [dict(one.design.changes) for one in stages[0]]
        return SweepResult(
            self.spec, tuple(rows), sensitivities(changes, scores), tuple(map(tuple, stages)),
            self.evaluated,
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
        """Outcomes of designs, those of the store first."""
        known: dict[int, list[Outcome]] = {}
        missing: list[int] = []
        keys: dict[int, list[str]] = {}
        tasks = []
        for index, design in enumerate(designs):
            if design.machine is None:
                known[index] = [Outcome(fault=design.fault)] * len(self.contents)
                continue
            precision = design.precision or design.machine.default_precision
            digests, shared = self._models(design.machine, precision)
            keys[index] = [
                result_key(digest, design, fidelity, self.limits) for digest in digests
            ]
            found = [self.store.get(key) for key in keys[index]]
            if None in found:
                missing.append(index)
                tasks.append((shared, design, fidelity, self.limits))
            else:
                known[index] = [one for one in found if one is not None]
        together = sorted(range(len(missing)), key=lambda at: _common(designs[missing[at]]))
        missing, tasks = [missing[at] for at in together], [tasks[at] for at in together]
        self.progress(fidelity, len(known), len(designs))
        batch: list[tuple[str, Outcome]] = []
        written = time.monotonic()
        try:
            with closing(run_tasks(self.engine, evaluate_all, tasks)) as results:
                for done, result in results:
                    index = missing[done]
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
        return [
            self._judged(design, fidelity, known[index]) for index, design in enumerate(designs)
        ]

    def _models(
        self, machine: MachineDescription, precision: Precision
    ) -> tuple[list[str], list[Any]]:
        """(digests of the models' bytes and preparation, what a worker reads them from)."""
        key = machine.isa, precision, machine.requantization(precision)
        if key not in self._shared:
            files = [
                prepared(name, content, machine, precision, self.folder)
                for name, content in self.contents.items()
            ]
            self._shared[key] = [file.stem for file in files], [
                self.engine.share(file) for file in files
            ]
        return self._shared[key]

    def _judged(
        self, design: Design, fidelity: Fidelity, outcomes: Sequence[Outcome]
    ) -> Judged:
        extras = tuple(self._extras(design, outcome) for outcome in outcomes)
        values = []
        for name in self.spec.search.objectives:
            each = [
                extra[name] if name in extra else getattr(outcome, name)
                for outcome, extra in zip(outcomes, extras, strict=True)
            ]
            whole = [float(value) for value in each if value is not None]
            values.append(geometric_mean(whole) if len(whole) == len(each) else math.nan)
        return Judged(design, fidelity, tuple(outcomes), extras, tuple(values))

    def _extras(self, design: Design, outcome: Outcome) -> dict[str, float | None]:
        """What the specification's formulas make of an outcome."""
        formulas = self.spec.outcome
        if outcome.fault is not None or design.machine is None:
            return dict.fromkeys(formulas)
        precision = design.precision or design.machine.default_precision
        names = {
            **design.machine.model_dump(), **outcome.to_dict(),
            "element_bytes": ELEMENT_BYTES[precision],
        }  # fmt: skip
        return {
            name: number(one.formula, names, f"outcome {name!r}")
            for name, one in formulas.items()
        }

    def _rows(self, judged: Judged, on_front: bool) -> Iterable[Row]:
        design = judged.design
        precision = design.precision
        if precision is None and design.machine is not None:
            precision = design.machine.default_precision
        for name, outcome, extra in zip(
            self.spec.models, judged.outcomes, judged.extras, strict=True
        ):
            yield {
                "fidelity": judged.fidelity,
                "machine": design.name,
                "model": Path(name).stem if Path(name).suffix == ".onnx" else name,
                "planner": design.planner,
                "precision": precision,
                **outcome.to_dict(),
                **extra,
                "keys": dict(design.changes),
                "on_front": on_front,
            }


def _common(design: Design) -> tuple[str, tuple[int, ...]]:
    """Designs that are alike in this have work in common."""
    machine = design.machine
    assert machine is not None
    return machine.isa, backend_of(machine).common(machine)


def promoted(judged: Sequence[Judged], promote: float | str) -> list[Judged]:
    """The front, or the best share of those that have outcomes, by rank and then by order."""
    if not isinstance(promote, float):
        return _front(judged)
    usable = sorted((rank, at) for at, rank in enumerate(_ranks(judged)) if rank >= 0)
    count = math.ceil(promote * len(usable))
    return [judged[at] for at in sorted(at for _, at in usable[:count])]


def _front(judged: Sequence[Judged]) -> list[Judged]:
    return [one for one, rank in zip(judged, _ranks(judged), strict=True) if rank == 0]


def _ranks(judged: Sequence[Judged]) -> list[int]:
    if not judged:
        return []
    scores: Scores = np.array([one.scores for one in judged], np.float64)
    result: list[int] = ranks(scores).tolist()
    return result
