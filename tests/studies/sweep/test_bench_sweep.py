"""The sweep benchmark on six machines."""

from __future__ import annotations

import json
import multiprocessing
import os
import time
from multiprocessing.connection import Connection
from pathlib import Path

import pytest
from joblib.externals.loky import get_reusable_executor

pytest.importorskip("distributed", reason="the dask extra is not installed")

from studies.harness.command import main
from studies.sweep import study
from studies.sweep.measuring import SHARED_MEMORY, kill_group

pytestmark = pytest.mark.relay


def test_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """On Dask with one worker and with two; what is killed, and the points, on joblib."""
    monkeypatch.setattr(study, "ENGINES", (("dask", 1), ("dask", 2)))
    monkeypatch.setattr(study, "KILLS", 1)
    file = tmp_path / "rows.json"
    assert main(study.STUDY, ["--quick", "--json", str(file)]) == 0
    rows = json.loads(file.read_text())
    points = [row for row in rows if "fidelity" in row]
    runs = [row for row in rows if "engine" in row]
    assert len(points) + len(runs) == len(rows) and len(runs) == 6
    predicted = [row for row in points if row["fidelity"] == "predicted"]
    checked = [row for row in points if row["fidelity"] == "checked"]
    assert len({row["machine"] for row in predicted}) == len(predicted) == 6
    assert checked and all(row["on_front"] and row["wrong_elements"] == 0 for row in checked)
    assert all(row["energy_uj"] is None and row["planner"] == "exact-layers" for row in points)
    empty = [run for run in runs if run["is_empty"]]
    whole = [run for run in runs[:-1] if not run["is_empty"]]
    assert len({run["rows_sha256"] for run in whole}) == 1 and len(whole) == 3
    assert len({run["rows_sha256"] for run in empty}) == 1 and len(empty) == 2
    assert empty[0]["rows_sha256"] != whole[0]["rows_sha256"]
    assert all(run["points"] == len(predicted) for run in empty)
    assert runs[-1]["points"] == len(points)
    assert 0 < runs[-1]["predicted_seconds"] < runs[-1]["seconds"]
    assert {(run["engine"], run["workers"]) for run in runs} == {
        ("joblib", 2), ("dask", 1), ("dask", 2)
    }  # fmt: skip
    said = capsys.readouterr().out
    assert "100,000 points" in said and f"{len(predicted)} points predicted in " in said
    assert "two workers of dask: " in said


def workers_of_its_own(started: Connection) -> None:
    os.setpgid(0, 0)
    started.send(get_reusable_executor(2).submit(os.getpid).result())
    time.sleep(600)


def test_a_killed_sweep_leaves_no_semaphores() -> None:
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe()
    child = context.Process(target=workers_of_its_own, args=(there,))
    child.start()
    names = f"sem.loky-{child.pid}-*"
    try:
        assert here.recv() != child.pid
        assert any(SHARED_MEMORY.glob(names))
    finally:
        was_killed = kill_group(child)
    assert was_killed and not any(SHARED_MEMORY.glob(names))
