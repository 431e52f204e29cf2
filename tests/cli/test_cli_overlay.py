"""`tvm-npu profile --overlay`: read back, the files say what the profile says."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("tvm.relay", exc_type=ImportError)
onnx = pytest.importorskip("onnx")

from tvm_npu.codegen.program.format import Program  # noqa: E402
from tvm_npu.door.onnx.names import named  # noqa: E402
from tvm_npu.report.overlay import OverlayError, annotated, node_data  # noqa: E402

pytestmark = pytest.mark.relay


def known(node: onnx.NodeProto) -> dict[str, str]:
    return {item.key: item.value for item in node.metadata_props}


@pytest.fixture(scope="module")
def model(make_onnx: Callable[..., Path]) -> Path:
    return make_onnx(["Conv", "Relu", "LRN", "Conv"])


def test_nodes_say_what_the_profile_says(run, tmp_path: Path, model: Path) -> None:  # type: ignore[no-untyped-def]
    values = np.random.default_rng(3).standard_normal((2, 3, 8, 8)).astype(np.float32)
    np.savez(tmp_path / "x.npz", x=values)
    files = {name: tmp_path / name for name in ("a.onnx", "a.json", "p.json")}
    arguments = (model, "--calibration", tmp_path / "x.npz", "--precision", "int8")
    code, _, err = run(
        "profile", *arguments, "--overlay", files["a.onnx"], "--overlay", files["a.json"],
        "--json", files["p.json"],
    )  # fmt: skip
    assert code == 0, err
    layers = json.loads(files["p.json"].read_text())["layers"]
    plain, found = onnx.load(model), onnx.load(files["a.onnx"])
    conv0, relu, lrn, conv3 = (known(node) for node in found.graph.node)
    for notes, layer in ((conv0, layers[0]), (conv3, layers[1])):
        assert (notes["npu.layer"], notes["npu.place"]) == (layer["name"], layer["region"])
        assert float(notes["npu.time_us"]) == pytest.approx(layer["time_us"], rel=1e-5)
        assert notes["npu.bound"] == layer["breakdown"]["bound"]
        assert notes["npu.macs"] == str(layer["macs"])
        assert 10 < float(notes["npu.own_sqnr_db"]) < 80
    assert relu["npu.layer"] == conv0["npu.layer"] and "npu.time_us" not in relu
    assert lrn["npu.place"] == "CPU" and "nn.lrn" in lrn["npu.why"]
    for node in found.graph.node:
        del node.metadata_props[:]
    found.ir_version = plain.ir_version
    assert found == plain
    data = json.loads(files["a.json"].read_text())
    assert {key: one["value"] for key, one in data["results"].items()} == {
        "t0": layers[0]["time_us"], "t3": layers[1]["time_us"],
    }  # fmt: skip
    assert [stop["stop"] for stop in data["gradient"]] == [0, 1]


def test_q_points_are_those_of_the_programs(run, tmp_path: Path, model: Path) -> None:  # type: ignore[no-untyped-def]
    code, _, err = run("compile", model, "-o", tmp_path / "programs")
    assert code == 0, err
    outputs = [
        Program.from_bytes(path.read_bytes()).outputs[0].q_point
        for path in sorted((tmp_path / "programs").iterdir())
    ]
    asked = ("--no-timing", "--overlay-value", "q_point", "--overlay", tmp_path / "q.json")
    code, _, err = run("profile", model, *asked)
    assert code == 0, err
    results = json.loads((tmp_path / "q.json").read_text())["results"]
    assert [results[tensor]["value"] for tensor in ("t1", "t3")] == outputs


def test_what_cannot_be_written_is_said(  # type: ignore[no-untyped-def]
    run, tmp_path: Path, model: Path, lenet: Path
) -> None:
    for path, message in ((tmp_path / "a.txt", "neither .onnx nor .json"), (model, "itself")):
        code, _, err = run("profile", model, "--overlay", path)
        assert code == 2 and message in err
    proto = onnx.load(model)
    with pytest.raises(OverlayError, match="no node has 'own_sqnr_db'"):
        node_data(proto, [{"place": "CPU"}] * 4, "own_sqnr_db")
    twice = annotated(annotated(proto, [{"place": "a"}] * 4), [{"place": "b"}] * 4)
    for node in twice.graph.node:
        assert [(item.key, item.value) for item in node.metadata_props] == [("npu.place", "b")]
    whole = onnx.load(lenet)
    onnx.checker.check_model(annotated(whole, [{"place": "NPU"}] * len(whole.graph.node)))


def test_nodes_without_a_name_have_their_figures(run, tmp_path: Path, model: Path) -> None:  # type: ignore[no-untyped-def]
    bare = onnx.load(model)
    for node in bare.graph.node:
        node.ClearField("name")
    onnx.save(bare, tmp_path / "bare.onnx")
    overlay = tmp_path / "a.onnx"
    code, _, err = run("profile", tmp_path / "bare.onnx", "--overlay", overlay)
    assert code == 0, err
    found = onnx.load(overlay).graph.node
    assert not any(node.name for node in found)
    conv0, relu, lrn, conv3 = map(known, found)
    assert conv0["npu.layer"] == relu["npu.layer"] == "Conv_0" and "npu.why" in lrn
    assert conv3["npu.layer"] == "Conv_1" and float(conv3["npu.time_us"]) > 0


def test_nodes_have_names_only_while_a_model_is_read(model: Path) -> None:
    bare = onnx.load(model)
    for node in (bare.graph.node[0], bare.graph.node[3]):
        node.ClearField("name")
    before = bare.SerializeToString()
    with named(bare):
        assert [node.name for node in bare.graph.node] == ["Conv_0", "relu1", "lrn2", "Conv_1"]
    assert bare.SerializeToString() == before
