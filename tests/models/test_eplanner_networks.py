"""The networks of the e-PlaNNer thesis: sizes, operations and distinct layers as printed."""

from __future__ import annotations

import math

import pytest
from onnx import TensorProto, helper

from tvm_npu import models
from tvm_npu.models.eplanner import NETWORKS, ThesisNetwork
from tvm_npu.models.layers import LayerShape, distinct_layers, layer_shapes


def layer_macs(shape: LayerShape) -> int:
    return math.prod(shape.output) * math.prod(shape.weights[1:])


@pytest.mark.parametrize("network", NETWORKS, ids=lambda network: network.title)
def test_printed_figures(network: ThesisNetwork) -> None:
    layers = network.scheduled_layers()
    assert len(layers) == network.layers
    assert len(distinct_layers(layers)) == network.distinct
    weights = sum(math.prod(shape.weights) for _, shape in layers)
    assert round(weights * 4 / 2**20, 3) == network.size_mib
    operations = sum(layer_macs(shape) for _, shape in layers)
    if network.title != "SqueezeNet":
        assert round(operations / 2**30, 3) == network.operations_gi


def test_yolov2_passthrough_parts_two_equal_convolutions() -> None:
    model = models.build("yolov2", input_size=64, width=0.25)
    layers = layer_shapes(model)
    groups = list(distinct_layers(layers).values())
    assert ["conv9", "conv11"] in groups
    assert ["conv13"] in groups
    assert dict(layers)["conv13"].readers == 2
    assert len({shape.__class__(**{**vars(shape), "readers": 0}) for _, shape in layers}) == 14


def test_other_builds_of_the_nets() -> None:
    """The releases that the thesis does not mean."""
    small = {"input_size": 224, "width": 0.25}
    assert len(distinct_layers(layer_shapes(models.build("squeezenet1.0", **small)))) == 22
    v1 = layer_shapes(models.build("resnet50", **small), without=("/shortcut",))
    assert len(distinct_layers(v1)) == 18


def test_all_parameters_count() -> None:
    def layer(**changes: object) -> LayerShape:
        attributes = {"strides": [1, 1], "pads": [1, 1, 1, 1], "dilations": [1, 1], "group": 1}
        attributes |= changes
        value = helper.make_tensor_value_info
        nodes = [helper.make_node("Conv", ["x", "w"], ["y"], **attributes)]
        groups = int(str(attributes["group"]))
        inputs = [
            value("x", TensorProto.FLOAT, [1, 4, 9, 9]),
            value("w", TensorProto.FLOAT, [4, 4 // groups, 3, 3]),
        ]
        graph = helper.make_graph(nodes, "g", inputs, [value("y", TensorProto.FLOAT, None)])
        ((name, shape),) = layer_shapes(
            helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)])
        )
        assert name == "y"
        return shape

    plain = layer()
    assert plain == layer()
    assert plain.output == (1, 4, 9, 9)
    for change in (
        {"strides": [2, 1]},
        {"pads": [0, 1, 2, 1]},
        {"dilations": [2, 2]},
        {"group": 2},
    ):
        assert layer(**change) != plain


def test_without_static_shape() -> None:
    model = models.build("lenet")
    model.graph.input[0].type.tensor_type.shape.dim[2].dim_param = "rows"
    with pytest.raises(models.ModelShapeError, match="'data' has no static shape"):
        layer_shapes(model)


def test_gemm_weights_have_one_layout() -> None:
    model = models.build("lenet")
    before = dict(layer_shapes(model))["ip1"]
    assert (before.weights, before.input) == ((500, 800), (1, 800))
    (node,) = (node for node in model.graph.node if node.name == "ip1")
    (tensor,) = (t for t in model.graph.initializer if t.name == "ip1.weight")
    del node.attribute[:]
    tensor.dims[:] = [800, 500]
    assert dict(layer_shapes(model))["ip1"] == before
