"""`import tvm` without packages that TVM loads when they are installed and that nobody here uses.

TVM's auto-tuners import xgboost, which brings scikit-learn and SciPy: two thirds of the time that
importing TVM takes. While TVM is imported, xgboost is therefore not found. Afterwards it imports as
ever, and a process that has imported it before keeps it: TVM's own XGBoost tuners want that.
`tvm_registry` spares a quarter of what is left.

TVM makes a folder for the data of its tests in the user's home, which may be read-only.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tvm_npu.runtime.tvm_registry import listed_once

UNWANTED = ("xgboost",)
TEST_DATA = "TEST_DATA_ROOT_PATH"
"""TVM's variable of the environment."""


def import_tvm() -> Any:
    """The module ``tvm``; ModuleNotFoundError without it."""
    if "tvm" in sys.modules:
        return sys.modules["tvm"]
    with _not_found(UNWANTED), listed_once(), _folder_of_test_data():
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


@contextmanager
def _folder_of_test_data() -> Iterator[None]:
    """TVM's folder for the data of its tests can be made, or is one that exists, inside."""
    if TEST_DATA in os.environ:
        yield
        return
    try:
        Path("~/.tvm_test_data").expanduser().mkdir(parents=True, exist_ok=True)
    except (OSError, RuntimeError):  # RuntimeError: there is no home
        os.environ[TEST_DATA] = str(Path(__file__).parent)
    try:
        yield
    finally:
        os.environ.pop(TEST_DATA, None)
