"""Builders of models without the package that they build with."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.patience import PATIENCE_S


def test_the_error_names_the_extras() -> None:
    program = (
        "import sys\n"
        "sys.modules['onnx'] = None\n"
        "from tvm_npu.errors import MissingOnnxError\n"
        "try:\n"
        "    import tvm_npu.models.data\n"
        "except MissingOnnxError as error:\n"
        "    print(error.name, error)\n"
    )
    result = subprocess.run(
        [sys.executable, "-c", program],
        cwd=Path(__file__).parents[2], capture_output=True, text=True, timeout=PATIENCE_S,
    )  # fmt: skip
    assert result.stdout.startswith("onnx tvm_npu.models needs onnx: "), result.stderr
    assert "'.[relay]'" in result.stdout and "'.[relax]'" in result.stdout
