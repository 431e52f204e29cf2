"""Models that TVM's frontend or its LLVM spoil, and values that no fixed-point number holds."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
import pytest

pytest.importorskip("tvm.relay", exc_type=ImportError)
import tvm  # noqa: E402
from onnx import TensorProto, helper, numpy_helper  # noqa: E402
from onnx.reference import ReferenceEvaluator  # noqa: E402
from tvm import relay  # noqa: E402

from tests.relay.relay_cases import const, module, randoms, stock, var  # noqa: E402
from tvm_npu.codegen.errors import QuantizationError  # noqa: E402
from tvm_npu.door.find import door  # noqa: E402
from tvm_npu.door.models import build_onnx  # noqa: E402
from tvm_npu.door.offload import programs  # noqa: E402
from tvm_npu.errors import (  # noqa: E402
    CalibrationError,
    DroppedBoundWarning,
    PartitionError,
    SyntheticCalibrationWarning,
)
from tvm_npu.relay import explain, from_onnx, partition_for_npu  # noqa: E402
from tvm_npu.runtime.session import Session  # noqa: E402

pytestmark = pytest.mark.relay

IMAGE = randoms(3, 1, 3, 6, 8)
POINTWISE = ("w", randoms(4, 4, 3, 1, 1))
CONV = helper.make_node("Conv", ["x", "w"], ["c"], name="conv")


def graph(
    nodes: Sequence[onnx.NodeProto],
    weights: dict[str, Any],
    inputs: dict[str, Sequence[Any]] | None = None,
    opset: int = 13,
) -> onnx.ModelProto:
    shapes = {"x": IMAGE.shape} if inputs is None else inputs
    return helper.make_model(
        helper.make_graph(
            list(nodes),
            "g",
            [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in shapes.items()],
            [helper.make_tensor_value_info(nodes[-1].output[0], TensorProto.FLOAT, None)],
            [numpy_helper.from_array(np.asarray(v), name) for name, v in weights.items()],
        ),
        opset_imports=[helper.make_opsetid("", opset)],
        ir_version=8,
    )


def wanted(model: onnx.ModelProto, **inputs: Any) -> Any:
    return ReferenceEvaluator(model).run(None, inputs)[0]


def sqnr_db(found: Any, expected: Any) -> float:
    noise = float(np.sum((found - expected) ** 2))
    return 10 * float(np.log10(float(np.sum(expected**2)) / max(noise, 1e-30)))


def test_averages_behind_the_end_do_not_count_what_ceil_mode_adds() -> None:
    window = {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1, 1, 1, 1], "ceil_mode": 1}
    pool = helper.make_node("AveragePool", ["c"], ["y"], count_include_pad=1, **window)
    model = graph([CONV, pool], dict([POINTWISE]))
    built = build_onnx(model, calibration=IMAGE)
    (stock_answer,) = build_onnx(model, target=None).run({"x": IMAGE})
    assert built.report is not None and len(built.report.regions) == 1
    np.testing.assert_allclose(built.run({"x": IMAGE})[0], stock_answer, atol=2e-3)


BOUNDS = {"low": ["c", "b"], "high": ["c", "", "b"], "none": ["c"], "run-time": ["c", "s", "b"]}


@pytest.mark.parametrize("name", BOUNDS)
def test_clips_with_one_bound_keep_it(name: str) -> None:
    clip = helper.make_node("Clip", BOUNDS[name], ["y"], name="clip")
    bound = np.float32(0.25)
    scalar = {"s": np.float32(-0.5)}
    inputs: dict[str, Any] = {"x": IMAGE.shape, **({"s": []} if name == "run-time" else {})}
    model = graph([CONV, clip], {**dict([POINTWISE]), "b": bound}, inputs)
    given = {"x": IMAGE, **(scalar if name == "run-time" else {})}
    expected = np.array(wanted(graph([CONV], dict([POINTWISE])), x=IMAGE))
    if name in ("low", "run-time"):
        expected = np.maximum(expected, 0.25 if name == "low" else -0.5)
    if name in ("high", "run-time"):
        expected = np.minimum(expected, 0.25)
    (found,) = build_onnx(model, target=None).run(given)
    np.testing.assert_allclose(found, expected, atol=1e-5)


def test_tvm_s_own_reader_warns_of_the_bound_that_it_drops() -> None:
    clip = helper.make_node("Clip", ["c", "b"], ["y"])
    model = graph([CONV, clip], {**dict([POINTWISE]), "b": np.float32(0.25)})
    with pytest.warns(DroppedBoundWarning, match=r"tvm_npu\.relay\.from_onnx keeps it"):
        relay.frontend.from_onnx(model)
    with warnings.catch_warnings():
        warnings.simplefilter("error", DroppedBoundWarning)
        from_onnx(model)


def bilinear() -> tvm.IRModule:
    """What LLVM rejects when common subexpressions were eliminated, in front of a convolution."""
    wide = relay.image.resize2d(
        relay.sinh(var("x", IMAGE.shape)), (11, 13), method="linear",
        coordinate_transformation_mode="align_corners",
    )  # fmt: skip
    wide = relay.sinh(wide)
    return module(relay.nn.conv2d(wide, const(POINTWISE[1]), kernel_size=(1, 1), channels=4))


def test_bilinear_resizes_on_the_cpu_are_built() -> None:
    from tvm_npu.relay.door import DOOR

    partitioned = partition_for_npu(bilinear(), calibration=IMAGE)
    refused = [refusal.operator for refusal in explain(partitioned).refusals]
    assert refused == ["sinh", "image.resize2d", "sinh"]
    (found,) = DOOR.build(partitioned, {}, "llvm", 3).run({"x": IMAGE})
    with tvm.transform.PassContext(opt_level=3, config={"tir.disable_cse_tir": True}):
        library = relay.build(bilinear(), target="llvm")
    assert library is not None and found.shape == (1, 4, 11, 13)


def test_the_caller_s_pass_context_holds_in_calibration() -> None:
    seen: list[str] = []

    @tvm.tir.transform.prim_func_pass(opt_level=0, name="npu_test_probe")
    def probe(function: Any, mod: Any, ctx: Any) -> Any:
        seen.append("lowered")
        return function

    with tvm.transform.PassContext(config={"tir.add_lower_pass": [(0, probe)]}):
        partition_for_npu(bilinear(), calibration=IMAGE)
    assert "lowered" in seen


def masked(mask: Any, rows: int = 1) -> onnx.ModelProto:
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["c"], name="scores"),
        helper.make_node("Add", ["c", "k"], ["d"], name="mask"),
        helper.make_node("Softmax", ["d"], ["y"], name="softmax"),
    ]
    return graph(nodes, {"w": randoms(5, 4, 4), "k": mask}, {"x": (rows, 4)})


def test_attention_masks_stay_on_the_cpu() -> None:
    model = masked(np.float32([0, 0, -3.4028235e38, 0]))
    x = randoms(6, 1, 4)
    built = build_onnx(model, calibration=x)
    assert built.report is not None and built.report.mac_share == 1.0
    (refused,) = (r for r in built.report.refusals if r.source == "mask")
    assert "smallest Q-point" in refused.rule and "-3.40282e+38" in refused.value
    np.testing.assert_allclose(built.run({"x": x})[0], wanted(model, x=x), atol=1e-3)


def test_values_that_overflow_inside_a_region_stay_on_the_cpu() -> None:
    nodes = [CONV, helper.make_node("Mul", ["c", "k"], ["d"], name="huge")]
    nodes += [helper.make_node("Mul", ["d", "k"], ["e"], name="beyond")]
    nodes += [helper.make_node("Sigmoid", ["e"], ["y"], name="back")]
    model = graph(nodes, {**dict([POINTWISE]), "k": np.float32(3e37)})
    report = build_onnx(model, calibration=IMAGE).report
    assert report is not None and report.mac_share == 1.0
    assert {"huge", "beyond"} <= {refusal.source for refusal in report.refusals}


def test_scalars_as_inputs_of_the_model() -> None:
    scale = helper.make_node("Mul", ["x", "s"], ["m"])
    model = graph(
        [scale, helper.make_node("Conv", ["m", "w"], ["y"])],
        dict([POINTWISE]),
        {"x": IMAGE.shape, "s": []},
    )
    given = {"x": IMAGE, "s": np.array(2.0, np.float32)}
    found = build_onnx(model, calibration=given).run({**given, "s": np.float32(2)})
    assert sqnr_db(found[0], wanted(model, **given)) > 50
    with pytest.warns(SyntheticCalibrationWarning):
        assert len(build_onnx(model).run(given)) == 1


def test_values_that_are_no_numbers_name_the_operator_that_made_them() -> None:
    nodes = [
        helper.make_node("Log", ["x"], ["l"], name="the_log"),
        helper.make_node("Conv", ["l", "w"], ["y"]),
    ]
    with pytest.raises(QuantizationError, match=r"log 'the_log', which region .* of 144 .* nan"):
        build_onnx(graph(nodes, dict([POINTWISE])), calibration=IMAGE)


def test_open_shapes_ask_for_shape() -> None:
    model = graph([CONV], dict([POINTWISE]), {"x": ["N", 3, 6, 8]})
    with pytest.raises(CalibrationError, match=r"'x' is .*give shape= to from_onnx"):
        build_onnx(model)
    found = build_onnx(model, calibration=IMAGE, shapes={"x": IMAGE.shape}).run({"x": IMAGE})
    assert found[0].shape == (1, 4, 6, 8)


def elu(alpha: float, x: Any) -> Any:
    below = relay.nn.relu(relay.subtract(const(1.0), relay.power(const(np.e), x)))
    return relay.add(relay.multiply(const(-alpha), below), relay.nn.relu(x))


def test_lone_arithmetic_between_cpu_operators_stays_there() -> None:
    x = 4 * IMAGE
    lone = module(relay.cos(relay.add(relay.cos(var("x", x.shape)), const(1.0))))
    with pytest.warns(UserWarning, match="no operator runs on the NPU"):
        report = explain(partition_for_npu(lone, calibration=x))
    (refused,) = (refusal for refusal in report.refusals if refusal.operator == "add")
    assert refused.value == "saves 144 operations" and refused.limit == "more than 11,152"
    everything = partition_for_npu(lone, calibration=x, offload="all")
    assert [r.operators for r in explain(everything).regions] == [(("", "add"),)]


def test_sums_that_cancel_what_the_cpu_hands_over_stay_on_the_cpu() -> None:
    """ELU in front of a convolution, by a power that the CPU takes: the NPU would take 1 - e ** x
    at the steps of e ** x."""
    x = np.linspace(-12, 12, IMAGE.size, dtype=np.float32).reshape(IMAGE.shape)
    mod = module(
        relay.nn.conv2d(
            elu(1.0, relay.erf(var("x", x.shape)) * const(12.0)), const(POINTWISE[1]),
            kernel_size=(1, 1), channels=4,
        )
    )  # fmt: skip
    (expected,) = stock(mod, [x])
    answers = {}
    for offload in ("paying", "all"):
        mine = partition_for_npu(mod, calibration=x, offload=offload)
        assert explain(mine).mac_share == 1.0
        (found,) = stock(mine, [x], "npu/nmp-4x8")
        answers[offload] = sqnr_db(found, expected)
    assert answers["paying"] > 60 > answers["all"]


def test_a_sum_of_a_tensor_with_itself_behind_a_region() -> None:
    """TVM simplifies it by a copy of what lies in front, the region's call included."""
    region = relay.nn.relu(relay.nn.conv2d(var("x", IMAGE.shape), const(POINTWISE[1])))
    wave = relay.sin(region)
    mod = module(relay.Tuple([relay.add(wave, wave), region]))
    marked = partition_for_npu(mod, calibration={"x": IMAGE})
    library = relay.build(marked, target="npu/nmp-4x8")
    executor = tvm.contrib.graph_executor.GraphModule(library["default"](tvm.cpu()))
    executor.set_input("x", IMAGE)
    executor.run()
    twice, once = (executor.get_output(number).numpy() for number in range(2))
    np.testing.assert_allclose(twice, 2 * np.sin(once), rtol=1e-5, atol=1e-6)


