"""A model as primitives, the functions that its TVM runs one after another: what cuts go between.

Everything that TVM does to a whole graph (folding, blocked layouts, fusion) changes bits, and
changes them differently in a piece of the graph. So a door does it once, on the whole model; what
is cut later is the sequence of functions that it leaves, and no graph pass sees the pieces.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from tvm_npu.door.dataflow import TensorType, static
from tvm_npu.door.work import Work


@dataclass(frozen=True, order=True)
class Value:
    """One tensor: result ``position`` of primitive ``node``, or input ``position`` (node -1)."""

    node: int
    position: int


@dataclass(frozen=True)
class Primitive:
    """One call of a fused function or of an NPU region.

    ``call`` is the door's own; ``results`` have static shapes. ``source`` names the operators of
    the model inside that have work (for a region: all of them); empty where TVM's passes changed
    too much to tell.
    """

    call: Any
    reads: tuple[Value, ...]
    results: tuple[TensorType, ...]
    work: Work
    parameter_bytes: int
    operators: tuple[str, ...]
    source: tuple[str, ...]
    is_region: bool


@dataclass(frozen=True)
class PrimitiveGraph:
    """``outputs`` are the model's, in its order; one tensor may be two outputs. ``mod`` is the
    module that the calls stand in."""

    mod: Any
    inputs: tuple[tuple[str, TensorType], ...]
    """Names and types."""
    primitives: tuple[Primitive, ...]
    outputs: tuple[Value, ...]

    def type_of(self, value: Value) -> TensorType:
        if value.node < 0:
            return self.inputs[value.position][1]
        return self.primitives[value.node].results[value.position]

    def size_bytes(self, values: Sequence[Value]) -> int:
        """Of all together."""
        types = [self.type_of(value) for value in values]
        return sum(prod(static(type_)) * np.dtype(type_.dtype).itemsize for type_ in types)

    def crossing(self, before: set[int]) -> tuple[Value, ...]:
        """Tensors made by the primitives ``before`` a cut (or inputs) and read, or returned by the
        model, behind it."""
        wanted = {
            value
            for number, primitive in enumerate(self.primitives)
            if number not in before
            for value in primitive.reads
        }
        wanted.update(self.outputs)
        return tuple(sorted(value for value in wanted if value.node < 0 or value.node in before))
