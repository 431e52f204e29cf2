"""`tvm_npu.profile` and what notebooks show of it."""

from __future__ import annotations

from math import inf
from pathlib import Path

import pytest

import tvm_npu
from tests.report.small_runs import MACHINES, recorded
from tvm_npu.accuracy import Accuracy, RegionErrors
from tvm_npu.codegen.passes.layer_errors import LayerError
from tvm_npu.models.data import load_digits_calibration, load_digits_lenet
from tvm_npu.sim import frames

pytestmark = pytest.mark.relay


def test_one_call_profiles_a_model(tmp_path: Path) -> None:
    pytest.importorskip("tvm", reason="the relay extra is not installed")
    images = load_digits_calibration()[:3]
    found = tvm_npu.profile(load_digits_lenet(), "setup-a", images, precision="int16", runs=2)
    profile = found.profile
    assert (profile.machine, profile.precision, profile.runs) == ("setup-a", "int16", 2)
    assert profile.totals.macs == 16 * 9 * 64 + 32 * 16 * 9 * 16 + 128 * 64 + 64 * 10
    found.write_trace(tmp_path / "trace.json", layers="1")
    assert '"traceEvents"' in (tmp_path / "trace.json").read_text()
    for layer in profile.layers:
        assert layer.name in found._repr_html_()
    placed = profile.report._repr_html_()
    assert placed.count("<tr>") == 1 + sum(len(r.operators) for r in profile.report.regions)
    try:
        import pandas  # noqa: F401
    except ImportError:
        with pytest.raises(frames.FrameError, match="pandas"):
            found.to_dataframe()
    else:
        frame = found.to_dataframe()
        assert frame["cycles"].sum() == pytest.approx(sum(r.cycles or 0 for r in profile.layers))
    found.write_overlay(tmp_path / "model.onnx")
    assert b"npu.q_point" in (tmp_path / "model.onnx").read_bytes()
    found.write_overlay(tmp_path / "place.json", "place")
    assert '"tvmgen_default_npu_main_0"' in (tmp_path / "place.json").read_text()
    pytest.importorskip("bokeh")
    found.write_html(tmp_path / "page.html")
    assert 'id="graph"' in (tmp_path / "page.html").read_text()


@pytest.mark.parametrize("name", MACHINES)
def test_statistics_and_plans_show_themselves(name: str) -> None:
    session = recorded(name).session
    assert session.statistics is not None
    for found in (session.statistics, session.program):
        rows = found.flat_rows()
        assert [row["layer"] for row in rows] == [of.name for of in session.program.layers]
        assert found._repr_html_().count("<tr>") == 1 + len(rows)
    measured, planned = session.statistics.flat_rows(), session.program.flat_rows()
    assert sum(row["macs"] for row in measured) == session.statistics.macs
    assert sum(row["cycles"] for row in measured) == pytest.approx(session.statistics.cycles, 0.1)
    for row, layer in zip(planned, session.program.layers, strict=True):
        assert row["predicted_cycles"] == layer.predicted_cycles
        assert {key for key in row if key.startswith("plan_")} == {
            f"plan_{key}" for key in layer.plan or {}
        }


def test_accuracies_show_themselves() -> None:
    advised = LayerError("c<1", "conv", "t", ("c1",), 12.5, inf, 0.0, 1.0, 0.1, 0.5, 0.0, "int16")
    found = Accuracy(
        1, 0, 0, 0, 0, 0, 1, 9.0, 0, None, (RegionErrors("r", (advised,)),)
    )  # fmt: skip
    (row,) = found.flat_rows()
    assert (row["region"], row["own_db"], row["accumulated_db"]) == ("r", 12.5, None)
    assert "<td>c&lt;1</td>" in found._repr_html_() and "int16" in found._repr_html_()


def test_tables_of_notebooks_hold_text_not_markup() -> None:
    text = frames.html_table([{"a<b": "<i>", "n": 12345, "x": 0.25, "none": None, "is": True}])
    assert "<i>" not in text and "&lt;i&gt;" in text and "a&lt;b" in text
    assert "12,345" in text and "0.25" in text and "–" in text
    assert "<td>True</td>" in text
    assert frames.html_table([]) == "<p>nothing</p>"
