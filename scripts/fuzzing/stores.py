"""Stores of sweeps as other people may hand them on: other outcomes, other tables, other bytes."""

from __future__ import annotations

import json
import random
import sqlite3
import tempfile
from contextlib import closing
from functools import lru_cache
from pathlib import Path

from fuzzing.json_trees import change_value
from fuzzing.mutation import changed

STORE_KEYS = tuple(digit * 64 for digit in "0123")
"""Of the outcomes in seeds."""
MOST_STEPS = 1_000_000
"""Of SQLite's machine, for one change."""
_COLUMNS = (
    "key TEXT PRIMARY KEY, outcome TEXT", "key TEXT, outcome TEXT", "key TEXT PRIMARY KEY",
    "outcome TEXT, key TEXT PRIMARY KEY", "key BLOB PRIMARY KEY, outcome BLOB, more INT",
    "key TEXT PRIMARY KEY, outcome TEXT CHECK (length(outcome) < 5)",
    "key TEXT PRIMARY KEY, outcome TEXT AS (hex(zeroblob(20000000)))",
    "key TEXT PRIMARY KEY COLLATE NOCASE, outcome TEXT NOT NULL DEFAULT '{}'",
)  # fmt: skip
_VIEWS = (
    "SELECT '0' AS key, '{}' AS outcome",
    "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) "
    "SELECT '' AS key, '{}' AS outcome FROM n WHERE i < 0",
    "SELECT printf('%064d', 0) AS key, hex(zeroblob(40000000)) AS outcome",
    "SELECT * FROM results",
    "SELECT load_extension('x') AS key, 1 AS outcome",
)
_MORE = (
    "CREATE TRIGGER t AFTER INSERT ON results BEGIN SELECT RAISE(FAIL, 'no'); END",
    "CREATE TRIGGER t AFTER INSERT ON results BEGIN DELETE FROM results; END",
    "CREATE TRIGGER t BEFORE INSERT ON results BEGIN WITH RECURSIVE n(i) AS "
    "(SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT max(i) FROM n; END",
    "CREATE UNIQUE INDEX i ON results (outcome)", "CREATE TABLE other (a, b)",
    "CREATE VIEW v AS SELECT 1", "PRAGMA user_version = 7", "PRAGMA application_id = 9",
)
_VALUES = (None, 5, 2.5, b"\xff\xfe", "", "{}", "[]", "null", "1", '{"cycles": 1e999}')


@lru_cache(maxsize=1)
def store_file() -> tuple[bytes, ...]:
    """A store with outcomes, and one without."""
    from tvm_npu.sweep.outcome import Outcome
    from tvm_npu.sweep.store import FILE, Store

    outcomes = (
        Outcome(1000.0, 0.5, 4096, 1 << 20), Outcome(8.5, 0.25, 64, 1 << 10, wrong_elements=0),
        Outcome(fault="PlanningError: no room"),
    )  # fmt: skip
    found = []
    for rows in (list(zip(STORE_KEYS, outcomes, strict=False)), []):
        with tempfile.TemporaryDirectory() as name:
            with closing(Store(Path(name))) as store:
                store.put(rows)
            found.append((Path(name) / FILE).read_bytes())
    return tuple(found)


def changed_store(rng: random.Random, data: bytes) -> bytes:
    """A store whose outcomes or tables are others, in a valid file; now and then its bytes."""
    if rng.random() < 0.25:
        return changed(rng, data)
    with tempfile.TemporaryDirectory() as name:
        path = Path(name) / "fuzz.sqlite"
        path.write_bytes(data)
        with closing(sqlite3.connect(path)) as connection:
            connection.execute("PRAGMA journal_mode=DELETE")
            connection.set_progress_handler(lambda: True, MOST_STEPS)  # triggers may never end
            for _ in range(rng.choice((1, 1, 2, 3))):
                try:
                    _change(rng, connection)
                    connection.commit()
                except sqlite3.Error:  # a change before it took away what this one changes
                    connection.rollback()
        return path.read_bytes()


def _change(rng: random.Random, connection: sqlite3.Connection) -> None:
    choice = rng.random()
    if choice < 0.6:
        connection.execute(
            "INSERT OR REPLACE INTO results VALUES (?, ?)",
            (rng.choice(STORE_KEYS), _outcome(rng, connection)),
        )
    elif choice < 0.75:
        connection.execute("DROP TABLE results")
        rest = rng.choice(("", " WITHOUT ROWID"))
        connection.execute(f"CREATE TABLE results ({rng.choice(_COLUMNS)}){rest}")
        connection.executemany(
            "INSERT INTO results (key) VALUES (?)", [(key,) for key in STORE_KEYS]
        )
    elif choice < 0.85:
        connection.execute("DROP TABLE results")
        connection.execute(f"CREATE VIEW results AS {rng.choice(_VIEWS)}")
    else:
        connection.execute(rng.choice(_MORE))


def _outcome(rng: random.Random, connection: sqlite3.Connection) -> object:
    """An outcome with values changed, or what is none."""
    rows = [row[0] for row in connection.execute("SELECT outcome FROM results LIMIT 9")]
    texts = [text for text in rows if isinstance(text, str) and text.startswith('{"')]
    if not texts or rng.random() < 0.15:
        return rng.choice(_VALUES)
    text = rng.choice(texts)
    if rng.random() < 0.2:
        return changed(rng, text.encode(), 1 << 16)
    values = json.loads(text)
    for _ in range(rng.choice((1, 1, 2))):
        change_value(rng, values)
    return json.dumps(values)
