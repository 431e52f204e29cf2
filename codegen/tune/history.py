"""What a tuning log knows, by layer."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from tvm_npu.codegen.tune.errors import TuningLogError
from tvm_npu.codegen.tune.log import Subject, Trial, read_log
from tvm_npu.codegen.tune.space import Space
from tvm_npu.sim.lazy import cached_property
from tvm_npu.sim.texts import cause


@dataclass(frozen=True)
class Measured:
    """A plan, what it took, and the line of the log that says so."""

    plan: Any
    cycles: float
    line: int


@dataclass(frozen=True, eq=False)
class History:
    """The trials of a log; equal only to itself."""

    path: Path
    trials: tuple[Trial, ...]

    @cached_property
    def by_subject(self) -> dict[Subject, tuple[Trial, ...]]:
        """The trials that have cycles, the fastest first; of equal ones the earliest."""
        found: dict[Subject, list[Trial]] = {}
        for trial in self.trials:
            if trial.cycles is not None:
                found.setdefault(trial.subject, []).append(trial)
        return {subject: tuple(sorted(trials, key=_cycles)) for subject, trials in found.items()}

    def of(self, space: Space[Any], most: int | None = None) -> list[Measured]:
        """The fastest ``most`` plans of a layer, each once, the fastest first. Raises
        TuningLogError, with the line, for a plan that does not belong to the layer."""
        return self.decoded(space, self.by_subject.get(Subject.of(space), ()), most)

    def decoded(
        self, space: Space[Any], trials: Sequence[Trial], most: int | None = None
    ) -> list[Measured]:
        found: dict[Any, Measured] = {}
        for trial in trials:
            if most is not None and len(found) == most:
                break
            try:
                plan = space.decode(dict(trial.plan))
            except ValueError as error:
                raise TuningLogError(
                    f"tuning log {str(self.path)!r}, line {trial.line}: no plan of its layer on "
                    f"machine {space.machine.name!r}: {error}"
                ) from error
            assert trial.cycles is not None
            found.setdefault(plan, Measured(plan, trial.cycles, trial.line))
        return list(found.values())


def _cycles(trial: Trial) -> float:
    assert trial.cycles is not None
    return trial.cycles


def history(path: Path) -> History:
    """The log at ``path``, read again only when the file has changed. Raises TuningLogError."""
    try:
        status = os.stat(path)
    except OSError as error:
        raise TuningLogError(f"cannot read tuning log {str(path)!r}: {cause(error)}") from error
    return _read(Path(path), status.st_mtime_ns, status.st_size)


@lru_cache(maxsize=8)
def _read(path: Path, _changed_ns: int, _size_bytes: int) -> History:
    return History(path, read_log(path))
