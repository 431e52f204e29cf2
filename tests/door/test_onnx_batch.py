"""How many images a run of a model takes: which axis of its inputs counts them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")
from onnx import TensorProto, helper, numpy_helper  # noqa: E402

from tvm_npu.calibration import InputSpec, images_of_run  # noqa: E402
from tvm_npu.comparison.inputs import onnx_inputs  # noqa: E402
from tvm_npu.models import build_recurrent  # noqa: E402

STEPS, BATCH, WIDTH = 20, 3, 8


def lstm(read: str, layout: int = 0) -> Any:
    return helper.make_node("LSTM", [read, "w", "r"], ["y"], hidden_size=4, layout=layout)


def node(operator: str, *read: str, **attributes: Any) -> Any:
    return helper.make_node(operator, read, ["a"], **attributes)


def images(nodes: list[Any], inputs: dict[str, tuple[int, ...]]) -> int:
    constants = {
        "w": np.zeros((1, 16, WIDTH)), "r": np.zeros((1, 16, 4)), "words": np.zeros((9, WIDTH)),
        "square": np.zeros((WIDTH, WIDTH)), "one": np.array([1]), "zero": np.array([0]),
    }  # fmt: skip
    graph = helper.make_graph(
        nodes, "g",
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in inputs],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(value, name) for name, value in constants.items()],
    )  # fmt: skip
    return images_of_run(onnx_inputs(helper.make_model(graph), inputs))


@pytest.mark.parametrize(
    ("nodes", "shape"),
    [
        ([lstm("x")], (STEPS, BATCH, WIDTH)),
        ([lstm("x", layout=1)], (BATCH, STEPS, WIDTH)),
        ([node("Relu", "x"), lstm("a")], (STEPS, BATCH, WIDTH)),
        ([node("MatMul", "x", "square"), lstm("a")], (STEPS, BATCH, WIDTH)),
        ([node("Transpose", "x", perm=[1, 0, 2]), lstm("a")], (BATCH, STEPS, WIDTH)),
        ([node("Gather", "words", "x"), lstm("a")], (STEPS, BATCH)),
        ([node("Squeeze", "x", "one"), lstm("a")], (STEPS, 1, BATCH, WIDTH)),
        ([node("Unsqueeze", "x", "zero"), lstm("a", layout=1)], (STEPS, WIDTH)),
        ([node("Unsqueeze", "x", "one"), lstm("a")], (STEPS, WIDTH)),
    ],
)  # fmt: skip
def test_a_sequence_is_one_image(nodes: list[Any], shape: tuple[int, ...]) -> None:
    assert images(nodes, {"x": shape}) == (BATCH if BATCH in shape else 1)


@pytest.mark.parametrize("with_states", [False, True])
@pytest.mark.parametrize("cell", ["lstm", "gru"])
def test_stacks_of_recurrent_layers(cell: Any, with_states: bool) -> None:
    model = build_recurrent(cell, hidden=8, steps=7, batch=2, with_states=with_states)
    shapes = {
        one.name: tuple(dim.dim_value for dim in one.type.tensor_type.shape.dim)
        for one in model.graph.input
    }
    assert len(shapes) == 1 + with_states * 2 * (2 if cell == "lstm" else 1)
    assert images_of_run(onnx_inputs(model, shapes)) == 2


@pytest.mark.parametrize(
    ("shapes", "wanted"),
    [
        ([(4, 3, 8, 8)], 4),
        ([(), (4, 3, 8, 8), (3,)], 4),
        ([(4, 9), (1, 9), (4, 9)], 4),
        ([(100, 4), (1, 3, 8, 8)], 1),
        ([(5,)], 5),
        ([()], 1),
        ([], 1),
    ],
)  # fmt: skip
def test_inputs_of_several_kinds(shapes: list[tuple[int, ...]], wanted: int) -> None:
    inputs = [InputSpec(str(number), shape, "float32") for number, shape in enumerate(shapes)]
    assert images_of_run(inputs) == wanted
