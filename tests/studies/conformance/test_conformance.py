"""The conformance study: a fixed part of it, its worker processes, its page."""

from __future__ import annotations

import dataclasses
import json
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest

pytest.importorskip("tvm.relay", exc_type=ImportError)
pytest.importorskip("onnxruntime")

from studies.conformance import process  # noqa: E402
from studies.conformance.backend_cases import backend_cases, run_backend_case  # noqa: E402
from studies.conformance.page import page  # noqa: E402
from studies.conformance.random_cases import run_random_case  # noqa: E402
from studies.conformance.random_models import random_model  # noqa: E402
from studies.conformance.rows import (
    CRASHED,
    LATE,
    NOT_ASKED,
    RIGHT,
    WRONG,
    Row,
    close,
    read_rows,
    sqnr_db,
)  # noqa: E402
from studies.harness.errors import StudyError  # noqa: E402

pytestmark = pytest.mark.relay

ON_THE_NPU = (
    "test_averagepool_2d_ceil",
    "test_basic_conv_with_padding",
    "test_convtranspose_pads",
    "test_maxpool_2d_same_upper",
    "test_globalaveragepool",
)
ON_THE_CPU = (
    "test_clip_default_min",
    "test_elu",
    "test_gelu_default_1",
    "test_gelu_tanh_2",
    "test_sinh",
    "test_sign",
)


@pytest.mark.parametrize("name", ON_THE_NPU)
def test_cases_with_regions_are_right(name: str) -> None:
    row = run_backend_case(name)
    assert (row.npu, row.bits_off) == (RIGHT, 0) and row.regions == 1, row


@pytest.mark.parametrize("name", ON_THE_CPU)
def test_cases_without_regions_are_right(name: str) -> None:
    row = run_backend_case(name)
    assert (row.npu, row.regions) == (RIGHT, 0), row


@pytest.mark.parametrize("seed", [0, 2])
def test_random_graphs_are_right(seed: int) -> None:
    row = run_random_case(f"random-{seed}")
    assert not row.fault and row.npu == RIGHT, row


def test_random_models_are_models_and_seeded() -> None:
    operators = set()
    for seed in range(60):
        model, x = random_model(seed)
        onnx.checker.check_model(model, full_check=True)
        again, _ = random_model(seed)
        assert model.SerializeToString() == again.SerializeToString()
        assert x.shape == tuple(
            d.dim_value for d in model.graph.input[0].type.tensor_type.shape.dim
        )
        operators |= {node.op_type for node in model.graph.node}
    assert {"Conv", "ConvTranspose", "Resize", "Concat", "Transpose", "Gemm"} <= operators


def test_there_are_many_backend_cases() -> None:
    groups = [group for group, _ in backend_cases().values()]
    assert groups.count("node") > 1000 and {"simple", "pytorch-operator"} <= set(groups)


def test_a_case_that_ends_its_process_or_hangs_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    code = {"dies": "import os; input(); os._exit(3)", "hangs": "import time; time.sleep(60)"}
    monkeypatch.setattr(process, "START_S", 3.0)
    found = {}
    for name, text in code.items():
        monkeypatch.setattr(process, "module_command", lambda _, t=text: [sys.executable, "-c", t])
        worker = process.Worker(0.1)
        found[name] = worker.run(name, "node").npu
        assert worker._process is None
    assert found == {"dies": CRASHED, "hangs": LATE}


def test_answers_are_judged() -> None:
    a = np.array([1.0, 2.0], np.float32)
    assert close(a, a + 1e-5) and not close(a, a + 0.1) and not close(a, a[:1])
    assert not close(np.array([1, 2]), np.array([1, 3]))
    assert sqnr_db(a, a) == 200 and 36 < sqnr_db(a, a * 1.015) < 37
    assert sqnr_db(a, a * np.nan) == -200


def test_the_page_names_what_is_not_right() -> None:
    right = Row("a", "node", RIGHT, RIGHT, regions=1)
    rows = [right, dataclasses.replace(right, name="b", npu=WRONG, reason="9 dB | <x>")]
    rows += [dataclasses.replace(rows[1], name="c", stock=WRONG)]
    text = page(rows, {"node": 1440})
    assert "| node | 1,440 | 3 | 1 | 3 | 2 | 1 | 0 |" in text
    unasked = dataclasses.replace(right, group="random", stock=NOT_ASKED)
    assert "| random | any number | 2 | 2 | 2 | 0 of 0 asked | 0 | 0 |" in page([unasked] * 2, {})
    assert "| `b` | wrong | 9 dB / (x) | right |" in text.partition("## Other")[0]
    assert "| `c` |" in text.partition("## By name")[2] and not rows[2].fault


def test_rows_of_earlier_slices_are_read(tmp_path: Path) -> None:
    row = Row("a", "random", NOT_ASKED, RIGHT, regions=2, sqnr_db=61.5, settings="nmp-4x8, exact")
    file = tmp_path / "slice.json"
    file.write_text(json.dumps([dataclasses.asdict(row)] * 2))
    assert read_rows(file) == [row, row]
    for text in ("", "[1]", '[{"nam": 1}]'):
        file.write_text(text)
        with pytest.raises(StudyError, match="holds no rows"):
            read_rows(file)
