"""tvmc with the NPU, targets and options, ONNX models with automatic padding."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")
pytest.importorskip("tvm.relay", exc_type=ImportError)
import tvm  # noqa: E402
from onnx import TensorProto, helper, numpy_helper  # noqa: E402

import tvm_npu  # noqa: E402
from tests.relay.relay_cases import randoms, small_cnn  # noqa: E402
from tvm_npu import tvmc  # noqa: E402
from tvm_npu.door.onnx.model import with_explicit_padding, with_folded_views  # noqa: E402
from tvm_npu.errors import PartitionError, TargetError  # noqa: E402
from tvm_npu.options import NpuOptions  # noqa: E402
from tvm_npu.relay import explain, partition_for_npu  # noqa: E402
from tvm_npu.relay.frontend import from_onnx  # noqa: E402
from tvm_npu.sim.machine_file import load_machine, machine_names  # noqa: E402
from tvm_npu.sim.nmp.machine import load_nmp_machine  # noqa: E402
from tvm_npu.targets import make_target, options_from_target  # noqa: E402

pytestmark = pytest.mark.relay

ROOT = Path(__file__).parents[2]


def onnx_cnn(auto_pad: str = "SAME_UPPER", stride: int = 2) -> Any:
    """Conv -> ReLU -> GlobalAveragePool -> Flatten -> Gemm; input x [1, 3, 9, 8]."""
    weights = {
        "w": randoms(0, 4, 3, 4, 3) * 0.3,
        "b": randoms(1, 4),
        "g": randoms(2, 5, 4),
        "h": randoms(3, 5),
    }
    nodes = [
        helper.make_node(
            "Conv", ["x", "w", "b"], ["c"], "conv", auto_pad=auto_pad, strides=[stride, stride]
        ),
        helper.make_node("Relu", ["c"], ["r"], "act"),
        helper.make_node("GlobalAveragePool", ["r"], ["p"], "pool"),
        helper.make_node("Flatten", ["p"], ["f"], "flat"),
        helper.make_node("Gemm", ["f", "g", "h"], ["y"], "fc", transB=1),
    ]
    graph = helper.make_graph(
        nodes,
        "small",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 3, 9, 8])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 5])],
        [numpy_helper.from_array(values, name) for name, values in weights.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    onnx.checker.check_model(model)
    return model


@pytest.mark.parametrize("stride", [1, 2, 3])
@pytest.mark.parametrize("auto_pad", ["SAME_UPPER", "SAME_LOWER", "VALID"])
def test_explicit_padding_computes_the_same(auto_pad: str, stride: int) -> None:
    ort = pytest.importorskip("onnxruntime")
    model = onnx_cnn(auto_pad, stride)
    explicit = with_explicit_padding(model)
    assert not any(a.name == "auto_pad" for n in explicit.graph.node for a in n.attribute)
    x = randoms(4, 1, 3, 9, 8)
    first, second = (
        ort.InferenceSession(m.SerializeToString(), providers=["CPUExecutionProvider"]).run(
            None, {"x": x}
        )[0]
        for m in (model, explicit)
    )
    np.testing.assert_array_equal(first, second)
    assert with_explicit_padding(explicit) is explicit


@pytest.mark.parametrize("opset", [11, 13])
def test_views_of_weights_are_folded(opset: int) -> None:
    weights = {"s": randoms(0, 3), "axes": np.array([1, 2], np.int64)}
    if opset < 13:
        view = helper.make_node("Unsqueeze", ["s"], ["v"], axes=[1, 2])
    else:
        view = helper.make_node("Unsqueeze", ["s", "axes"], ["v"])
    graph = helper.make_graph(
        [view, helper.make_node("Mul", ["x", "v"], ["y"], "scale")],
        "views",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 3, 4, 4])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 3, 4, 4])],
        [numpy_helper.from_array(values, name) for name, values in weights.items()],
    )
    opsets = [helper.make_opsetid("", opset)]
    folded = with_folded_views(helper.make_model(graph, opset_imports=opsets, ir_version=8))
    onnx.checker.check_model(folded)
    assert [node.op_type for node in folded.graph.node] == ["Mul"]
    assert with_folded_views(folded) is folded
    (value,) = [tensor for tensor in folded.graph.initializer if tensor.name == "v"]
    np.testing.assert_array_equal(numpy_helper.to_array(value), weights["s"][:, None, None])


def test_source_names_are_the_onnx_nodes() -> None:
    mod, params = from_onnx(onnx_cnn())
    report = explain(partition_for_npu(mod, params, calibration=randoms(4, 1, 3, 9, 8)))
    (region,) = report.regions
    names = list(dict.fromkeys(source for source, _ in region.operators))
    assert names == ["conv", "act", "pool", "flat", "fc"] and not report.refusals


def test_unreadable_model(tmp_path: Path) -> None:
    (tmp_path / "x.onnx").write_bytes(b"not a model")
    with pytest.raises(PartitionError, match="cannot read ONNX model .*x.onnx"):
        from_onnx(tmp_path / "x.onnx")
    with pytest.raises(PartitionError, match="cannot read ONNX model"):
        from_onnx(tmp_path / "missing.onnx")


def test_every_machine_has_a_tag() -> None:
    for name in machine_names():
        target = tvm.target.Target(f"npu/{name}")
        assert options_from_target(target).machine == load_machine(name)
        assert options_from_target(f"npu/{name}") == options_from_target(name)


def test_target_for_a_machine_file_with_options(tmp_path: Path) -> None:
    machine = load_nmp_machine("nmp-4x8").with_cores(2, 4)
    lines = [f'name = "{machine.name}"', 'isa = "nmp"', "frequency_mhz = 1000.0"]
    for part, values in machine.model_dump().items():
        if isinstance(values, dict):
            lines.append(f"[{part}]")
            lines += [f"{key} = {json.dumps(value)}" for key, value in values.items()]
    path = tmp_path / "my machine.toml"
    path.write_text("\n".join(lines))
    target = tvm_npu.target(path, precision="int8", planner="tso-noburst", mcpu="x86-64")
    options = options_from_target(target)
    assert options.machine.core_count == 8
    assert (options.precision, options.planner) == ("int8", "tso-noburst")
    assert '"mcpu": "x86-64"' in options.cpu_target
    assert NpuOptions.from_json(options.to_json()) == options
    assert options_from_target(target, precision="int16").precision == "int16"
    again = tvm.target.Target(dict(target.export()))
    assert options_from_target(again).machine == options.machine


def test_layers_in_int16_travel_with_targets() -> None:
    names = ("block/1/conv", "odd, &name?")
    target = tvm_npu.target("nmp-4x8-int8", precision="auto", int16_layers=names, max_loss=0.25)
    options = options_from_target(target)
    assert (options.precision, options.int16_layers, options.max_loss) == ("int8", names, 0.25)
    assert NpuOptions.from_json(options.to_json()) == options
    for machine, wrong, message in (
        ("nmp-4x8", {"int16_layers": names}, "precision 'int16': they are chosen for"),
        ("nmp-4x8-int8", {"max_loss": 0.1}, "max_loss 0.1 with precision None: it is for 'auto'"),
        ("nmp-4x8", {"precision": "auto", "max_loss": 1.0}, "max_loss 1.0: must be above 0 and"),
        ("setup-a", {"precision": "auto"}, "'setup-a' computes all layers of a program with one"),
    ):
        with pytest.raises(TargetError, match=message):
            tvm_npu.target(machine, **wrong)


def test_targets_that_are_none() -> None:
    with pytest.raises(TargetError, match="names no NPU"):
        options_from_target(tvm.target.Target("llvm"))
    with pytest.raises(TargetError, match="expected 'npu/<machine>'"):
        options_from_target(3)
    with pytest.raises(TargetError, match="unknown machine 'x'"):
        make_target("x")
    with pytest.raises(TargetError, match="Cannot recognize 'bogus'"):
        make_target("nmp-4x8", bogus=1)


def test_npu_options_are_taken_out_of_a_tvmc_target() -> None:
    text = "npu -machine=/a/b.toml -calibration='/x, y/z.npz', llvm -mattr=+sse4.2,+avx"
    rest, options = tvmc.take_npu_options(text)
    assert rest == "npu, llvm -mattr=+sse4.2,+avx"
    assert options == {"machine": "/a/b.toml", "calibration": "/x, y/z.npz"}
    assert tvmc.take_npu_options("npu") == ("npu, llvm", {})
    assert tvmc.take_npu_options("llvm -mcpu=znver3") == ("llvm -mcpu=znver3", {})
    with pytest.raises(TargetError, match="No closing quotation"):
        tvmc.take_npu_options("npu -machine='a, llvm")
    with pytest.raises(TargetError, match="'fast' is not of the form -name=value"):
        tvmc.take_npu_options("npu fast, llvm")
    with pytest.raises(TargetError, match="no option -speed; options: -machine"):
        tvmc.parsed_options({"speed": "1"})
    with pytest.raises(TargetError, match="-seed=x is no number"):
        tvmc.parsed_options({"seed": "x"})


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("npu -speed=9, llvm", "target npu has no option -speed"),
        ("npu -machine=nope, llvm", "unknown machine 'nope'"),
        ("npu -precision=int3, llvm", "precision 'int3': must be one of"),
        ("npu -calibration=/none.npz, llvm", "cannot read calibration file '/none.npz'"),
    ],
)
def test_tvmc_errors(
    target: str, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    onnx.save(onnx_cnn(), tmp_path / "m.onnx")
    arguments = ["compile", f"--target={target}", str(tmp_path / "m.onnx")]
    assert tvmc.main([*arguments, "-o", str(tmp_path / "m.tar")]) == 4
    assert message in capsys.readouterr().err


def test_tvmc_compiles_and_runs(tmp_path: Path) -> None:
    ort = pytest.importorskip("onnxruntime")
    x = randoms(4, 1, 3, 9, 8)
    onnx.save(onnx_cnn(), tmp_path / "m.onnx")
    np.savez(tmp_path / "x.npz", x=x)
    target = f"npu -machine=nmp-4x8 -calibration={tmp_path / 'x.npz'}, llvm"
    steps = [
        ["compile", "--target", target, "m.onnx", "-o", "m.tar"],
        ["run", "--inputs", "x.npz", "-o", "y.npz", "m.tar"],
    ]
    for step in steps:
        done = subprocess.run(
            [sys.executable, "-m", "tvm_npu.tvmc", *step],
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stderr
        assert "SyntheticCalibrationWarning" not in done.stderr
    want = ort.InferenceSession(str(tmp_path / "m.onnx")).run(None, {"x": x})[0]
    got = np.load(tmp_path / "y.npz")["output_0"]
    assert 0 < np.abs(got - want).max() < 1e-3


def test_pipeline_through_tvmc_s_own_parser() -> None:
    tvmc.register()
    from tvm.driver.tvmc.composite_target import get_codegen_by_target
    from tvm.driver.tvmc.target import target_from_cli

    target, extra = target_from_cli("npu -machine=nmp-4x8 -precision=int8, llvm")
    assert str(target.kind) == "llvm" and extra[0]["opts"]["precision"] == "int8"
    pipeline = get_codegen_by_target("npu")["pass_pipeline"]
    with pytest.warns(UserWarning, match="no calibration data"):
        mod = pipeline(small_cnn(), {}, mod_name="net", **extra[0]["opts"])
    report = explain(mod)
    assert report.precision == "int8" and report.regions[0].symbol == "tvmgen_net_npu_main_0"
