"""The door of the installed TVM, whichever it is: the same models, programs and bits through all.

Run once in an environment with Relay's TVM and once in one with Relax's.
"""

from __future__ import annotations

import hashlib
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from tvm_npu.accuracy import Labelled, measure
from tvm_npu.codegen.program.format import Program
from tvm_npu.door.find import door
from tvm_npu.door.models import BuiltModel, build_onnx, import_onnx
from tvm_npu.door.offload import programs
from tvm_npu.errors import PartitionError, TargetError
from tvm_npu.models import build
from tvm_npu.models.data import load_digits, load_digits_calibration, load_digits_lenet
from tvm_npu.options import make_options
from tvm_npu.runtime.session import Session

pytest.importorskip("tvm", reason="neither the relay nor the relax extra is installed")

NETWORKS = {
    "alexnet": (0.125, 67),
    "googlenet": (0.125, 64),
    "mobilenet_v2": (0.25, 32),
    "mobilenet_v3_small": (0.25, 64),
    "resnet18": (0.125, 32),
    "squeezenet1.1": (0.25, 48),
}
"""name -> (width, input size)."""


def network(name: str) -> onnx.ModelProto:
    width, size = NETWORKS[name]
    return build(name, width=width, input_size=size, batch=1, seed=3)


def sqnr_db(want: Any, got: Any) -> float:
    noise = float(np.square(np.float64(want) - got).sum())
    return float(10 * np.log10(np.square(np.float64(want)).sum() / max(noise, 1e-300)))


def image(model: onnx.ModelProto, seed: int = 5) -> dict[str, Any]:
    (value,) = model.graph.input
    shape = [dim.dim_value for dim in value.type.tensor_type.shape.dim]
    return {value.name: np.random.default_rng(seed).standard_normal(shape).astype(np.float32)}


def from_onnxruntime(model: onnx.ModelProto, inputs: dict[str, Any]) -> list[Any]:
    onnxruntime = pytest.importorskip("onnxruntime")
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    return list(session.run(None, inputs))


def offloaded(model: onnx.ModelProto, **options: Any) -> BuiltModel:
    return build_onnx(model, target="npu/nmp-4x8", calibration=image(model), **options)


def program_files(built: BuiltModel) -> dict[str, bytes]:
    assert built.partitioned is not None
    return programs(door(), built.partitioned.mod)


@pytest.mark.parametrize("name", sorted(NETWORKS))
def test_every_mac_runs_on_the_npu_and_the_answer_is_near(name: str) -> None:
    model = network(name)
    built = offloaded(model)
    assert built.report is not None
    assert built.report.npu_macs == built.report.total_macs > 0
    inputs = image(model)
    for got, want in zip(built.run(inputs), from_onnxruntime(model, inputs), strict=True):
        assert sqnr_db(want, got) > 40


@pytest.mark.parametrize("name", sorted(NETWORKS))
def test_all_doors_make_the_same_programs(name: str, golden: Callable[[str, str], None]) -> None:
    """The golden file was written through one door and holds for every other: code and constants,
    the names of tensors, and which operators of the model became which layer."""
    text, model = "", network(name)
    partitioned = import_onnx(model, {}).partition(make_options("nmp-4x8"), [image(model)])
    for symbol, data in programs(door(), partitioned.mod).items():
        program = Program.from_bytes(data)
        digest = hashlib.sha256(program.code.tobytes() + program.constants).hexdigest()
        slots = (*program.inputs, *program.intermediates, *program.outputs)
        text += f"{symbol} {digest}\n{' '.join(slot.name for slot in slots)}\n"
        text += "".join(f"{layer.name}: {', '.join(layer.source)}\n" for layer in program.layers)
    golden(f"{name}.txt", text)


@pytest.mark.parametrize("precision", ["int16", "int8"])
def test_the_answer_is_what_the_program_computes(precision: str) -> None:
    model = load_digits_lenet()
    digits, _ = load_digits()
    built = build_onnx(
        model, target="nmp-4x8", calibration=load_digits_calibration(), precision=precision
    )
    ((_, data),) = program_files(built).items()
    (got,) = built.run({"image": digits[:1]})
    (want,) = Session(Program.from_bytes(data)).run([digits[:1]])
    assert np.array_equal(got, want)


Ends = Sequence[tuple[str, int, tuple[int, ...]]]
"""(name, type, shape) each."""


