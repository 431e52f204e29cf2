"""The nine light classic CNNs that the onnx package carries, given random weights.

The files under onnx/backend/test/data/light/ are zoo models (opset 9, IR 3) whose large weights
are each one `ConstantOfShape` of 0.02, while some small ones kept their trained values.
`build_light` replaces both by seeded He-scaled initializers, following estimated moments
through the graph so that every network has sane, finite values.
The structure stays: opset 9, the original nodes and names. Only what cannot stay goes: the
ConstantOfShape nodes, the unused mask outputs of Dropout, and IR 3 (raised to 4, the first in
which initializers need not be graph inputs).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from ._macs import Shapes, static_shapes
from ._weights import (
    Array,
    Moments,
    batch_norm_statistics,
    generator,
    he_weights,
    mixed,
    small_biases,
)
from .errors import ModelDataError, UnknownModelError

LIGHT_IR_VERSION = 4
_PREFIX = "light_"
_UNCHANGED = ("AveragePool", "GlobalAveragePool", "Dropout", "Softmax", "Transpose")


def light_models() -> dict[str, Path]:
    """Name -> file of each light model of the installed onnx package, sorted by name."""
    if onnx.__file__ is None:
        raise ModelDataError("the onnx package has no folder; allowed: a normal installation")
    folder = Path(onnx.__file__).parent / "backend" / "test" / "data" / "light"
    found = {path.stem[len(_PREFIX) :]: path for path in sorted(folder.glob(f"{_PREFIX}*.onnx"))}
    if not found:
        raise ModelDataError(f"the onnx package has no light models in {folder}")
    return found


def build_light(name: str, seed: int = 0) -> onnx.ModelProto:
    """The light model `name`, float32 [1, 3, 224, 224] -> [1, 1000(, 1, 1)], with weights."""
    files = light_models()
    if name not in files:
        raise UnknownModelError(name, files)
    return _Reweighter(onnx.load(files[name]), seed).run()


class _Reweighter:
    """Walks a graph once, drawing each weight where it is consumed."""

    def __init__(self, model: onnx.ModelProto, seed: int) -> None:
        self._model = model
        self._rng = generator(seed)
        self._shapes: Shapes = static_shapes(model)
        self._moments: dict[str, Moments] = {}
        self._weights: dict[str, Array] = {}
        graph = model.graph
        integers = {t.name for t in graph.initializer if t.data_type != TensorProto.FLOAT}
        floats = {t.name for t in graph.initializer} - integers
        filled = {n.output[0] for n in graph.node if n.op_type == "ConstantOfShape"}
        self._source = {constant: constant for constant in sorted(floats | filled)}
        """Constant or view of one -> the constant behind it."""
        known = floats | integers
        self._inputs = [value for value in graph.input if value.name not in known]
        for value in self._inputs:
            self._moments[value.name] = Moments()
        layers = [n.output[0] for n in graph.node if n.op_type in ("Conv", "Gemm")]
        self._classifier = layers[-1]
        self._rules: dict[str, Callable[[onnx.NodeProto, list[Moments]], Moments]] = {
            "Conv": self._weighted,
            "Gemm": self._weighted,
            "BatchNormalization": self._batch_norm,
            "Mul": self._scale,
            "Add": self._shift,
            "LRN": _local_response,
            "Sum": _sum,
            "Concat": self._concat,
            "Relu": lambda node, x: x[0].relu(),
            "MaxPool": lambda node, x: x[0].max_pool(),
            "Reshape": lambda node, x: x[0],
        }
        for op_type in _UNCHANGED:
            self._rules[op_type] = lambda node, x: x[0]

    def run(self) -> onnx.ModelProto:
        graph = self._model.graph
        nodes = []
        for node in graph.node:
            if node.op_type == "ConstantOfShape":
                continue
            if node.input[0] in self._source:  # Unsqueeze or Reshape of a constant: a view of it
                self._source[node.output[0]] = self._source[node.input[0]]
            else:
                rule = self._rules.get(node.op_type)
                if rule is None:
                    known = ", ".join(sorted(self._rules))
                    raise ModelDataError(f"light model has op {node.op_type}; known: {known}")
                activations = [self._moments[x] for x in node.input if x in self._moments]
                self._moments[node.output[0]] = rule(node, activations)
            del node.output[1:]
            nodes.append(node)
        return self._assemble(nodes)

    def _assemble(self, nodes: list[onnx.NodeProto]) -> onnx.ModelProto:
        used = {name for node in nodes for name in node.input}
        graph = self._model.graph
        kept = [t for t in graph.initializer if t.name in used and t.name not in self._source]
        drawn = [numpy_helper.from_array(value, name) for name, value in self._weights.items()]
        model = helper.make_model(
            helper.make_graph(
                nodes, graph.name, self._inputs, list(graph.output), initializer=kept + drawn
            ),
            opset_imports=list(self._model.opset_import),
            producer_name="tvm-npu",
        )
        model.ir_version = max(LIGHT_IR_VERSION, self._model.ir_version)
        return model

    def _shape(self, constant: str) -> tuple[int, ...]:
        return self._shapes[self._source[constant]]

    def _set(self, constant: str, value: Array) -> None:
        self._weights[self._source[constant]] = value.reshape(self._shape(constant))

    def _weighted(self, node: onnx.NodeProto, x: list[Moments]) -> Moments:
        """Conv and Gemm; the last one gets logits of unit power."""
        shape = self._shape(node.input[1])
        features = shape[0] if node.op_type == "Conv" else self._shapes[node.output[0]][1]
        fan_in = math.prod(shape) // features
        gain = 1.0 / x[0].power if node.output[0] == self._classifier else 2.0
        moments = x[0].weighted(gain)
        self._set(node.input[1], he_weights(self._rng, shape, fan_in, gain))
        if len(node.input) > 2:
            self._set(node.input[2], small_biases(self._rng, features, moments.power))
        return moments

    def _batch_norm(self, node: onnx.NodeProto, x: list[Moments]) -> Moments:
        channels = math.prod(self._shape(node.input[1]))
        statistics = batch_norm_statistics(self._rng, channels, x[0])
        self._set(node.input[1], statistics.scale)
        self._set(node.input[2], statistics.bias)
        self._set(node.input[3], statistics.mean)
        self._set(node.input[4], statistics.variance)
        return Moments()

    def _scale(self, node: onnx.NodeProto, x: list[Moments]) -> Moments:
        """Caffe's Scale layer behind a batch normalization: Mul by a constant per channel."""
        constant = node.input[1]
        channels = math.prod(self._shape(constant))
        self._set(constant, self._rng.uniform(0.8, 1.2, channels).astype(np.float32))
        return x[0]

    def _shift(self, node: onnx.NodeProto, x: list[Moments]) -> Moments:
        constant = node.input[1]
        self._set(constant, small_biases(self._rng, math.prod(self._shape(constant)), x[0].power))
        return x[0]

    def _concat(self, node: onnx.NodeProto, x: list[Moments]) -> Moments:
        sizes = [math.prod(self._shapes[name]) for name in node.input]
        return mixed(list(zip(x, sizes, strict=True)))


def _sum(node: onnx.NodeProto, x: list[Moments]) -> Moments:
    total = x[0]
    for other in x[1:]:
        total = total.plus(other)
    return total


def _local_response(node: onnx.NodeProto, x: list[Moments]) -> Moments:
    """LRN divides by (bias + alpha * mean of squares) ** beta."""
    attributes = {attribute.name: attribute.f for attribute in node.attribute}
    squares = attributes.get("bias", 1.0) + attributes.get("alpha", 1e-4) * x[0].power
    factor = squares ** -attributes.get("beta", 0.75)
    return Moments(x[0].mean * factor, x[0].variance * factor**2)
