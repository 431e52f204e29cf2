"""What TVM itself says to users of an NPU: advice that they can follow, and no other."""

from __future__ import annotations

import inspect
import logging
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("tvm.relay", exc_type=ImportError)
from tvm.relay.backend import te_compiler  # noqa: E402

from tests.patience import PATIENCE_S
from tvm_npu.door.models import build_onnx  # noqa: E402
from tvm_npu.models.data import load_digits_calibration, load_digits_lenet  # noqa: E402

pytestmark = pytest.mark.relay
ADVICE = "One or more operators have not been tuned."
PROGRAM = """
import sys, numpy, tvm
from tvm.contrib import graph_executor
executor = graph_executor.GraphModule(tvm.runtime.load_module(sys.argv[1])["default"](tvm.cpu()))
executor.run(image=numpy.zeros((1, 1, 8, 8), "float32"))
"""


def test_a_library_without_its_runtime_says_what_to_import(tmp_path: Path) -> None:
    images = load_digits_calibration()[:2]
    path = tmp_path / "digits.so"
    build_onnx(load_digits_lenet(), calibration=np.asarray(images)).library.export_library(path)
    result = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(path)],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
    )
    assert result.returncode == 1
    assert "Cannot find function tvm_npu.run (import tvm_npu.runtime first)" in result.stderr


def test_nobody_is_told_to_tune_the_cpu(caplog: pytest.LogCaptureFixture) -> None:
    logger = te_compiler.autotvm_logger
    assert ADVICE in inspect.getsource(te_compiler)
    with caplog.at_level(logging.WARNING, logger.name):
        logger.warning(f"{ADVICE} Please tune your model.")
        logger.warning("something else")
    assert [record.message for record in caplog.records] == ["something else"]
