"""Tuning logs: one trial a line, as a flat JSON object, only ever appended to.

A line is written whole and synchronised to the disk before the next trial begins. A crash can leave
a torn last line (one without its newline): readers drop it with a warning, a writer cuts it off.
Anything else that is no trial is an error with file and line number.

| key | meaning |
| --- | --- |
| `version` | `VERSION` |
| `space` | what sort of plans: `Space.kind` |
| `machine`, `machine_fingerprint` | name; digits of all that a run depends on |
| `tuner`, `warm`, `seed`, `trial` | the run that a trial belongs to, and its number, from 0 on |
| `problem_...` | the layer |
| `plan_...` | the plan |
| `cycles`, `error` | what the machine took, or why it could not be measured; the other is null |
"""

from __future__ import annotations

import fcntl
import json
import os
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from math import isfinite
from pathlib import Path
from types import TracebackType
from typing import IO, Any

from tvm_npu.codegen.tune.errors import TuningLogError, TuningLogWarning
from tvm_npu.codegen.tune.space import Columns, Scalar, Space, machine_fingerprint

VERSION = 1
_PROBLEM, _PLAN = "problem_", "plan_"
_KEYS: dict[str, tuple[type, ...]] = {
    "version": (int,),
    "space": (str,),
    "machine": (str,),
    "machine_fingerprint": (str,),
    "tuner": (str,),
    "warm": (bool,),
    "seed": (int,),
    "trial": (int,),
    "cycles": (int, float, type(None)),
    "error": (str, type(None)),
}


@dataclass(frozen=True)
class Subject:
    """What a trial is about: a layer on a machine."""

    space: str
    machine_fingerprint: str
    problem: tuple[tuple[str, Scalar], ...]

    @staticmethod
    def of(space: Space[Any]) -> Subject:
        problem = tuple(sorted(space.problem.items()))
        return Subject(space.kind, machine_fingerprint(space.machine), problem)


@dataclass(frozen=True)
class Run:
    """What makes tuning of a subject repeatable."""

    tuner: str
    warm: bool
    seed: int


@dataclass(frozen=True)
class Trial:
    """One measured plan, as columns; ``cycles`` None: ``error`` says why. ``line`` is that of the
    log, 0 for a trial that was not read."""

    subject: Subject
    machine: str
    run: Run
    number: int
    plan: tuple[tuple[str, Scalar], ...]
    cycles: float | None
    error: str | None = None
    line: int = 0

    def to_line(self) -> bytes:
        values: Columns = {
            "version": VERSION,
            "space": self.subject.space,
            "machine": self.machine,
            "machine_fingerprint": self.subject.machine_fingerprint,
            "tuner": self.run.tuner,
            "warm": self.run.warm,
            "seed": self.run.seed,
            "trial": self.number,
            **{_PROBLEM + key: value for key, value in self.subject.problem},
            **{_PLAN + key: value for key, value in self.plan},
            "cycles": self.cycles,
            "error": self.error,
        }
        return json.dumps(values, allow_nan=False).encode() + b"\n"


