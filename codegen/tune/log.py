"""Tuning logs: one trial a line, as a flat JSON object, only ever appended to.

A line is written whole and synchronised to the disk before the next trial begins. A crash can leave
a torn last line, one without its newline: the beginning of a trial, zeros behind that or behind
whole lines. Readers drop it with a warning, a writer cuts it off. Anything else that is no trial is
an error with file and line number, and nothing is cut off a file that has one.

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

import contextlib
import fcntl
import json
import os
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import IO, Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    ValidationError,
    model_validator,
)

from tvm_npu.codegen.tune.errors import TuningLogError, TuningLogWarning
from tvm_npu.codegen.tune.space import Columns, Scalar, Space, machine_fingerprint
from tvm_npu.sim.bounded_files import MOST_TEXT_BYTES, read_bounded, read_descriptor
from tvm_npu.sim.paths import as_path
from tvm_npu.sim.texts import cause

VERSION = 1
MOST_TRIALS = 1 << 18
"""In `MOST_TEXT_BYTES`, with lines of 1300 bytes, there are some 50,000."""
LONGEST_LINE = 1 << 16
_BEGIN = f'{{"version": {VERSION}, "space": "'.encode()
"""Of every line."""
_PROBLEM, _PLAN = "problem_", "plan_"


def _scalar(value: Any) -> Any:
    if isinstance(value, dict | list):
        raise ValueError("a trial is flat")
    return value


class _Line(BaseModel):
    """What a line must hold. Columns of the layer and of the plan are the keys beyond these."""

    model_config = ConfigDict(strict=True, extra="allow")
    __pydantic_extra__: dict[str, Annotated[Any, AfterValidator(_scalar)]]

    version: Literal[1]
    space: str
    machine: str
    machine_fingerprint: str
    tuner: str
    warm: bool
    seed: Annotated[int, Field(ge=0)]
    trial: Annotated[int, Field(ge=0)]
    cycles: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None
    error: str | None

    def columns(self, prefix: str) -> tuple[tuple[str, Scalar], ...]:
        found = self.__pydantic_extra__.items()
        return tuple(sorted((k[len(prefix) :], v) for k, v in found if k.startswith(prefix)))

    @model_validator(mode="after")
    def _is_whole(self) -> _Line:
        for key in self.__pydantic_extra__:
            if not key.startswith((_PROBLEM, _PLAN)):
                raise ValueError(f"unknown key {key!r}")
        for prefix in (_PROBLEM, _PLAN):
            if not self.columns(prefix):
                raise ValueError(f"no trial: no key begins with {prefix!r}")
        if (self.cycles is None) == (self.error is None):
            raise ValueError(
                f"cycles is {self.cycles!r} and error is {self.error!r}; exactly one must be null"
            )
        return self


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
    if len(line) > LONGEST_LINE:
        raise TuningLogError(
            f"tuning log {str(path)!r}, line {number}: {len(line)} bytes; a trial has at most "
            f"{LONGEST_LINE}"
        )
    try:
        values = _Line.model_validate_json(line)
    except ValidationError as error:
        fault = _fault(error, line)
        raise TuningLogError(f"tuning log {str(path)!r}, line {number}: {fault}") from None
    return Trial(
        Subject(values.space, values.machine_fingerprint, values.columns(_PROBLEM)),
        values.machine,
        Run(values.tuner, values.warm, values.seed),
        values.trial,
        values.columns(_PLAN),
        values.cycles,
        values.error,
        number,
    )


def _fault(error: ValidationError, line: bytes) -> str:
    """The first thing that is wrong with a line."""
    first = error.errors(include_url=False)[0]
    found, reason = first["input"], first["msg"].removeprefix("Value error, ")
    key = str(first["loc"][0]) if first["loc"] else ""
    if first["type"] == "json_invalid":
        start = line[:40].decode("utf-8", "replace").rstrip("\n")
        return f"not JSON ({first['ctx']['error']}): {start!r}"
    if first["type"] == "missing":
        return f"no trial: key {key!r} is missing"
    if key == "version":
        return f"version is {found!r}; this tvm-npu reads version {VERSION}"
    if key:
        return f"{key} is {found!r}: {reason}"
    return reason if isinstance(found, dict) else f"a trial is an object, not {str(found)[:40]!r}"


def read_log(path: Path) -> tuple[Trial, ...]:
    """All trials, in order. Raises TuningLogError when the file cannot be read, a line is no trial,
    or the last one no beginning of any; warns of a torn last line."""
    path = as_path(path, "a tuning log's path", TuningLogError)
    try:
        data = read_bounded(path, MOST_TEXT_BYTES)
    except OSError as error:
        raise TuningLogError(f"cannot read tuning log {str(path)!r}: {cause(error)}") from error
    return tuple(_trials(data, path))


def _trials(data: bytes, path: Path) -> Iterator[Trial]:
    lines = data.split(b"\n", MOST_TRIALS)
    if b"\n" in lines[-1]:
        raise TuningLogError(
            f"tuning log {str(path)!r}: more than {MOST_TRIALS} lines; keep those of the layers "
            "that you tune"
        )
    for number, line in enumerate(lines[:-1], 1):
        yield trial_of(line, path, number)
    if lines[-1]:
        _check_torn(lines[-1], path, len(lines))
        warnings.warn(
            f"tuning log {str(path)!r}, line {len(lines)}: cut off after {len(lines[-1])} bytes "
            "(its run was interrupted); that trial is dropped",
            TuningLogWarning,
            stacklevel=3,
        )


def _check_torn(line: bytes, path: Path, number: int) -> None:
    """TuningLogError unless a crash while a trial was written may have left ``line``, the last."""
    written = line.rstrip(b"\0")
    if written.startswith(_BEGIN) or _BEGIN.startswith(written) and (written or number > 1):
        return
    start = line[:40].decode("utf-8", "replace")
    raise TuningLogError(
        f"tuning log {str(path)!r}, line {number}: {len(line)} bytes without a line's end that do "
        f"not begin a trial: {start!r}; name a log, or a file that is not there yet"
    )


class LogWriter:
    """Appends trials to a log, which is made when it is not there; ``trials`` are those that it
    already held. One writer at a time. Raises as `read_log` does, and TuningLogError when another
    process writes, the file cannot be written or nobody could read it then."""

    def __init__(self, path: Path) -> None:
        self.path = path = as_path(path, "a tuning log's path", TuningLogError)
        self.trials: tuple[Trial, ...] = ()
        self._file: IO[bytes] | None = None
        self._count = 0

    def __enter__(self) -> LogWriter:
        try:
            is_new = not self.path.exists()
            # Without a buffer: what could not be written is not tried again when the file closes.
            file = open(self.path, "a+b", buffering=0)  # noqa: SIM115
        except OSError as error:
            raise self._failed(error) from error
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if is_new:
                _synchronise_folder(self.path)
            file.seek(0)
            data = read_descriptor(file.fileno(), self.path, MOST_TEXT_BYTES)
            self.trials = tuple(_trials(data, self.path))
            self._count = len(self.trials)
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
        """Returns when the line is on the disk. A line that has no room there is taken back."""
        assert self._file is not None
        line, whole = trial.to_line(), os.fstat(self._file.fileno()).st_size
        self._count += 1
        if whole + len(line) > MOST_TEXT_BYTES or self._count > MOST_TRIALS:
            raise TuningLogError(
                f"tuning log {str(self.path)!r} is full: {whole} bytes, {self._count - 1} trials; "
                f"at most {MOST_TEXT_BYTES} and {MOST_TRIALS}; name another log"
            )
        try:
            written = 0
            while written < len(line):
                written += self._file.write(line[written:])
            os.fsync(self._file.fileno())
        except OSError as error:
            with contextlib.suppress(OSError):
                self._file.truncate(whole)
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
        return TuningLogError(f"cannot write tuning log {str(self.path)!r}: {cause(error)}")


def _synchronise_folder(path: Path) -> None:
    descriptor = os.open(path.absolute().parent, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
