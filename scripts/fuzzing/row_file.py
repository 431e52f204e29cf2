"""Rows of fuzzing in a file that several runs may add to: one for each target and commit."""

from __future__ import annotations

import fcntl
import json
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from functools import lru_cache
from pathlib import Path
from typing import Any

from tvm_npu import __version__
from tvm_npu.sim.whole_files import write_whole

ROOT = Path(__file__).resolve().parents[2]
NAMES = ("target", "commit")
"""What tells rows apart; all else is summed."""


@dataclass
class Row:
    """What the cases of a target came to; ``commit`` is empty in rows from before it was kept.
    ``cpu_s``: of the processes that make the cases and run them, without their start."""

    target: str
    commit: str = ""
    cases: int = 0
    accepted: int = 0
    typed_errors: int = 0
    bad: int = 0
    cpu_s: float = 0.0
    bounds_checked: int = 0
    faults: list[str] = field(default_factory=list)

    def count(self, found: str, cpu_s: float, checked: bool) -> None:
        self.cases += 1
        self.cpu_s += cpu_s
        self.bounds_checked += checked
        if found == "accepted":
            self.accepted += 1
        elif found.startswith("typed"):
            self.typed_errors += 1
        else:
            self.bad += 1

    def plus(self, other: Row) -> Row:
        """Of both runs."""
        sums = {name: getattr(self, name) + getattr(other, name) for name in _summed()}
        return Row(self.target, self.commit, **sums)

    def since(self, earlier: Row) -> Row:
        """What was added to ``earlier``, a copy of this row at another time."""
        more: dict[str, Any] = {"faults": self.faults[len(earlier.faults) :]}
        for name in _summed():
            if name not in more:
                more[name] = getattr(self, name) - getattr(earlier, name)
        return Row(self.target, self.commit, **more)

    def copy(self) -> Row:
        return self.plus(Row(self.target, self.commit))

    def as_json(self) -> dict[str, Any]:
        values = dict(vars(self))
        values["cpu_s"] = round(self.cpu_s, 3)
        return values


def _summed() -> list[str]:
    return [one.name for one in fields(Row) if one.name not in NAMES]


@lru_cache(maxsize=1)
def commit_of_code() -> str:
    """What git calls the code, ``-dirty`` behind it where files were changed; the package's version
    where there is no git."""
    command = ["git", "-C", str(ROOT), "describe", "--always", "--dirty"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return __version__
    return done.stdout.strip()


def rows_in(path: Path) -> list[Row]:
    """Of earlier runs; none where there is no file."""
    if not path.exists():
        return []
    return [Row(**values) for values in json.loads(path.read_bytes())]


def minutes_spent(rows: list[Row], targets: list[str]) -> dict[str, float]:
    """CPU minutes of each of the targets, of all commits."""
    spent = dict.fromkeys(targets, 0.0)
    for row in rows:
        if row.target in spent:
            spent[row.target] += row.cpu_s / 60
    return spent


def add_rows(path: Path, rows: list[Row]) -> None:
    """Adds to what stands in the file now, which other runs may have changed."""
    with _one_at_a_time(path):
        sums: dict[tuple[str, str], Row] = {}
        for row in [*rows_in(path), *rows]:
            key = row.target, row.commit
            sums[key] = sums[key].plus(row) if key in sums else row
        text = json.dumps([row.as_json() for row in sums.values()], indent=1) + "\n"
        write_whole(path, text.encode())


@contextmanager
def _one_at_a_time(path: Path) -> Iterator[None]:
    """Locks the folder: the file itself is replaced, and a lock's own file would stay behind."""
    folder = os.open(path.resolve().parent, os.O_RDONLY)
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)
        yield
    finally:
        os.close(folder)


class GrowingRow:
    """Writes a row again and again while it grows; without a ``path`` nothing."""

    def __init__(self, path: Path | None, row: Row) -> None:
        self._path, self._row = path, row
        self._written = Row(row.target, row.commit)

    def write(self) -> None:
        if self._path is None:
            return
        now = self._row.copy()
        add_rows(self._path, [now.since(self._written)])
        self._written = now
