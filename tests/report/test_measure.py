"""`tvm_npu.profile` and what notebooks show of it."""

from __future__ import annotations

from pathlib import Path

import pytest

import tvm_npu
from tvm_npu.models.data import load_digits_calibration, load_digits_lenet
from tvm_npu.report import frames

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
        with pytest.raises(frames.ReportError, match="pandas"):
            found.to_dataframe()
    else:
        frame = found.to_dataframe()
        assert frame["cycles"].sum() == pytest.approx(sum(r.cycles or 0 for r in profile.layers))
    pytest.importorskip("bokeh")
    found.write_html(tmp_path / "page.html")
    assert 'id="graph"' in (tmp_path / "page.html").read_text()


def test_tables_of_notebooks_hold_text_not_markup() -> None:
    text = frames.html_table([{"a<b": "<i>", "n": 12345, "x": 0.25, "none": None}])
    assert "<i>" not in text and "&lt;i&gt;" in text and "a&lt;b" in text
    assert "12,345" in text and "0.25" in text and "–" in text
    assert frames.html_table([]) == "<p>nothing</p>"
