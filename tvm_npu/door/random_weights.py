"""Random weights for ONNX models that come without: what a network costs does not depend on them.

Weights are drawn as in `tvm_npu.models`, so that activations stay in a sane range.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from tvm_npu.errors import PartitionError
from tvm_npu.models._weights import Array, generator, he_weights

Role = Literal["kernel", "factor", "summand"]
"""What a weight does to activations: a sum of products with it, a product, a sum."""
_KERNELS = frozenset({"Conv", "ConvTranspose", "Gemm", "MatMul", "LSTM", "GRU", "RNN"})
_FACTORS = {
    **dict.fromkeys(("LayerNormalization", "InstanceNormalization", "GroupNormalization"), (1,)),
    **dict.fromkeys(("Mul", "Div", "PRelu"), (0, 1)),
    "BatchNormalization": (1, 4),
}
_TAKE_WEIGHTS = frozenset({*_KERNELS, *_FACTORS} - {"MatMul", "Mul", "Div"})
"""Operators whose operands behind the first one are weights, not a model's own inputs."""
_LENGTHS_AND_STATES = {"LSTM": (4, 5, 6), "GRU": (4, 5), "RNN": (4, 5)}
"""Numbers of the operands that are none all the same: what a model may be given."""
LOWEST_FACTOR, HIGHEST_FACTOR = 0.75, 1.25
DEVIATION = 0.05
"""Of summands."""


@dataclass(frozen=True)
class _Use:
    """The first place where a tensor is read: a node's input number ``index``."""

    node: Any
    index: int

    @property
    def role(self) -> Role:
        kind = self.node.op_type
        if kind in _KERNELS and (self.index == 1 or (kind in ("LSTM", "GRU") and self.index == 2)):
            return "kernel"
        return "factor" if self.index in _FACTORS.get(kind, ()) else "summand"

    def fan_in(self, shape: tuple[int, ...]) -> int:
        """Products that an output of the kernel sums."""
        kind = self.node.op_type
        if kind == "Conv":
            return math.prod(shape[1:])
        if kind == "ConvTranspose":
            return shape[0] * math.prod(shape[2:])
        if kind == "Gemm":
            turned = any(item.name == "transB" and item.i for item in self.node.attribute)
            return shape[1] if turned else shape[0]
        return shape[-2] if kind == "MatMul" else shape[-1]


def with_random_weights(model: Any, seed: int, folder: Path) -> Any:
    """A copy of an onnx.ModelProto whose missing weights are random: initializers without data, or
    whose file is not in ``folder``, and inputs that operators take as weights; the model itself
    when none is missing. PartitionError for one that is no float, or has no shape."""
    import onnx

    missing = dict(_missing(model, folder))
    if not missing:
        return model
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    graph, random, uses = copy.graph, generator(seed), _uses(model)
    drawn = []
    for name, (shape, dtype) in missing.items():
        if not np.issubdtype(dtype, np.floating):
            raise PartitionError(f"{name!r} has no data, and is {dtype}: only floats can be random")
        values = _drawn(random, uses.get(name), shape).astype(dtype)
        drawn.append(onnx.numpy_helper.from_array(values, name))
    for field in (graph.initializer, graph.input):
        kept = [item for item in field if item.name not in missing]
        del field[:]
        field.extend(kept)
    graph.initializer.extend(drawn)
    return copy


def _missing(model: Any, folder: Path) -> Iterator[tuple[str, tuple[tuple[int, ...], Any]]]:
    """(name, (shape, type)) of weights without values."""
    from onnx.helper import tensor_dtype_to_np_dtype

    graph = model.graph
    for tensor in graph.initializer:
        if _is_empty(tensor, folder):
            yield tensor.name, (tuple(tensor.dims), tensor_dtype_to_np_dtype(tensor.data_type))
    known = {tensor.name for tensor in graph.initializer}
    taken = {
        name
        for node in graph.node
        if node.op_type in _TAKE_WEIGHTS
        for index, name in enumerate(node.input)
        if index and index not in _LENGTHS_AND_STATES.get(node.op_type, ())
    }
    for value in graph.input:
        if value.name in taken and value.name not in known:
            kind = value.type.tensor_type
            shape = tuple(int(dim.dim_value) for dim in kind.shape.dim)
            if not all(shape):
                raise PartitionError(f"weight {value.name!r} has the open shape {shape}")
            yield value.name, (shape, tensor_dtype_to_np_dtype(kind.elem_type))


def _is_empty(tensor: Any, folder: Path) -> bool:
    if not math.prod(tensor.dims):
        return False
    if tensor.data_location == tensor.EXTERNAL:
        (location,) = [item.value for item in tensor.external_data if item.key == "location"]
        return not os.path.isfile(folder / location)
    return not any(field.name.endswith("_data") for field, _ in tensor.ListFields())


def _uses(model: Any) -> Mapping[str, _Use]:
    found: dict[str, _Use] = {}
    for node in model.graph.node:
        for index, name in enumerate(node.input):
            found.setdefault(name, _Use(node, index))
    return found


def _drawn(random: np.random.Generator, use: _Use | None, shape: tuple[int, ...]) -> Array:
    role = "summand" if use is None else use.role
    if use is not None and role == "kernel":
        return he_weights(random, shape, use.fan_in(shape))
    if role == "factor":
        return random.uniform(LOWEST_FACTOR, HIGHEST_FACTOR, shape).astype(np.float32)
    return (DEVIATION * random.standard_normal(shape)).astype(np.float32)
