"""Cases that fuzzing found, and some of each target: accepted, or a typed error."""

from __future__ import annotations

import json
import os
import random
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("tvm", reason="the readers of calibration files need the door")

from fuzzing import command, stores  # noqa: E402
from fuzzing.apart import outcome_apart  # noqa: E402
from fuzzing.command import main, worker  # noqa: E402
from fuzzing.json_trees import change_value  # noqa: E402
from fuzzing.parsers import seeds  # noqa: E402
from fuzzing.row_file import GrowingRow, Row, rows_in  # noqa: E402
from fuzzing.targets import TARGETS, Target, case_of, outcome  # noqa: E402

from tests.patience import PATIENCE_S

CORPUS = Path(__file__).with_name("corpus")
PARSERS = [
    pytest.param(name, marks=pytest.mark.relay if name == "tflite-partition" else ())
    for name, target in TARGETS.items() if not target.compiled
]
COUNT = 4


@pytest.mark.parametrize("name", PARSERS)
def test_cases_are_made_of_good_files(name: str) -> None:
    """Mutated rubbish is refused at the door, and nothing behind it is tried."""
    found = {outcome(TARGETS[name], seed) for seed in seeds(name)}
    assert found - {"typed Trap RUNAWAY"} == {"accepted"}


def test_changes_of_values_leave_nothing_behind() -> None:
    """Lists put into one tree were changed there, and came into the next one."""

    def found(seed: int) -> str:
        rng, values = random.Random(seed), {"a": [1, [2, 3]], "b": {"c": []}}
        for _ in range(12):
            change_value(rng, values)
        return json.dumps(values)

    first = [found(seed) for seed in range(300)]
    assert [found(seed) for seed in range(300)] == first


def test_a_run_that_accepts_nothing_is_bad(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "rows.json"

    def nothing(target: Target, row: Row, *_: object) -> None:
        row.count("typed error", 0.1, checked=False)

    monkeypatch.setattr(command, "_fuzz", nothing)
    assert main(["limits", "--json", str(path)]) == 1
    (row,) = rows_in(path)
    assert row.bad == 1 and row.commit and "no case was accepted" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("ends", "code", "counted"),
    [(("accepted", "typed Trap"), 0, (2, 1, 0)), (("typed Trap", "bad IndexError"), 0, (2, 0, 1)),
     (("accepted",), 3, (2, 1, 1))],
)  # fmt: skip
def test_kept_cases_are_run_with_checks_of_bounds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ends: tuple[str, ...], code: int,
    counted: tuple[int, int, int],
) -> None:  # fmt: skip
    """Before others; a worker that ends early has not done the next one."""
    kept = tmp_path / "own"
    kept.mkdir()
    for name in ("a", "b"):
        (kept / name).write_bytes(b"")
    asked: list[tuple[object, ...]] = []

    def worker(*arguments: object) -> subprocess.Popen[str]:
        asked.append(arguments)
        lines = [json.dumps({"ready": 1.0})]
        for name, found in zip("ab", ends, strict=False):
            path = str(kept / name)
            lines += [json.dumps({"begin": path})]
            lines += [json.dumps({"end": path, "found": found, "cpu_s": 0.5})]
        text = f"import sys; print({chr(10).join(lines)!r}); sys.exit({code})"
        return subprocess.Popen([sys.executable, "-c", text], stdout=subprocess.PIPE, text=True)

    def watch(*_: object) -> int:
        row.cpu_s, row.cases = 100.0, row.cases + command.LEAST_CASES
        return -1

    monkeypatch.setattr(command, "worker", worker)
    monkeypatch.setattr(command, "_watch", watch)
    target = Target("own", lambda rng: b"", bytes, compiled=True)
    for checked in (True, False):
        row = Row("own", "c1")
        command._fuzz(target, row, 0, 1.0, checked, tmp_path, GrowingRow(None, row))
        found = row.cases - command.LEAST_CASES, row.accepted, row.bad
        assert found == (counted if checked else (0, 0, 0))
        assert row.bounds_checked == found[0] and len(row.faults) == found[2]
    assert asked[0] == ("own", 0, 0, str(kept), True) and [one[-1] for one in asked] == [
        True, True, False
    ]  # fmt: skip
    command._fuzz(target, row, 0, 1.0, True, tmp_path / "none", GrowingRow(None, row))
    assert len(asked) == 4


def test_a_case_is_made_shorter_where_others_hang_and_crash() -> None:
    def run(data: bytes) -> None:
        if len(data) == 23:
            while True:
                pass
        if b"x" not in data:
            os.abort()
        if b"y" in data:
            raise KeyError("y")

    target = Target("own", lambda rng: b"", run)
    assert command.reduced(target, b"..x" + b"." * 40 + b"y..", "bad KeyError") == b"xy"
    assert outcome_apart(target, b"x" * 23, 0.2) == "bad hang"
    assert outcome_apart(target, b"..", 0.2) == f"bad crash, signal {int(signal.SIGABRT)}"
    assert outcome_apart(target, b"xx", 0.2) == "accepted"


def test_making_a_store_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """A trigger that counts for ever ran when the next change put a row in: the worker was silent
    before its case."""
    endless = next(text for text in stores._MORE if "BEFORE INSERT" in text)

    def change(rng: random.Random, connection: sqlite3.Connection) -> None:
        connection.execute(endless)
        connection.execute("INSERT INTO results VALUES ('a', 'b')")

    monkeypatch.setattr(stores, "_change", change)
    draws = random.Random(2)  # a change of tables, not of bytes
    (data, _) = stores.store_file()
    target = Target("own", lambda rng: b"", lambda seed: stores.changed_store(draws, data))
    assert outcome_apart(target, b"", 2.0) == "accepted"


@pytest.mark.parametrize("how", ["link", "open"])
def test_machine_code_of_others_is_not_run(
    how: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(command.tempfile, "gettempdir", lambda: str(tmp_path))
    assert command._own_folder() == command._own_folder()
    folder = command._own_folder()
    folder.rmdir()
    if how == "link":
        (tmp_path / "elsewhere").mkdir()
        folder.symlink_to(tmp_path / "elsewhere")
    else:
        folder.mkdir()
        folder.chmod(0o777)
    with pytest.raises(SystemExit, match="is not a folder that you alone can write; remove it"):
        command._own_folder()


def test_there_is_a_corpus() -> None:
    assert {folder.name for folder in CORPUS.iterdir()} <= set(TARGETS)


@pytest.mark.parametrize("name", PARSERS)
def test_parsers(name: str) -> None:
    target = TARGETS[name]
    found = [path.read_bytes() for path in sorted((CORPUS / name).glob("*"))]
    for data in [*found, *(case_of(target, seed) for seed in range(COUNT))]:
        assert not outcome(target, data).startswith("bad")


@pytest.mark.parametrize("name", [name for name in TARGETS if (CORPUS / name).exists()])
def test_kept_cases_in_their_own_process(name: str) -> None:
    if not TARGETS[name].compiled:
        return
    process = worker(name, 0, 0, str(CORPUS / name), False)
    lines = [json.loads(line) for line in process.communicate(timeout=PATIENCE_S)[0].splitlines()]
    found = [line["found"] for line in lines if "end" in line]
    assert len(found) == len(list((CORPUS / name).iterdir())) and process.returncode == 0
    assert not [one for one in found if one.startswith("bad")]
