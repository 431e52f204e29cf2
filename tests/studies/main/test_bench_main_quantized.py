"""The main benchmark's quantized models."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from studies.harness.command import main, make_parser
from studies.main.study import STUDY
from tvm_npu.sim.machine_file import load_machine

pytest.importorskip("onnxruntime")
pytestmark = pytest.mark.relay
NAME = "digits_lenet_qdq"


def test_digits_quantized_by_onnxruntime(tmp_path: Path) -> None:
    file = tmp_path / "rows.json"
    options = ["--models", NAME, "--machine", "nmp-4x8-scale", "--json", str(file)]
    assert main(STUDY, options) == 0
    (row,) = json.loads(file.read_text())
    assert row["precision"] == "source" and "error" not in row and row["top1_float"] is None
    assert row["bit_mismatches"] == 0 and row["regions"] == 1 and row["npu_mac_share"] == 1.0
    assert row["cycles"] > 1000 and row["top1_npu"] == row["top1_source"] > 0.9
    assert row["within_one_step"] > 0.999 and row["agreement"] == 1.0
    assert 0.99 < row["source_within_one_step"] <= 1.0


def test_q_points_are_farther_than_a_step() -> None:
    from studies.main.worker import measure_source

    row = measure_source(NAME, load_machine("nmp-4x8-int8"))
    assert 0.3 < row["within_one_step"] < 0.99 and 20 < row["sqnr_db"] < 40
    assert abs(row["top1_npu"] - row["top1_source"]) < 0.03


def test_which_rows_there_are() -> None:
    def keys(*arguments: str) -> set[tuple[str, ...]]:
        options = make_parser(STUDY).parse_args(arguments)
        return {part.key for part in STUDY.parts(options)}

    own = {(NAME, machine, "source") for machine in ("nmp-4x8-scale", "nmp-4x8-int8")}
    assert own <= keys("--precision", "source") == keys("--groups", "quantized")
    assert {key[2] for key in keys("--precision", "source")} == {"source"}
    mixed = {("lenet", "stock"), ("lenet", "nmp-4x8", "int16")}
    assert keys("--models", "lenet", NAME) == own | mixed