def quantized_model(
    nodes: Sequence[onnx.NodeProto],
    ends: tuple[Ends, Ends],
    constants: Mapping[str, Any],
    opset: int = 13,
) -> onnx.ModelProto:
    """Between these inputs and outputs."""
    inputs, outputs = ([helper.make_tensor_value_info(*one) for one in side] for side in ends)
    stored = [numpy_helper.from_array(np.asarray(v), n) for n, v in constants.items()]
    graph = helper.make_graph(list(nodes), "quantized", inputs, outputs, stored)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)


def qdq_model(from_integers: bool) -> onnx.ModelProto:
    """A convolution with a scale a filter, maxima, a sum, averages: all between QuantizeLinear and
    DequantizeLinear, from real numbers or integers to integers."""
    rng, nodes = np.random.default_rng(2), []
    weight = rng.integers(-127, 128, (3, 3, 3, 3)).astype(np.int8)
    weight[:, 0, 0, 0] = 127
    stored = {"w": weight, "w_s": np.array([0.01, 0.02, 0.005], np.float32),
              "w_z": np.zeros(3, np.int8), "b": rng.integers(-99, 99, 3).astype(np.int32),
              "b_s": np.array([3e-4, 6e-4, 1.5e-4], np.float32),
              "b_z": np.zeros(3, np.int32)}  # fmt: skip

    def add(operator: str, inputs: list[str], output: str, **attributes: Any) -> str:
        nodes.append(helper.make_node(operator, inputs, [output], output, **attributes))
        return output

    def quantized(tensor: str, step: float, zero_point: int) -> str:
        scale = [f"{tensor}_s", f"{tensor}_z"]
        stored.update(zip(scale, (np.float32(step), np.int8(zero_point)), strict=True))
        add("QuantizeLinear", [tensor, *scale], f"{tensor}_q")
        return add("DequantizeLinear", [f"{tensor}_q", *scale], f"{tensor}_d")

    x = quantized("x", 0.03, 5)
    kernel = [add("DequantizeLinear", [n, f"{n}_s", f"{n}_z"], f"{n}_d", axis=0) for n in "wb"]
    a = quantized(add("Conv", [x, *kernel], "a", pads=[1, 1, 1, 1]), 0.1, -7)
    p = quantized(add("MaxPool", [a], "p", kernel_shape=[3, 3], pads=[1, 1, 1, 1]), 0.1, -7)
    s = quantized(add("Add", [p, x], "s"), 0.13, 11)
    quantized(add("AveragePool", [s], "m", kernel_shape=[2, 2], strides=[2, 2]), 0.13, 11)
    entry = ("x_q", TensorProto.INT8) if from_integers else ("x", TensorProto.FLOAT)
    ends = [(*entry, (1, 3, 8, 8))], [("m_q", TensorProto.INT8, (1, 3, 4, 4))]
    return quantized_model(nodes[from_integers:-1], ends, stored)


@pytest.mark.parametrize("from_integers", [False, True])
def test_a_quantized_model_keeps_its_scales(from_integers: bool) -> None:
    model = qdq_model(from_integers)
    built = build_onnx(model, target="nmp-4x8-scale")
    assert built.partitioned is not None and built.report is not None
    assert len(built.report.refusals) == 1 + from_integers  # what makes real numbers and integers
    (fixed,) = built.partitioned.fixed_graphs().values()
    made = {(float(one.steps[0]), one.zero_points) for one in fixed.scales.values()}
    said = {(0.03, (5,)), (0.1, (-7,)), (0.13, (11,))}
    assert made == {(float(np.float32(step)), zero_point) for step, zero_point in said}
    assert {one.halves for one in fixed.scales.values()} == {"even"}
    assert {name for layer in fixed.layers for name in layer.source} >= {"a", "p", "s", "m"}
    inputs = image(model)
    if from_integers:
        inputs = {"x_q": (inputs["x_q"] * 40).astype(np.int8)}
    (got,), (want,) = built.run(inputs), from_onnxruntime(model, inputs)
    off = np.abs(got.astype(int) - want)
    assert got.dtype == np.int8 and off.max() <= 1 and (off == 0).mean() > 0.95
    assert np.ptp(want) > 20


