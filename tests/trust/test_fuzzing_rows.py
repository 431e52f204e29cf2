"""The file of `scripts/fuzz --json`: rows grow, and runs add to each other's."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

pytest.importorskip("tvm", reason="the readers of calibration files need the door")

from fuzzing import row_file  # noqa: E402
from fuzzing.command import _turns, main  # noqa: E402
from fuzzing.row_file import (  # noqa: E402
    GrowingRow,
    Row,
    add_rows,
    commit_of_code,
    minutes_spent,
    rows_in,
)
from fuzzing.targets import TARGETS  # noqa: E402

from tests.patience import eventually  # noqa: E402

ROOT = Path(__file__).resolve().parents[2]


def test_rows_of_a_target_and_commit_are_added(tmp_path: Path) -> None:
    path = tmp_path / "rows.json"
    one = Row("elf", "c1", cases=3, accepted=1, typed_errors=1, bad=1, cpu_s=0.5, faults=["a"])
    two = Row("elf", "c1", cases=2, accepted=2, cpu_s=0.25)
    later = Row("elf", "c2", cases=1)
    add_rows(path, [one])
    add_rows(path, [later, two])
    whole = Row("elf", "c1", cases=5, accepted=3, typed_errors=1, bad=1, cpu_s=0.75, faults=["a"])
    assert rows_in(path) == [whole, later]
    path.write_text('{"elf": 3}')
    with pytest.raises(SystemExit):
        main(["limits", "--minutes", "0", "--json", str(path)])


def test_a_growing_row_is_counted_once(tmp_path: Path) -> None:
    path, row = tmp_path / "rows.json", Row("elf", "c1")
    kept = GrowingRow(path, row)
    for fault in ("a", "b"):
        row.count(f"bad {fault}", 0.5, True)
        row.faults.append(fault)
        kept.write()
        assert rows_in(path) == [row]
    kept.write()
    assert rows_in(path) == [row] and row.faults == ["a", "b"]


def test_runs_at_once_lose_nothing(tmp_path: Path) -> None:
    path = tmp_path / "rows.json"

    def run(name: str) -> None:
        for _ in range(50):
            add_rows(path, [Row(name, "c1", cases=1), Row("both", "c1", cases=1)])

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(run, "abcd"))
    found = {row.target: row.cases for row in rows_in(path)}
    assert found == {"a": 50, "b": 50, "c": 50, "d": 50, "both": 200}


def test_a_killed_run_keeps_its_rows(tmp_path: Path) -> None:
    path = tmp_path / "rows.json"
    paths = [str(ROOT), str(ROOT / "scripts"), os.environ.get("PYTHONPATH", "")]
    command = "import sys, fuzzing.command as c; c.WRITTEN_EVERY_S = 0.0; sys.exit(c.main())"
    process = subprocess.Popen(
        [sys.executable, "-W", "ignore", "-c", command, "limits", "--minutes", "9",
         "--json", str(path), "--corpus", str(tmp_path)],
        env=dict(os.environ, PYTHONPATH=os.pathsep.join(paths)), stdout=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        assert eventually(lambda: path.exists() or process.poll() is not None)
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
    (row,) = rows_in(path)
    assert row.target == "limits" and row.cases > 0 and row.commit == commit_of_code()


def test_rows_name_the_code(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    command = ["git", "-C", str(ROOT), "describe", "--always", "--dirty"]
    commit_of_code.cache_clear()
    try:
        told = subprocess.run(command, capture_output=True, text=True).stdout.strip()
        assert commit_of_code() == (told or row_file.__version__)
        commit_of_code.cache_clear()
        monkeypatch.setattr(row_file, "ROOT", tmp_path)  # no repository
        assert commit_of_code() == row_file.__version__
    finally:
        commit_of_code.cache_clear()
    assert json.loads(json.dumps(Row("elf", "c1").as_json()))["commit"] == "c1"


def test_up_to_fills_the_file_evenly(tmp_path: Path) -> None:
    path, other = tmp_path / "rows.json", Row("elf", "c1", cases=9, cpu_s=1.5)
    add_rows(path, [Row("limits", "c1", cases=5, cpu_s=0.75), other])
    assert main(["limits", "--up-to", "0.0125", "--json", str(path)]) == 0
    assert rows_in(path)[:2] == [Row("limits", "c1", cases=5, cpu_s=0.75), other]  # enough
    assert len(rows_in(path)) == 2
    assert main(["limits", "--up-to", "0.015", "--json", str(path)]) == 0
    _, _, more = rows_in(path)
    assert more.target == "limits" and more.commit == commit_of_code() and more.cases >= 50
    assert minutes_spent(rows_in(path), ["limits"])["limits"] >= 0.015
    chosen = [TARGETS[name] for name in ("elf", "limits", "assembler-nmp")]
    turns = _turns(chosen, 1.0, 2.0, path)
    target, minutes = next(turns)
    assert (target.name, minutes) == ("assembler-nmp", 1.0)
    add_rows(path, [Row("assembler-nmp", "c2", cpu_s=90.0), Row("limits", "c2", cpu_s=200.0)])
    target, minutes = next(turns)
    assert target.name == "elf" and minutes == 1.0
    add_rows(path, [Row("elf", "c2", cpu_s=110.0)])
    assert next(turns)[0].name == "assembler-nmp"
    with pytest.raises(SystemExit):
        main(["limits", "--up-to", "1"])
