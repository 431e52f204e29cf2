"""The benchmark of starting commands."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from studies.harness.command import main
from studies.harness.errors import StudyError
from studies.startup import study
from studies.startup.measuring import QUICK, cpu_s


def test_rows_and_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(study, "PROFILE", ["profile", "--help"])
    out = tmp_path / "rows.json"
    assert main(study.STUDY, ["--runs", "2", "--json", str(out)]) == 0
    rows = json.loads(out.read_text())
    assert [row["what"] for row in rows] == [*QUICK, "profile"]
    assert all(0 < row["least_cpu_s"] <= row["median_cpu_s"] and row["runs"] == 2 for row in rows)
    text = capsys.readouterr().out
    assert all(row["what"] in text for row in rows)


def test_a_command_that_fails_is_told() -> None:
    with pytest.raises(StudyError, match="no-such-machine"):
        cpu_s(["machines", "no-such-machine"], None)