def test_integers_that_are_read_at_another_scale() -> None:
    """They mean other numbers, which no rounding can leave out."""
    stored = {"s": np.float32(0.1), "t": np.float32(0.2), "z": np.int8(3)}
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "s", "z"], ["q"], "quantize"),
        helper.make_node("DequantizeLinear", ["q", "t", "z"], ["d"], "dequantize"),
        helper.make_node("MaxPool", ["d"], ["y"], "pool", kernel_shape=[2, 2]),
    ]
    ends = [("x", TensorProto.FLOAT, (1, 3, 8, 8))], [("y", TensorProto.FLOAT, (1, 3, 7, 7))]
    model = quantized_model(nodes, ends, stored)
    inputs = image(model)
    built = build_onnx(model, target="nmp-4x8-scale")
    (got,), (want,) = built.run(inputs), from_onnxruntime(model, inputs)
    assert np.allclose(got, want, atol=0.03) and np.ptp(want) > 1


@pytest.mark.parametrize("step", [0.02, 0.01])
def test_averages_that_a_flatten_passes_on_have_the_scale_behind_it(step: float) -> None:
    constants = {"s": np.float32(0.1), "z": np.int8(3), "t": np.float32(step), "u": np.int8(-5)}
    nodes = [
        helper.make_node("DequantizeLinear", ["x", "s", "z"], ["d"], "read"),
        helper.make_node("GlobalAveragePool", ["d"], ["g"], "averages"),
        helper.make_node("Flatten", ["g"], ["f"], "flat"),
        helper.make_node("QuantizeLinear", ["f", "t", "u"], ["y"], "made"),
    ]
    ends = [("x", TensorProto.INT8, (1, 8, 7, 7))], [("y", TensorProto.INT8, (1, 8))]
    model = quantized_model(nodes, ends, constants)
    inputs = {"x": np.random.default_rng(0).integers(-60, 60, (1, 8, 7, 7)).astype(np.int8)}
    built = build_onnx(model, target="nmp-4x8-scale")
    (got,), (want,) = built.run(inputs), from_onnxruntime(model, inputs)
    assert np.abs(got.astype(int) - want).max() <= 1 and np.ptp(want.astype(int)) > 50


def test_ranges_behind_an_input_that_its_scale_cuts() -> None:
    """Values beyond the input's scale widen nobody's range: the NPU never sees them."""
    constants = {"s": np.float32(0.01), "z": np.int8(0), "w": np.array([[[[1]], [[-1]]]], "f4")}
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "s", "z"], ["q"], "made"),
        helper.make_node("DequantizeLinear", ["q", "s", "z"], ["d"], "read"),
        helper.make_node("Conv", ["d", "w"], ["y"], "differences"),
    ]
    ends = [("x", TensorProto.FLOAT, (1, 2, 8, 8))], [("y", TensorProto.FLOAT, (1, 1, 8, 8))]
    model = quantized_model(nodes, ends, constants)
    inputs = {name: 20 * values for name, values in image(model).items()}
    built = build_onnx(model, target="nmp-4x8-scale", calibration=inputs)
    (got,), (want,) = built.run(inputs), from_onnxruntime(model, inputs)
    assert np.abs(got - want).max() < 0.03 and np.ptp(want) > 4


def test_averages_that_nobody_rounds_have_a_scale_of_their_own() -> None:
    constants = {"s": np.float32(0.1), "z": np.int8(3)}
    nodes = [
        helper.make_node("DequantizeLinear", ["x", "s", "z"], ["d"], "read"),
        helper.make_node("GlobalAveragePool", ["d"], ["y"], "averages"),
    ]
    ends = [("x", TensorProto.INT8, (1, 8, 7, 7))], [("y", TensorProto.FLOAT, (1, 8, 1, 1))]
    model = quantized_model(nodes, ends, constants)
    inputs = {"x": np.random.default_rng(0).integers(-60, 60, (1, 8, 7, 7)).astype(np.int8)}
    built = build_onnx(model, target="nmp-4x8-scale", calibration=inputs)
    (got,), (want,) = built.run(inputs), from_onnxruntime(model, inputs)
    assert np.abs(got - want).max() < 0.005 * np.abs(want).max()


def test_zero_points_that_are_left_out() -> None:
    """ONNX means 0 of uint8 for what is made, 0 for what is read."""
    constants = {"s": np.float32(0.02), "w": np.array([[[[-128]], [[77]]]], np.int8),
                 "b": np.array([3], np.int32)}  # fmt: skip
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "s"], ["q"], "quantize"),
        *(helper.make_node("DequantizeLinear", [n, "s", *z], [f"{n}_d"], f"read {n}")
          for n, *z in (["q"], ["w", ""], ["b"])),
        helper.make_node("Conv", ["q_d", "w_d", "b_d"], ["y"], "products"),
    ]  # fmt: skip
    ends = [("x", TensorProto.FLOAT, (1, 2, 8, 8))], [("y", TensorProto.FLOAT, (1, 1, 8, 8))]
    model = quantized_model(nodes, ends, constants)
    inputs = image(model)
    built = build_onnx(model, target="nmp-4x8-scale", calibration=inputs)
    (got,), (want,) = built.run(inputs), from_onnxruntime(model, inputs)
    assert sqnr_db(want, got) > 30 and np.ptp(want) > 5


