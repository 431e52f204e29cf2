"""All runners by name, in the order of a table. Each is a file of this folder."""

from __future__ import annotations

import importlib
from functools import lru_cache

from tvm_npu.comparison.protocol import Runner

_FILES = {
    "stock": "stock",
    "stock-tuned": "stock_tuned",
    "onnxruntime": "onnx_runtime",
    "npu": "npu",
}


def runner_names() -> tuple[str, ...]:
    return tuple(_FILES)


@lru_cache
def runner_called(name: str) -> Runner:
    """KeyError for another name."""
    runner: Runner = importlib.import_module(f"{__name__}.{_FILES[name]}").RUNNER
    return runner
