"""How large the constants are that an ONNX model computes from others, before anybody does so.

TVM's frontends and its folding of constants make them when a model is read: a ConstantOfShape of
2^36 elements asks for 256 GiB.
"""

from __future__ import annotations

import math
from collections.abc import Container, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from tvm_npu.door.onnx.nodes import called, subgraphs
from tvm_npu.door.onnx.shapes import inferred, known_shapes
from tvm_npu.door.shape_inference import ShapeInferenceError, infer_outputs
from tvm_npu.door.weightless import KEPT_ELEMENTS, without_weights
from tvm_npu.errors import PartitionError
from tvm_npu.sim.lazy import cached_property

MOST_ELEMENTS = 1 << 28
"""That a model may compute beyond its weights: 1 GiB of float32."""

_SIZES = frozenset({"Shape", "Size"})
"""Operators whose results are constants where the shapes of tensors are."""
_AS_LARGE = frozenset(
    {"Cast", "Constant", "DequantizeLinear", "Flatten", "Identity", "QuantizeLinear", "Reshape",
     "Squeeze", "Transpose", "Unsqueeze"}
)  # fmt: skip
"""Operators whose results have as many elements as an input, or as the file."""



@dataclass(frozen=True)
class _Constant:
    """``type`` is ONNX's, ``value`` a TensorProto where it is small."""

    type: Any
    value: Any = None

    @property
    def elements(self) -> int:
        return math.prod(dim.dim_value for dim in self.type.tensor_type.shape.dim)


def check_constants(model: Any) -> None:
    """PartitionError where a model, its subgraphs too, computes constants of more than
    MOST_ELEMENTS elements beyond those that they are computed from: it names the node with which
    there are as many."""
    if _grows(model.graph, frozenset()):
        _Counter(model).count(model.graph, {})


def _grows(graph: Any, outer: frozenset[str]) -> bool:
    """Whether a node computes a constant that may be larger than what it is computed from."""
    constant = {*outer, *(tensor.name for tensor in graph.initializer)}
    for node in graph.node:
        if _is_constant(node, constant):
            constant.update(node.output)
            if node.op_type not in _AS_LARGE | _SIZES:
                return True
        if any(_grows(inner, frozenset(constant)) for inner in subgraphs(node)):
            return True
    return False


def _is_constant(node: Any, constant: Container[str]) -> bool:
    """Whether a node reads constants alone, those whose names are in ``constant``."""
    if node.op_type in _SIZES:
        return True
    return not subgraphs(node) and all(name in constant for name in node.input if name)


class _Counter:
    """Elements that a model computes."""

    def __init__(self, model: Any) -> None:
        self._opsets = {one.domain.replace("ai.onnx", ""): one for one in model.opset_import}
        self._model = model
        self._made = 0

    @cached_property
    def _shapes(self) -> Mapping[str, tuple[int, ...]]:
        """Of the outer graph's tensors, where ONNX can tell them."""
        return known_shapes(inferred(without_weights(self._model), values=True).graph)

    def count(self, graph: Any, outer: Mapping[str, _Constant]) -> None:
        """Those of ``graph``, too; ``outer`` are the constants around it."""
        known = {**outer, **{one.name: _of_tensor(one) for one in graph.initializer}}
        for node in graph.node:
            for inner in subgraphs(node):
                self.count(inner, known)
            if _is_constant(node, known):
                found = self._outputs(node, known)
                if node.op_type not in _AS_LARGE:
                    self._add(node, found, known)
                known.update(found)

    def _add(
        self, node: Any, found: Mapping[str, _Constant], known: Mapping[str, _Constant]
    ) -> None:
        largest = max((known[name].elements for name in node.input if name in known), default=0)
        for one in found.values():
            self._made += max(one.elements - largest, 0)
            if self._made > MOST_ELEMENTS:
                shape = [dim.dim_value for dim in one.type.tensor_type.shape.dim]
                raise PartitionError(
                    f"{called(node)} computes a constant of shape {shape} from others: with it the "
                    f"model computes {self._made:,} elements beyond its weights; allowed: "
                    f"{MOST_ELEMENTS:,}. Make the constant smaller, or an input of the model"
                )

    def _outputs(self, node: Any, known: Mapping[str, _Constant]) -> dict[str, _Constant]:
        """Nothing where ONNX cannot tell: for operators that are not its own, or of another set."""
        from onnx import helper

        if node.op_type == "Constant" and [one.name for one in node.attribute] == ["value"]:
            return {node.output[0]: _of_tensor(node.attribute[0].t)}
        if node.op_type in _SIZES and node.input[0] not in known:
            shape = self._shapes.get(node.input[0], ())
            if node.op_type != "Shape" or node.attribute or not all(shape):
                return {}
            value = helper.make_tensor("", 7, [len(shape)], shape)  # int64
            return {node.output[0]: _of_tensor(value)}
        read = {name: known[name] for name in node.input if name}
        opset = self._opsets.get(node.domain.replace("ai.onnx", ""))
        if opset is None:
            return {}
        try:
            types = infer_outputs(
                called(node), node, list(self._opsets.values()), opset.version,
                self._model.ir_version, {name: one.type for name, one in read.items()},
                {name: one.value for name, one in read.items() if one.value is not None},
            )  # fmt: skip
        except ShapeInferenceError:  # who reads the model says what is wrong with it
            return {}
        found = {name: _Constant(kind) for name, kind in types.items()}
        small = all(one.elements <= KEPT_ELEMENTS for one in found.values())
        if not small or any(one.value is None for one in read.values()):
            return found
        return {**found, **self._evaluated(node, read)}

    def _evaluated(self, node: Any, read: Mapping[str, _Constant]) -> dict[str, _Constant]:
        """What a node with small inputs and outputs computes; nothing where ONNX's reference does
        not know."""
        from onnx import helper, numpy_helper
        from onnx.reference import ReferenceEvaluator

        outputs = [name for name in node.output if name]
        graph = helper.make_graph(
            [node], "one", [helper.make_value_info(name, one.type) for name, one in read.items()],
            [helper.make_empty_tensor_value_info(name) for name in outputs],
        )  # fmt: skip
        try:
            model = helper.make_model(graph, opset_imports=list(self._opsets.values()))
            feed = {name: numpy_helper.to_array(one.value) for name, one in read.items()}
            with np.errstate(all="ignore"):
                values = ReferenceEvaluator(model).run(None, feed)
            made = [numpy_helper.from_array(np.asarray(value)) for value in values]
        except Exception:
            return {}
        return dict(zip(outputs, map(_of_tensor, made), strict=True))


def _of_tensor(tensor: Any) -> _Constant:
    from onnx import helper

    small = math.prod(tensor.dims) <= KEPT_ELEMENTS and tensor.data_location != tensor.EXTERNAL
    return _Constant(
        helper.make_tensor_type_proto(tensor.data_type, list(tensor.dims)),
        tensor if small else None,
    )
