"""`import tvm` without packages that TVM loads when they are installed and that nobody here uses.

TVM's auto-tuners import xgboost, which brings scikit-learn and SciPy: two thirds of the time that
importing TVM takes. While TVM is imported, xgboost is therefore not found. Afterwards it imports as
ever, and a process that has imported it before keeps it: TVM's own XGBoost tuners want that.
`tvm_registry` spares a quarter of what is left.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tvm_npu.runtime.tvm_registry import listed_once

UNWANTED = ("xgboost",)


def import_tvm() -> Any:
    """The module ``tvm``; ModuleNotFoundError without it."""
    if "tvm" in sys.modules:
        return sys.modules["tvm"]
    with _not_found(UNWANTED), listed_once():
        return importlib.import_module("tvm")


@contextmanager
def _not_found(names: tuple[str, ...]) -> Iterator[None]:
    """Modules ``names`` that are not imported yet cannot be, inside."""
    hidden = [name for name in names if name not in sys.modules]
    sys.modules.update(dict.fromkeys(hidden))  # type: ignore[arg-type]
    try:
        yield
    finally:
        for name in hidden:
            del sys.modules[name]
