"""The notebook runs, and shows what it holds."""

from __future__ import annotations

import json

import pytest

pytest.importorskip("tvm.relay", exc_type=ImportError)
pytest.importorskip("pandas")
from run_notebook import NOTEBOOK, run_cells  # noqa: E402

from tvm_npu.runtime import clear_sessions  # noqa: E402

pytestmark = pytest.mark.relay


def test_cells_show_what_they_hold() -> None:
    clear_sessions()  # of other tests in this process
    notebook = json.loads(NOTEBOOK.read_text("utf-8"))
    shown = 0
    for cell, outputs in run_cells(notebook["cells"]):
        shown += sum("text/html" in output.get("data", {}) for output in outputs)
        kept = cell["outputs"]
        if "varies" in cell["metadata"].get("tags", ()):
            assert [one["output_type"] for one in outputs] == [one["output_type"] for one in kept]
            continue
        for one in outputs:
            one.pop("execution_count", None)
        for one in kept:
            one.pop("execution_count", None)
        assert outputs == kept, "run scripts/run_notebook.py if that is meant"
    assert shown == 5