def test_integer_operators_are_read_or_refused() -> None:
    constants = {"s": np.float32(0.1), "z": np.int8(3), "w": np.ones((2, 2, 1, 1), np.int8)}
    node = helper.make_node("QLinearConv", list("xszwszsz"), ["y"], "products")
    ends = tuple([(name, TensorProto.INT8, (1, 2, 4, 4))] for name in "xy")
    model = quantized_model([node], ends, constants)
    if door().name == "relay":
        built = build_onnx(model, target="nmp-4x8-scale")
        assert built.report is not None and len(built.report.regions) == 1
    else:
        with pytest.raises(PartitionError, match="QLinearConv 'products'.*QuantFormat.QDQ"):
            build_onnx(model, target="nmp-4x8-scale")


def test_bounds_that_cross_give_the_upper_one() -> None:
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"], "products"),
        helper.make_node("Clip", ["c", "low", "high"], ["y"], "clip"),
    ]
    constants = {"w": np.ones((2, 2, 1, 1), "f4"), "low": np.float32(2), "high": np.float32(1)}
    ends = [("x", TensorProto.FLOAT, (1, 2, 4, 4))], [("y", TensorProto.FLOAT, (1, 2, 4, 4))]
    model = quantized_model(nodes, ends, constants)
    inputs = image(model)
    (got,), (want,) = offloaded(model).run(inputs), from_onnxruntime(model, inputs)
    assert np.array_equal(got, want) and (want == 1).all()


def test_a_region_with_more_outputs_than_operators() -> None:
    weight = np.random.default_rng(1).standard_normal((4, 4, 1, 1)).astype(np.float32)
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"], "products"),
        helper.make_node("Split", ["c"], list("abde"), "parts", axis=1),
    ]
    parts = [(name, TensorProto.FLOAT, (1, 1, 4, 4)) for name in "abde"]
    model = quantized_model(nodes, ([("x", TensorProto.FLOAT, (1, 4, 4, 4))], parts), {"w": weight})
    built = offloaded(model)
    assert built.report is not None and len(built.report.regions) == 1
    inputs = image(model)
    for got, want in zip(built.run(inputs), from_onnxruntime(model, inputs), strict=True):
        assert sqnr_db(want, got) > 50


