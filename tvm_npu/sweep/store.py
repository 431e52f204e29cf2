"""Results of sweeps by what they are results of, in a SQLite file; several sweeps may share one."""

from __future__ import annotations

import hashlib
import json
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import asdict
from functools import lru_cache
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from tvm_npu import codegen, door, sim
from tvm_npu.sim.limits import Limits
from tvm_npu.sim.texts import cause
from tvm_npu.sweep.designs import Design
from tvm_npu.sweep.outcome import Outcome
from tvm_npu.sweep.spec import Fidelity, SweepError

FILE = "results.sqlite"
_OUTCOME = TypeAdapter(Outcome)
DAMAGED = (sqlite3.Error, UnicodeDecodeError)
"""The second where SQLite's message quotes bytes of the file that are no text."""
WAIT_S = 60.0
"""For another sweep that writes."""
LONGEST = 1 << 20
"""Characters of an outcome; they have a thousand, and a message."""
LARGEST = (1 << 63) - 1
"""Of the numbers of an outcome."""
_TABLE = "CREATE TABLE results (key TEXT PRIMARY KEY, outcome TEXT) WITHOUT ROWID"


@lru_cache(maxsize=1)
def code_version() -> str:
    """A digest of all code and machine files that results depend on: other code, other results."""
    digest = hashlib.sha256()
    folders = [Path(str(package.__file__)).parent for package in (codegen, sim, door)]
    for folder in (*folders, folders[-1].parent / "accuracy"):
        for path in sorted((*folder.rglob("*.py"), *folder.rglob("*.toml"))):
            digest.update(path.read_bytes())
    return digest.hexdigest()


def result_key(model_digest: str, design: Design, fidelity: Fidelity, limits: Limits) -> str:
    """Of one model on one design. Limits make a fault of an outcome, where something is simulated:
    there other limits are another key."""
    assert design.machine is not None
    machine = design.machine.model_dump(mode="json")
    facts = [
        code_version(), model_digest, machine, design.planner, design.precision, fidelity,
        None if fidelity == "predicted" else asdict(limits),
    ]  # fmt: skip
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()


def accuracy_key(
    model_digest: str, graphs: Sequence[str], images: int | None, simulated: int
) -> str:
    """Of one model whose regions have the integer ``graphs``, by their digests, over its first
    ``images``."""
    facts = [code_version(), model_digest, "accuracy", graphs, images, simulated]
    return hashlib.sha256(json.dumps(facts).encode()).hexdigest()


class Store:
    """Writes are durable when `put` returns. Raises SweepError for a file that is no store."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / FILE
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self._connection = sqlite3.connect(self.path, timeout=WAIT_S)
        except (OSError, sqlite3.Error) as error:
            raise SweepError(
                f"cannot open the store of sweeps {str(self.path)!r}: {cause(error)}; give a "
                "folder that can be written"
            ) from error
        try:
            self._connection.execute("PRAGMA journal_mode=WAL")
            self._connection.execute(_TABLE.replace("TABLE", "TABLE IF NOT EXISTS"))
            self._connection.commit()
            self._check_schema()
        except DAMAGED as error:
            self._connection.close()
            raise self._damaged(error) from error
        except SweepError:
            self._connection.close()
            raise

    def _check_schema(self) -> None:
        """Views, triggers and computed columns are programs, which run when a table is used."""
        query = "SELECT type, name, sql FROM sqlite_master"
        for kind, name, sql in self._connection.execute(query):
            if sql != _TABLE:
                shown = " ".join(str(sql).split())[:80]
                raise self._damaged(
                    f"it has the {str(kind)[:20]} {str(name)[:40]!r} ({shown}), and only the table "
                    "'results' is read"
                )

    def _damaged(self, why: object) -> SweepError:
        return SweepError(
            f"{str(self.path)!r} is no store of sweeps: {why}; remove it, or give another folder: "
            "its results are computed again"
        )

    def get(self, key: str) -> Outcome | None:
        try:
            with closing(self._connection.cursor()) as cursor:
                query = "SELECT substr(outcome, 1, ?) FROM results WHERE key = ?"
                cursor.execute(query, (LONGEST + 1, key))
                row = cursor.fetchone()
            if row is not None and isinstance(row[0], str | bytes) and len(row[0]) > LONGEST:
                raise self._damaged(f"an outcome of more than {LONGEST} characters")
            found = None if row is None else _OUTCOME.validate_json(row[0])
        except (*DAMAGED, ValidationError) as error:
            raise self._damaged(error) from error
        for name, value in () if found is None else _numbers(found):
            least = -LARGEST if name == "sqnr_db" else 0
            if isinstance(value, int | float) and not least <= value <= LARGEST:
                raise self._damaged(
                    f"{name} is {str(value)[:30]}; it must be from {least} to {LARGEST}"
                )
        return found

    def put(self, results: Iterable[tuple[str, Outcome]]) -> None:
        """Raises SweepError for a file that cannot be written."""
        rows = [(key, _text(outcome)) for key, outcome in results]
        try:
            with self._connection:
                self._connection.executemany("INSERT OR REPLACE INTO results VALUES (?, ?)", rows)
        except DAMAGED as error:
            raise SweepError(
                f"cannot write to the store of sweeps {str(self.path)!r}: {error}; {len(rows)} "
                "results are not kept: make room, or give another folder"
            ) from error

    def close(self) -> None:
        self._connection.close()


def _numbers(outcome: Outcome) -> Iterator[tuple[str, Any]]:
    for name, value in asdict(outcome).items():
        if name != "image_cycles":
            yield name, value
    for pair in outcome.image_cycles:
        yield from (("image_cycles", value) for value in pair)


def _text(outcome: Outcome) -> str:
    values = asdict(outcome).items()
    return json.dumps({name: value for name, value in values if value not in (None, ())})
