"""The papers' networks as chains of layers, read off their ONNX models without TVM.

Convolutions and fully connected layers are the layers (Shisha counts only these, "compute
intensive"); Pipe-Search also counts pools. Everything else belongs to the layer before it. A layer
beside the main branch (a projection in ResNet) belongs to the unit before it too, so that ResNet-50
has the papers' 50 layers.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import onnx

from tvm_npu.models import ModelShapeError, Shapes, build, static_shapes
from tvm_npu.pipelines.chain import ChainLayer, LayerChain

MATRIX = ("Gemm", "MatMul")
POOLS = ("MaxPool", "AveragePool", "GlobalAveragePool", "GlobalMaxPool")
ELEMENT_BYTES = 4


@dataclass
class _Unit:
    """Nodes that stay together; ``made`` are the tensors that they produce."""

    nodes: list[onnx.NodeProto]
    made: set[str]


def model_chain(name: str, pools: bool, title: str | None = None) -> LayerChain:
    """The model that `tvm_npu.models.build` knows by ``name``; ``title``: the chain's own name."""
    return onnx_chain(build(name), title or name, pools)


def synthetic_chain(name: str, weights: tuple[int, ...], macs_a_unit: int) -> LayerChain:
    """A chain of weights alone, as Pipe-Search publishes Synth 1-3: convolutions whose parameters
    and tensors cost nothing."""
    layers = tuple(
        ChainLayer(f"layer{index}", float(weight * macs_a_unit), weight * macs_a_unit, 0, 0)
        for index, weight in enumerate(weights)
    )
    return LayerChain(name, layers)


def onnx_chain(model: onnx.ModelProto, name: str, pools: bool) -> LayerChain:
    """Raises ModelShapeError for a tensor without a static shape."""
    shapes = static_shapes(model)
    parameters = {tensor.name for tensor in model.graph.initializer}
    units = _units(model.graph.node, parameters, ("Conv", *MATRIX, *(POOLS if pools else ())))
    used = [
        {tensor for node in unit.nodes for tensor in node.input if tensor not in parameters}
        for unit in units
    ]
    layers = []
    for index, unit in enumerate(units):
        later = set().union(*used[index + 1 :])
        made = set().union(*(one.made for one in units[: index + 1]))
        crossing = later & made if later else {out.name for out in model.graph.output}
        own = {t for node in unit.nodes for t in node.input if t in parameters}
        layers.append(
            ChainLayer(
                name=unit.nodes[0].name or unit.nodes[0].output[0],
                weight=float(sum(_weight(node, shapes) for node in unit.nodes)),
                macs=sum(_macs(node, shapes) for node in unit.nodes),
                parameter_bytes=ELEMENT_BYTES * sum(_size(shapes, tensor) for tensor in own),
                activation_bytes=ELEMENT_BYTES * sum(_size(shapes, t) for t in crossing),
                source=tuple(node.name or node.output[0] for node in unit.nodes),
            )
        )
    inputs = [value.name for value in model.graph.input if value.name not in parameters]
    return LayerChain(
        name, tuple(layers), ELEMENT_BYTES * sum(_size(shapes, tensor) for tensor in inputs)
    )


def _units(
    nodes: Iterator[onnx.NodeProto], parameters: set[str], layer_ops: tuple[str, ...]
) -> list[_Unit]:
    units: list[_Unit] = []
    for node in nodes:
        data = {tensor for tensor in node.input if tensor not in parameters}
        begins = node.op_type in layer_ops and (not units or bool(data & units[-1].made))
        if begins or not units:
            units.append(_Unit([], set()))
        units[-1].nodes.append(node)
        units[-1].made.update(node.output)
    return units


def _weight(node: onnx.NodeProto, shapes: Shapes) -> int:
    """Equation 1: H W C of the input times R S K of the kernel; Equation 2: inputs times outputs;
    a pool: the inputs."""
    if node.op_type == "Conv":
        filters, channels, *kernel = _shape(shapes, node.input[1])
        batch, _, *plane = _shape(shapes, node.input[0])
        return batch * math.prod(plane) * channels * math.prod(kernel) * filters
    if node.op_type in MATRIX:
        return _macs(node, shapes)
    return _size(shapes, node.input[0]) if node.op_type in POOLS else 0


def _macs(node: onnx.NodeProto, shapes: Shapes) -> int:
    if node.op_type == "Conv":
        return _size(shapes, node.output[0]) * math.prod(_shape(shapes, node.input[1])[1:])
    if node.op_type in MATRIX:
        return _size(shapes, node.output[0]) * _shape(shapes, node.input[0])[-1]
    return 0


def _size(shapes: Shapes, tensor: str) -> int:
    return math.prod(_shape(shapes, tensor))


def _shape(shapes: Shapes, tensor: str) -> tuple[int, ...]:
    if tensor not in shapes:
        raise ModelShapeError(f"tensor {tensor!r} has no static shape; allowed: static")
    return shapes[tensor]