def test_gelu_by_tanh_is_one_table_behind_its_convolution() -> None:
    """TVM reads it as the exact function; differences of 5e-4 are more than int16 makes."""
    gelu = helper.make_node("Gelu", ["c"], ["y"], name="gelu", approximate="tanh")
    model = graph([CONV, gelu], dict([POINTWISE]), opset=20)
    built = build_onnx(model, calibration={"x": IMAGE})
    assert built.report is not None and not built.report.refusals
    assert sqnr_db(built.run({"x": IMAGE})[0], wanted(model, x=IMAGE)) > 75


@pytest.mark.parametrize("op", ["Erf", "Gelu", "Exp", "Sqrt", "Asinh", "Atan"])
def test_functions_of_whole_numbers(op: str) -> None:
    """For some of them, LLVM's assertion would end the process."""
    nodes = [
        helper.make_node(op, ["k"], ["e"]),
        helper.make_node("Cast", ["e"], ["f"], to=TensorProto.FLOAT),
        helper.make_node("Add", ["x", "f"], ["y"]),
    ]
    model = graph(nodes, {"k": np.ones((1, 3, 6, 8), np.int8)})
    with pytest.raises(PartitionError, match=r"cannot compute \w+ of a constant of int8; allowed"):
        from_onnx(model)


