"""What the cases of fuzz targets came to: rows in a file to which every run adds."""

from __future__ import annotations

import fcntl
import json
import subprocess
import time
from copy import deepcopy
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any

from tvm_npu.sim.whole_files import write_whole

SAVE_SECONDS = 20.0
_NUMBERS = ("cases", "accepted", "typed_errors", "bad", "cpu_s", "bounds_checked")


@dataclass
class Row:
    """What the cases of a target came to; ``code`` are the versions that ran them."""

    target: str
    cases: int = 0
    accepted: int = 0
    typed_errors: int = 0
    bad: int = 0
    cpu_s: float = 0.0
    bounds_checked: int = 0
    faults: list[str] = field(default_factory=list)
    code: list[str] = field(default_factory=list)

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
        sums = {name: getattr(self, name) + getattr(other, name) for name in _NUMBERS}
        code = list(dict.fromkeys([*self.code, *other.code]))
        return Row(self.target, **sums, faults=[*self.faults, *other.faults], code=code)

    def since(self, earlier: Row) -> Row:
        """What came behind ``earlier``, of the same run."""
        rest = {name: getattr(self, name) - getattr(earlier, name) for name in _NUMBERS}
        return Row(self.target, **rest, faults=self.faults[len(earlier.faults) :], code=self.code)

    def as_json(self) -> dict[str, Any]:
        return vars(self) | {"cpu_s": round(self.cpu_s, 3)}


class Kept:
    """The rows of a file (None: nowhere), to which runs, several at once too, add as they go: what
    a run did stays when it is killed."""

    def __init__(self, path: Path | None) -> None:
        self.path = path
        self.saved: dict[str, Row] = {}
        self.last = time.monotonic()

    def add(self, row: Row, now: bool = True) -> None:
        """Adds what is new in ``row``; with ``now`` False once in a while."""
        if self.path is None or (not now and time.monotonic() - self.last < SAVE_SECONDS):
            return
        new = row.since(self.saved.get(row.target, Row(row.target)))
        with open(self.path.with_name(self.path.name + ".lock"), "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            write_rows(self.path, [*rows_in(self.path), new])
        self.saved[row.target], self.last = deepcopy(row), time.monotonic()


def code_version() -> str:
    """The commit of this checkout, and whether files differ from it; without git the package's
    version."""
    command = ["git", "describe", "--always", "--dirty", "--abbrev=12"]
    folder = Path(__file__).resolve().parent
    try:
        told = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return version("tvm-npu")
    return told.stdout.strip()


def rows_in(path: Path | None) -> list[Row]:
    """Of earlier runs."""
    if path is None or not path.exists():
        return []
    return [Row(**values) for values in json.loads(path.read_bytes())]


def write_rows(path: Path, rows: list[Row]) -> None:
    """One of each target, with the sums."""
    sums: dict[str, Row] = {}
    for row in rows:
        sums[row.target] = sums[row.target].plus(row) if row.target in sums else row
    text = json.dumps([row.as_json() for row in sums.values()], indent=1) + "\n"
    write_whole(path, text.encode())