def trial_of(line: bytes, path: Path, number: int) -> Trial:
    """One line of a log. TuningLogError, which names ``path`` and line ``number``, for anything
    else."""

    def wrong(what: str) -> TuningLogError:
        return TuningLogError(f"tuning log {str(path)!r}, line {number}: {what}")

    try:
        values = json.loads(line)
    except (UnicodeDecodeError, json.JSONDecodeError) as fault:
        start = line[:40].decode("utf-8", "replace").rstrip("\n")
        raise wrong(f"not JSON ({fault}): {start!r}") from None
    except RecursionError:
        raise wrong("not a trial: JSON nested too deeply") from None
    if not isinstance(values, dict):
        raise wrong(f"a trial is an object; this is {_kind(values)}")
    version = values.get("version")
    if "version" in values and version != VERSION:
        raise wrong(f"version is {version!r}; this tvm-npu reads version {VERSION}")
    for key, types in _KEYS.items():
        if key not in values:
            raise wrong(f"no trial: key {key!r} is missing")
        value = values[key]
        if not isinstance(value, types) or isinstance(value, bool) > (bool in types):
            raise wrong(f"{key} is {value!r}, {_kind(value)}")
    for key, value in values.items():
        if key not in _KEYS and not key.startswith((_PROBLEM, _PLAN)):
            raise wrong(f"unknown key {key!r}")
        if isinstance(value, dict | list):
            raise wrong(f"{key} is {_kind(value)}; a trial is flat")
    for key in ("seed", "trial"):
        if values[key] < 0:
            raise wrong(f"{key} is {values[key]}; at least 0")
    cycles, error = values["cycles"], values["error"]
    if (cycles is None) == (error is None):
        raise wrong(f"cycles is {cycles!r} and error is {error!r}; exactly one must be null")
    if cycles is not None and not (isfinite(cycles) and cycles > 0):
        raise wrong(f"cycles is {cycles!r}; a number above 0")

    def part(prefix: str) -> tuple[tuple[str, Scalar], ...]:
        found = {k[len(prefix) :]: v for k, v in values.items() if k.startswith(prefix)}
        if not found:
            raise wrong(f"no trial: no key begins with {prefix!r}")
        return tuple(sorted(found.items()))

    return Trial(
        Subject(values["space"], values["machine_fingerprint"], part(_PROBLEM)),
        values["machine"],
        Run(values["tuner"], values["warm"], values["seed"]),
        values["trial"],
        part(_PLAN),
        None if cycles is None else float(cycles),
        error,
        number,
    )


def _kind(value: object) -> str:
    kinds = {dict: "an object", list: "a list", str: "a text", bool: "a truth value"}
    return kinds.get(type(value), "null" if value is None else "a number")


def read_log(path: Path) -> tuple[Trial, ...]:
    """All trials, in order. Raises TuningLogError when the file cannot be read or a line is no
    trial; warns of a torn last line."""
    try:
        data = path.read_bytes()
    except OSError as error:
        reason = error.strerror or error
        raise TuningLogError(f"cannot read tuning log {str(path)!r}: {reason}") from error
    return tuple(_trials(data, path))


def _trials(data: bytes, path: Path) -> Iterator[Trial]:
    lines = data.split(b"\n")
    for number, line in enumerate(lines[:-1], 1):
        yield trial_of(line, path, number)
    if lines[-1]:
        warnings.warn(
            f"tuning log {str(path)!r}, line {len(lines)}: cut off after {len(lines[-1])} bytes "
            "(its run was interrupted); that trial is dropped",
            TuningLogWarning,
            stacklevel=3,
        )


class LogWriter:
    """Appends trials to a log, which is made when it is not there; ``trials`` are those that it
    already held. One writer at a time. Raises as `read_log` does, and TuningLogError when another
    process writes or the file cannot be written."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.trials: tuple[Trial, ...] = ()
        self._file: IO[bytes] | None = None

    def __enter__(self) -> LogWriter:
        try:
            is_new = not self.path.exists()
            file = open(self.path, "a+b")  # noqa: SIM115
        except OSError as error:
            raise self._failed(error) from error
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if is_new:
                _synchronise_folder(self.path)
            file.seek(0)
            data = file.read()
            self.trials = tuple(_trials(data, self.path))
            whole = data.rfind(b"\n") + 1
            if whole < len(data):
                file.truncate(whole)
                os.fsync(file.fileno())
        except BlockingIOError:
            file.close()
            raise TuningLogError(
                f"tuning log {str(self.path)!r} is being written by another process"
            ) from None
        except OSError as error:
            file.close()
            raise self._failed(error) from error
        except BaseException:
            file.close()
            raise
        self._file = file
        return self

    def append(self, trial: Trial) -> None:
        """Returns when the line is on the disk."""
        assert self._file is not None
        try:
            self._file.write(trial.to_line())
            self._file.flush()
            os.fsync(self._file.fileno())
        except OSError as error:
            raise self._failed(error) from error

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        assert self._file is not None
        self._file.close()
        self._file = None

    def _failed(self, error: OSError) -> TuningLogError:
        reason = error.strerror or error
        return TuningLogError(f"cannot write tuning log {str(self.path)!r}: {reason}")


def _synchronise_folder(path: Path) -> None:
    descriptor = os.open(path.absolute().parent, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
