"""The benchmark of int8 by technique."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from studies.harness.command import main
from studies.int8.study import STUDY

pytestmark = pytest.mark.relay


def test_digits_by_technique(tmp_path: Path) -> None:
    file = tmp_path / "rows.json"
    options = ["--models", "digits_lenet", "--images", "40", "--json", str(file)]
    assert main(STUDY, [*options, "--techniques", "per-tensor", "bias-corrected"]) == 0
    first, second = json.loads(file.read_text())
    assert (first["technique"], second["technique"]) == ("per-tensor", "bias-corrected")
    assert first["machine"] == "nmp-4x8-paper" and first["images"] == 40
    for row in (first, second):
        assert row["top1_float"] == row["right_float"] / 40 >= 0.9
        assert abs(row["right_npu"] - row["right_float"]) <= 1 and row["sqnr_db"] > 20
    assert second["cycles"] == pytest.approx(first["cycles"], rel=0.01)


def test_unknown_technique_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(STUDY, ["--techniques", "magic"])
    assert "unknown technique 'magic'; known: per-tensor" in capsys.readouterr().err
