"""`tvm_npu.profile` and what notebooks show of it."""

from __future__ import annotations

import io
import re
from math import inf
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import tvm_npu
from tests.one_node import model_of, values
from tests.report.small_runs import MACHINES, recorded
from tvm_npu import models
from tvm_npu.accuracy import Accuracy, RegionErrors
from tvm_npu.codegen.passes.layer_errors import LayerError
from tvm_npu.models.data import load_digits_calibration, load_digits_lenet
from tvm_npu.sim import frames
from tvm_npu.sim.machine_file import load_machine

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


def reshaped(convolved: bool) -> onnx.ModelProto:
    """One image of four channels becomes four of one on the CPU, for a region of their own; that of
    a convolution comes before if ``convolved``."""
    shape = numpy_helper.from_array(np.array([4, 1, 8, 8], np.int64), "shape")
    weights = {"w1": (4, 4, 3, 3), "w2": (4, 1, 3, 3)}
    pads = {"pads": [1, 1, 1, 1]}
    first = helper.make_node("Conv", ["x", "w1"], ["a"], name="c1", **pads)
    nodes = [
        *([first] if convolved else []),
        helper.make_node("Sin", ["a" if convolved else "x"], ["b"]),
        helper.make_node("Reshape", ["b", "shape"], ["c"]),
        helper.make_node("Conv", ["c", "w2"], ["y"], name="c2", **pads),
    ]
    graph = helper.make_graph(
        nodes, "two",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, (1, 4, 8, 8))],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, (4, 4, 8, 8))],
        [shape, *(numpy_helper.from_array(values(*of), name) for name, of in weights.items())],
    )  # fmt: skip
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)


@pytest.fixture(scope="module")
def two_regions() -> tvm_npu.ProfiledModel:
    pytest.importorskip("tvm", reason="the relay extra is not installed")
    return tvm_npu.profile(reshaped(convolved=True), "nmp-4x8")


def test_images_are_those_that_the_model_takes(two_regions: tvm_npu.ProfiledModel) -> None:
    sequence = models.build_recurrent("lstm", hidden=8, layers=1, steps=6)
    one_region = tvm_npu.profile(reshaped(convolved=False), "nmp-4x8")
    for found, images_run in (
        (two_regions, [1, 4]), (one_region, [4]), (tvm_npu.profile(sequence, "snowflake-1cc"), [1])
    ):  # fmt: skip
        profile = found.profile
        assert [run.runs[0].runs for run in found.runs] == images_run
        assert profile.images_per_run == 1 and profile.totals.time_us is not None
        assert profile.totals.frames_per_s == pytest.approx(1e6 / profile.totals.time_us)


def test_dram_of_the_largest_region_comes_with_its_own_parts(
    two_regions: tvm_npu.ProfiledModel,
) -> None:
    from rich.console import Console

    from tvm_npu.cli.profile_tables import print_profile

    totals = two_regions.profile.totals
    programs = list(two_regions.programs.values())
    largest = max(programs, key=lambda one: one.size_bytes)
    assert totals.dram_peak_bytes == largest.size_bytes
    parts = {segment.value: size.size_bytes for segment, size in largest.segments.items()}
    assert totals.dram_peak_segments == parts and two_regions.profile.dram_bytes != parts
    console = Console(file=io.StringIO(), width=200)
    print_profile(two_regions.profile, console)
    (line,) = re.findall(r"^DRAM: .*", console.file.getvalue(), re.M)  # type: ignore[attr-defined]
    said = [int(one.replace(",", "")) for one in re.findall(r"[\d,]*\d", line)]
    assert "for the largest region" in line and said[0] == sum(said[1:]) == largest.size_bytes


@pytest.mark.parametrize("operator", ["Conv", "Gemm"])
def test_no_use_of_the_clusters_beats_the_bound(operator: str) -> None:
    """Nor that of images, whose batch the clusters need not fill."""
    pytest.importorskip("tvm", reason="the relay extra is not installed")
    machine = load_machine("snowflake-4cc")
    two = machine.model_copy(update={"name": "own", "devices": 2})
    bounds, least = {}, {}
    for where, batch in ((machine, 1), (machine, 4), (machine, 5), (two, 5)):
        if operator == "Conv":
            model = model_of(operator, values(batch, 64, 8, 8), values(64, 64, 1, 1))
        else:
            model = model_of(operator, values(batch, 512), values(512, 512), transB=1)
        key = where.name, batch
        found = [
            tvm_npu.profile(model, where, planner="snowflake", images=images).profile
            for images in ("together", "apart")
        ]
        assert [one.images_per_run for one in found] == [batch, batch]
        together, apart = (one.totals.bound_cycles for one in found)
        assert together is not None and together == pytest.approx(apart), key
        bounds[key] = together
        least[key] = min(one.totals.cycles or 0.0 for one in found)
        assert together < least[key], key
    one, four = bounds[machine.name, 1], bounds[machine.name, 4]
    assert bounds[machine.name, 5] > four > one > four / 4
    # three images on one of the devices, in one run, as those of a cluster each
    assert one < bounds["own", 5] < four
    # a whole run of four: weights come once
    assert four < 1.05 * one if operator == "Gemm" else four > 2 * one


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