@pytest.mark.parametrize("operator", ["divide", "floor_divide", "mod", "floor_mod"])
@pytest.mark.parametrize("dividend", [var("x", (2, 3)), const(np.ones((2, 3)))])
def test_integers_that_a_constant_zero_divides(operator: str, dividend: Any) -> None:
    """Folding them, and running them, would end the process."""
    whole = relay.cast(dividend, "int32")
    quotient = getattr(relay, operator)(whole, relay.const(np.int32([1, 0, 2])))
    said = rf"{operator} divides by a constant of int32 that is 0 at \[1\]"
    with pytest.raises(PartitionError, match=said):
        partition_for_npu(module(relay.cast(quotient, "float32")), target="npu/nmp-4x8")


@pytest.mark.parametrize(
    ("log", "named"), [("the_log", "the_log"), ("", "Log_0")]
)
def test_nan_at_run_time_names_nodes_and_image(log: str, named: str) -> None:
    """What comes from a logarithm on the CPU; the region's input is of no name of the model."""
    nodes = [
        helper.make_node("Log", ["x"], ["l"], name=log),
        helper.make_node("Conv", ["l", "w"], ["c"], name="first"),
        helper.make_node("Relu", ["c"], ["y"], name="last"),
    ]
    positive = np.abs(IMAGE) + 1
    built = build_onnx(graph(nodes, dict([POINTWISE])), calibration=positive)
    wrong = positive.copy()
    wrong[0, 1, 2, 3] = -1
    said = "input 'in0' of .*, which computes nodes 'first' to 'last': cannot quantize 1 NaN values"
    with pytest.raises(QuantizationError, match=f"{said} in image 0; '{named}' of the model gives"):
        built.run({"x": wrong})


def test_nan_of_an_input_at_run_time_names_it() -> None:
    nodes = [helper.make_node("Conv", ["x", "w"], ["y"], name="only")]
    built = build_onnx(graph(nodes, dict([POINTWISE])), calibration=IMAGE)
    wrong = IMAGE.copy()
    wrong[0, 1, 2, 3] = np.nan
    with pytest.raises(QuantizationError, match="in image 0; 'x' of the model gives NaN"):
        built.run({"x": wrong})


def test_nan_of_a_module_at_run_time_names_operator_and_variable() -> None:
    """A call of Relay has no name."""
    x = relay.var("image", shape=(1, 2, 4, 4), dtype="float32")
    weight = relay.const(np.ones((3, 2, 1, 1), np.float32))
    mod = tvm.IRModule.from_expr(relay.nn.conv2d(relay.log(x), weight, channels=3))
    data = np.ones((1, 2, 4, 4), np.float32)
    marked = partition_for_npu(mod, target="npu/nmp-4x8", calibration=[{"image": data}])
    (program,) = programs(door(), marked).values()
    session = Session(program)
    with pytest.raises(QuantizationError, match=r"in image 0; 'log\(image\)' of the model gives"):
        session.run([np.full_like(data, np.nan)])