def test_operators_of_the_cpu_before_and_between_regions() -> None:
    """Calibration has to run them to see what a region gets."""
    weight = np.random.default_rng(1).standard_normal((4, 4, 3, 3)).astype(np.float32) / 6
    nodes = [
        helper.make_node("Cos", ["x"], ["turned"], "turn"),
        helper.make_node("Conv", ["turned", "w"], ["first"], "conv1", pads=[1, 1, 1, 1]),
        helper.make_node("Sin", ["first"], ["wave"], "wave"),
        helper.make_node("Conv", ["wave", "w"], ["second"], "conv2", pads=[1, 1, 1, 1]),
        helper.make_node("Add", ["second", "first"], ["y"], "sum"),
    ]
    graph = helper.make_graph(
        nodes,
        "waves",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, (1, 4, 8, 8))],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, (1, 4, 8, 8))],
        [numpy_helper.from_array(weight, "w")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    onnx.checker.check_model(model)
    built = offloaded(model)
    assert built.report is not None
    assert [region.operators[0][0] for region in built.report.regions] == ["conv1", "conv2"]
    assert {(refusal.source) for refusal in built.report.refusals} == {"turn", "wave"}
    inputs = image(model, seed=9)
    (got,), (want,) = built.run(inputs), from_onnxruntime(model, inputs)
    assert sqnr_db(want, got) > 50


def test_old_networks_are_cut_where_the_npu_lacks_an_operator_and_nowhere_else() -> None:
    """LRN, dropouts and softmaxes of the first operator sets, as AlexNet's file has them: frontends
    write them in several operators, of which the NPU has some."""
    random = np.random.default_rng(2)
    shapes = {"w": (6, 3, 3, 3), "v": (9, 96), "u": (5, 9), "b": (9,), "a": (5,)}
    weights = {name: random.standard_normal(of).astype(np.float32) for name, of in shapes.items()}
    make = helper.make_node
    nodes = [
        make("Conv", ["x", "w"], ["c"], "conv", pads=[1, 1, 1, 1]),
        make("LRN", ["c"], ["n"], "norm", size=5, alpha=0.1, beta=0.75, bias=1.0),
        make("MaxPool", ["n"], ["p"], "pool", kernel_shape=[2, 2], strides=[2, 2]),
        make("Flatten", ["p"], ["f"], "flat"),
        make("Gemm", ["f", "v", "b"], ["g"], "dense1", transB=1),
        make("Relu", ["g"], ["r"], "relu"),
        make("Dropout", ["r"], ["d"], "drop", ratio=0.5),
        make("Gemm", ["d", "u", "a"], ["h"], "dense2", transB=1),
        make("Softmax", ["h"], ["y"], "classes"),
        make("Transpose", ["p"], ["t"], "last", perm=[0, 2, 3, 1]),
        make("Softmax", ["t"], ["z"], "places", axis=3),
    ]
    inputs = [("x", TensorProto.FLOAT, (1, 3, 8, 8))]
    outputs = [("y", TensorProto.FLOAT, (1, 5)), ("z", TensorProto.FLOAT, (1, 4, 4, 6))]
    model = quantized_model(nodes, (inputs, outputs), weights, opset=9)
    built = offloaded(model)
    assert built.report is not None
    regions = built.report.regions
    assert [len(one.outputs) for one in regions] == [1, 2]
    assert regions[1].outputs[1] == (1, 4, 4, 6)
    assert {one.source for one in built.report.refusals} == {"norm", "classes", "places"}
    fed = image(model, seed=9)
    for got, want in zip(built.run(fed), from_onnxruntime(model, fed), strict=True):
        assert sqnr_db(want, got) > 50


def test_layers_over_tokens_are_called_after_their_operator() -> None:
    weight = np.random.default_rng(3).standard_normal((8, 6)).astype(np.float32)
    ends = ([("x", TensorProto.FLOAT, (1, 4, 4, 8))], [("y", TensorProto.FLOAT, (1, 4, 4, 6))])
    nodes = [helper.make_node("MatMul", ["x", "w"], ["y"], "expand")]
    built = offloaded(quantized_model(nodes, ends, {"w": weight}))
    ((_, data),) = program_files(built).items()
    assert {layer.source for layer in Program.from_bytes(data).layers} == {("expand",)}


def test_automatic_padding_and_bounds_are_read() -> None:
    weight = np.random.default_rng(1).standard_normal((4, 3, 5, 5)).astype(np.float32) / 9
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"], "conv", auto_pad="SAME_UPPER", strides=[2, 2]),
        helper.make_node("Clip", ["c", "low", "high"], ["d"], "clip"),
        helper.make_node("Sum", ["d", "d"], ["e"], "sum"),
        helper.make_node("MaxPool", ["e"], ["y"], "pool", kernel_shape=[2, 2], strides=[2, 2]),
    ]
    graph = helper.make_graph(
        nodes,
        "bounds",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, (1, 3, 16, 16))],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, (1, 4, 4, 4))],
        [
            numpy_helper.from_array(weight, "w"),
            numpy_helper.from_array(np.float32(0), "low"),
            numpy_helper.from_array(np.float32(1.5), "high"),
        ],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    onnx.checker.check_model(model)
    built = offloaded(model)
    assert built.report is not None
    assert not built.report.refusals and len(built.report.regions) == 1
    inputs = image(model)
    (got,), (want,) = built.run(inputs), from_onnxruntime(model, inputs)
    assert sqnr_db(want, got) > 50


def test_an_exported_library_runs_in_a_process_with_the_runtime_alone(tmp_path: Path) -> None:
    model = load_digits_lenet()
    digits, _ = load_digits()
    built = build_onnx(model, target="nmp-4x8", calibration=load_digits_calibration())
    (want,) = built.run({"image": digits[:1]})
    built.library.export_library(str(tmp_path / "digits.so"))
    np.savez(tmp_path / "x.npz", image=digits[:1], want=want)
    loads = {
        "relay": """
from tvm.contrib import graph_executor
module = graph_executor.GraphModule(library["default"](tvm.cpu()))
module.run(image=data["image"])
got = module.get_output(0).numpy()
""",
        "relax": """
from tvm import relax
machine = relax.VirtualMachine(library, tvm.cpu())
got = machine["main"](tvm.runtime.tensor(data["image"])).numpy()
""",
    }
    code = f"""
import numpy as np
import sys
sys.path.insert(0, {str(Path(__file__).parents[2])!r})
import tvm_npu.runtime
import tvm
library = tvm.runtime.load_module({str(tmp_path / "digits.so")!r})
data = np.load({str(tmp_path / "x.npz")!r})
{loads[door().name]}
assert np.array_equal(got, data["want"])
assert "tvm_npu.door" not in sys.modules
print(len(tvm_npu.runtime.sessions()))
"""
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    assert result.stdout.strip() == "1"


