"""What all layers have in common, whatever their operator (`codegen.ops`)."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np

from tvm_npu.codegen.errors import GraphError
from tvm_npu.codegen.fixed_point import requantize
from tvm_npu.codegen.graph.activation import SLOPE_BITS
from tvm_npu.codegen.graph.lookup import Table
from tvm_npu.codegen.graph.rescaling import Rescaling
from tvm_npu.codegen.graph.tensors import Array, IntArray


@dataclass(frozen=True)
class State:
    """A tensor that a layer keeps in memory from step to step while it runs, for example the
    hidden state of a recurrent layer.

    ``tensor`` is the memory. It begins as the layer's input ``initial`` (None: all zeros), and its
    last value is the layer's output ``final`` (None: nobody asks for it). All three have one shape
    and one scale.
    """

    tensor: str
    initial: str | None = None
    final: str | None = None

    @property
    def tensors(self) -> tuple[str, ...]:
        """The state and what has its shape and scale."""
        return tuple(one for one in (self.tensor, self.initial, self.final) if one is not None)


class _Output:
    """What float and fixed layers answer about their tensors."""

    name: str
    outputs: tuple[str, ...]

    @property
    def output(self) -> str:
        """The output of a layer that has one; GraphError for a layer that has several."""
        if len(self.outputs) != 1:
            raise GraphError(f"layer {self.name!r} has {len(self.outputs)} outputs, not one")
        return self.outputs[0]


@dataclass(frozen=True, eq=False)
class Layer(_Output):
    """A float layer: who it is, what it reads and writes, where it came from."""

    name: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    source: tuple[str, ...] = field(default=(), kw_only=True)
    """Names of the source operators (for example ONNX nodes) that this layer implements."""
    states: tuple[State, ...] = field(default=(), kw_only=True)


def renamed(layer: Layer, old: str, new: str) -> Layer:
    """``layer`` with the tensor ``new`` wherever it had ``old``."""

    def name(tensor: str) -> str:
        return new if tensor == old else tensor

    states = tuple(
        State(name(one.tensor), one.initial and name(one.initial), one.final and name(one.final))
        for one in layer.states
    )
    inputs, outputs = (tuple(map(name, tensors)) for tensors in (layer.inputs, layer.outputs))
    return replace(layer, inputs=inputs, outputs=outputs, states=states)


@dataclass(frozen=True, eq=False)
class FixedLayer(_Output):
    """A layer on integers; its fields say what a machine computes. ``out_bytes`` are those of an
    element of its results, where it is not as wide as one of its operands."""

    name: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    source: tuple[str, ...] = field(default=(), kw_only=True)
    states: tuple[State, ...] = field(default=(), kw_only=True)
    out_bytes: Literal[1, 2] | None = field(default=None, kw_only=True)


@dataclass(frozen=True, eq=False)
class Requantized(FixedLayer):
    """A layer that ends in the requantize step (`codegen.fixed_point.requantize`), and then, where
    it has one, in a table.

    With ``slopes``, one or one a channel, negative accumulators are multiplied by the slope, and
    SLOPE_BITS are added to their shift. With ``rescaling`` the accumulators are multiplied, and the
    shift is not used. A layer with ``out_bytes`` has no table.
    """

    shift: int = field(kw_only=True)
    low: int = field(kw_only=True)
    high: int = field(kw_only=True)
    table: Table | None = field(default=None, kw_only=True)
    slopes: IntArray | None = field(default=None, kw_only=True)
    rescaling: Rescaling | None = field(default=None, kw_only=True)

    def requantized(
        self, acc: Array, element_bytes: int, more: int | IntArray = 0
    ) -> IntArray:
        """The layer's results for accumulators of operands of ``element_bytes``, whose shifts are
        ``more`` than `shift`."""
        element_bytes = self.out_bytes or element_bytes
        if self.rescaling is not None:
            return self.rescaling.apply(acc, self.low, self.high, element_bytes)
        found = requantize(acc, self.shift + more, self.low, self.high, element_bytes)
        if self.slopes is not None:
            scaled = acc * self.slopes.astype(np.int64).reshape(-1, *[1] * (acc.ndim - 2))
            shift = self.shift + more + SLOPE_BITS
            below = requantize(scaled, shift, self.low, self.high, element_bytes)
            found = np.where(acc < 0, below, found)
        return found if self.table is None else self.table.look_up(found, element_bytes)
