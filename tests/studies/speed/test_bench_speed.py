"""The benchmark of planning and simulation times, on its smallest network."""

from __future__ import annotations

import json
import re
from dataclasses import fields
from pathlib import Path

import numpy as np
import pytest

from studies.harness.command import main
from studies.harness.errors import StudyError
from studies.speed import measuring, study

pytestmark = pytest.mark.relay


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("tvm", reason="the relay extra is not installed")
    for name in ("LAYERS_OF", "SIMULATED"):
        monkeypatch.setattr(study, name, "lenet")
    for name in ("NETWORK_LIMIT_S", "LAYERS_LIMIT_S", "FIRST_LIMIT_S", "SIMULATION_LIMIT_S"):
        monkeypatch.setattr(study, name, 1e6)
    monkeypatch.setattr(study, "INSTRUCTION_LIMIT_NS", 1e9)
    monkeypatch.setattr(measuring, "TURNS", 10)


def test_rows_and_tables(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "rows.json"
    words = ["--models", "lenet", "--machines", "setup-a", "--runs", "2", "--json", str(out)]
    assert main(study.STUDY, words) == 0
    rows = json.loads(out.read_text())
    assert [(row["what"], row["subject"], row["machine"], row["unit"]) for row in rows] == [
        ("import", "numba", "setup-a", "s"),
        ("first plan", "exact", "setup-a", "s"),
        ("layers", "lenet", "setup-a", "s"),
        ("network", "lenet", "setup-a", "s"),
        ("simulation", "lenet", "nmp-4x8", "s"),
        ("instruction", "addi", "nmp-4x8", "ns"),
        ("instruction", "load", "nmp-4x8", "ns"),
        ("instruction", "store", "nmp-4x8", "ns"),
    ]
    assert all(0 < row["least"] <= row["median"] and row["runs"] == 2 for row in rows)
    text = capsys.readouterr().out
    assert all(f"{row['median']:.1f}" in text for row in rows if row["unit"] == "ns")


def test_help_says_what_parts_are(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(study.STUDY, ["--help"])
    told = " ".join(capsys.readouterr().out.split())
    assert "what is measured (default: planning simulation)" in told


def test_keys_are_in_the_manual() -> None:
    manual = (Path(__file__).parents[3] / "docs" / "measuring.md").read_text("utf-8")
    table = manual.partition("## How fast planning and simulation are")[2].partition("\n## ")[0]
    named = re.findall(r"`(\w+)`", "".join(re.findall(r"^\| (`[^|]+) \|", table, re.M)))
    assert named == [field.name for field in fields(measuring.Row)]


def test_a_figure_above_its_limit_is_an_error(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(study, "SIMULATION_LIMIT_S", 1e-9)
    assert main(study.STUDY, ["--parts", "simulation", "--runs", "1"]) == 1
    assert "simulation lenet on nmp-4x8" in capsys.readouterr().err


def test_values_are_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    def wrong(self: object, inputs: tuple[object, ...]) -> list[object]:
        return [np.zeros((1, 10), np.int16) - 30_000]

    monkeypatch.setattr(measuring.Session, "run_fixed", wrong)
    with pytest.raises(StudyError, match="differs from the reference"):
        measuring.simulation("lenet", "nmp-4x8", None, 1)


def test_every_time_plans_anew(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A process that was asked before may answer from what it kept."""
    started = []
    run = measuring.subprocess.run

    def noted(command: list[str], **how: object) -> object:
        started.append(command)
        return run(command, **how)  # type: ignore[call-overload]

    monkeypatch.setattr(measuring.subprocess, "run", noted)
    (row,) = measuring.planning("network", "lenet", "setup-a", "exact", 1.0, 2, tmp_path)
    assert len(started) == 1 + row.runs == 3 and [one.name for one in tmp_path.iterdir()] == [
        "layer.pickle"
    ]
    assert row.first > 0 and row.least > 0


def test_a_process_that_fails_is_told() -> None:
    with pytest.raises(StudyError, match="no-such-machine"):
        measuring.planned_apart("no-such-machine", "exact", [], 1)