@pytest.mark.parametrize(("axis", "shape"), [(1, (1, 6, 5, 4)), (3, (1, 6, 5, 4))])
def test_a_softmax_between_layers_runs_on_the_npu(axis: int, shape: tuple[int, ...]) -> None:
    random = np.random.default_rng(2)
    weight = random.standard_normal((6, 6, 1, 1)).astype(np.float32)
    model = helper.make_model(
        helper.make_graph(
            [
                helper.make_node("Conv", ["x", "w"], ["a"]),
                helper.make_node("Softmax", ["a"], ["s"], axis=axis),
                helper.make_node("Mul", ["a", "s"], ["y"]),
            ],
            "attention",
            [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
            [helper.make_tensor_value_info("y", TensorProto.FLOAT, shape)],
            [numpy_helper.from_array(weight, "w")],
        ),
        opset_imports=[helper.make_opsetid("", 13)],
        ir_version=8,
    )  # fmt: skip
    inputs = image(model)
    built = offloaded(model)
    assert built.report is not None and not built.report.refusals
    (found,) = built.run(inputs)
    (want,) = from_onnxruntime(model, inputs)
    assert sqnr_db(want, found) > 60


@pytest.mark.parametrize("slopes", [(6, 1, 1), (1, 6, 1, 1), (1, 1, 1), (1,)])
def test_a_prelu_is_part_of_the_convolution_in_front(slopes: tuple[int, ...]) -> None:
    random = np.random.default_rng(4)
    weight = random.standard_normal((6, 3, 3, 3)).astype(np.float32)
    negative = random.uniform(-0.5, 0.9, slopes).astype(np.float32)
    model = helper.make_model(
        helper.make_graph(
            [
                helper.make_node("Conv", ["x", "w"], ["a"], "conv"),
                helper.make_node("PRelu", ["a", "s"], ["y"], "bent"),
            ],
            "prelu",
            [helper.make_tensor_value_info("x", TensorProto.FLOAT, (1, 3, 9, 8))],
            [helper.make_tensor_value_info("y", TensorProto.FLOAT, (1, 6, 7, 6))],
            [numpy_helper.from_array(weight, "w"), numpy_helper.from_array(negative, "s")],
        ),
        opset_imports=[helper.make_opsetid("", 16)],
        ir_version=8,
    )  # fmt: skip
    built, inputs = offloaded(model), image(model)
    assert built.report is not None and not built.report.refusals
    ((_, data),) = program_files(built).items()
    (layer,) = Program.from_bytes(data).layers
    assert layer.source == ("conv", "bent")
    (found,) = built.run(inputs)
    (want,) = from_onnxruntime(model, inputs)
    assert sqnr_db(want, found) > 60


def test_a_layer_in_int16() -> None:
    """Of a trained network: chosen by name, then by the loss that outputs may have; the simulator
    agrees with the reference to the bit."""
    model, images = load_digits_lenet(), load_digits_calibration()[:4]
    entry = model.graph.input[0].name
    first = next(node.name for node in model.graph.node if node.op_type == "Conv")
    imported = import_onnx(model, {})

    def run(**options: Any) -> tuple[list[str], float]:
        """Precisions of the layers, and the output's SQNR."""
        chosen = make_options("nmp-4x8-int8", **options)
        found = imported.partition(chosen, ({entry: one[None]} for one in images))
        (symbol,) = found.symbols
        program = Program.from_bytes(found.program(symbol))
        samples = (Labelled({entry: one[None]}) for one in images[:1])
        return [one.precision for one in program.layers], measure(found, samples).sqnr_db

    named, sqnr = run(int16_layers=(first,))
    assert named.count("int16") == 1 and sqnr > 20
    chosen, sqnr = run(precision="auto", max_loss=1e-4)
    assert chosen.count("int16") > 1 and sqnr > 37
    with pytest.raises(TargetError, match=f"is called {first + '_'!r}; near are"):
        run(int16_layers=(first + "_",))
