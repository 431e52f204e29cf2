"""Hand-built dataflows: a short way to write operator calls, no TVM needed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tvm_npu.codegen.graph import Layer
from tvm_npu.codegen.ops import OPERATORS
from tvm_npu.door.backend import LayerTypes, needed_layers
from tvm_npu.door.dataflow import Constant, Dataflow, Input, OpCall, TensorType, Value, constant
from tvm_npu.door.operators import MISSING
from tvm_npu.door.partition import Partition, partition
from tvm_npu.door.rules import Context
from tvm_npu.sim.machine_file import load_machine

Array = NDArray[Any]


def all_layers() -> LayerTypes:
    """What a machine must have code for to take everything."""
    kinds = (kind for kind in OPERATORS if issubclass(kind, Layer))
    return frozenset().union(*(needed_layers(kind) for kind in kinds))


Shape = Sequence[int | str]


def randoms(seed: int, *shape: int) -> Array:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def x(*shape: int | str, dtype: str = "float32", name: str = "x") -> Input:
    return Input((TensorType(shape, dtype),), name=name)


def const(*shape: int, seed: int = 7) -> Constant:
    return constant(randoms(seed, *shape))


def call(
    name: str, *operands: Value, to: Shape | Sequence[Shape], source: str = "", **attributes: Any
) -> OpCall:
    """``to``: the shape of the result, or a list of shapes for a tuple of results."""
    is_tuple = isinstance(to, list)
    shapes: Any = to if is_tuple else [to]
    dtype = operands[0].types[0].dtype if operands else "float32"
    return OpCall(
        name=name,
        operands=operands,
        types=tuple(TensorType(tuple(shape), dtype) for shape in shapes),
        spelling=f"my.{name}",
        source=source,
        returns_tuple=is_tuple,
        raw_attribute=lambda key: attributes.get(key, MISSING),
    )


def of(name: str, *operands: Value, to: Shape, **attributes: Any) -> Value:
    """The only result of a call."""
    return call(name, *operands, to=to, **attributes).result()


def conv(data: Value, filters: int, size: int = 3, **attributes: Any) -> Value:
    """Convolution with padding that keeps rows and columns."""
    batch, channels, rows, columns = data.shape
    weight = const(filters, channels, size, size)
    return of(
        "conv2d", data, weight, to=(batch, filters, rows, columns), padding=size // 2, **attributes
    )


def flow(*outputs: Value) -> Dataflow:
    """What hangs on ``outputs``; its inputs are all `Input`s in order of use."""
    found = Dataflow((), outputs)
    inputs = dict.fromkeys(value for _, value in found.uses() if isinstance(value, Input))
    return Dataflow(tuple(inputs), outputs, len(outputs) > 1)


def split(
    *outputs: Value, machine: str = "nmp-4x8", precision: Any = "int16", offload: Any = "all"
) -> Partition:
    return partition(flow(*outputs), Context(load_machine(machine), precision, offload))
