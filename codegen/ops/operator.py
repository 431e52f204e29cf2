"""What the compiler asks an operator: the protocol of the rooms in this folder."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Generic, NamedTuple, TypeVar

import numpy as np

from tvm_npu.codegen.errors import GraphError, QuantizationError
from tvm_npu.codegen.fixed_point import round_constant
from tvm_npu.codegen.graph.activation import Activation, Clip
from tvm_npu.codegen.graph.layer import FixedLayer, Layer
from tvm_npu.codegen.graph.scale import Scale
from tvm_npu.codegen.graph.tensors import Array, Shape
from tvm_npu.sim.description import Q_POINTS_ONLY, Requantization

L = TypeVar("L", bound=Layer)
F = TypeVar("F", bound=FixedLayer)
Arrays = Sequence[Array]
Shapes = Sequence[Shape]
MAX_SHIFT = 46
MIN_SHIFT = -31


class Placement(Enum):
    """Who makes a layer's outputs."""

    COMPUTED = "computed"
    """Instructions do; the outputs have memory of their own."""
    VIEW = "view"
    """Nobody: each output is a part of the one input, where it lies."""
    GATHERED = "gathered"
    """Nobody: the inputs are made one after the other inside the one output."""


class Order(Enum):
    """What a layer does with the order in which its inputs' elements lie in memory."""

    SHAPED = "shaped"
    """It hangs on it: inputs must lie as their shapes say."""
    KEPT = "kept"
    """Element by element: any order that all inputs share, and the outputs have it too."""
    FIRST_FREE = "first free"
    """The first input may lie in any order: weights are arranged to meet it."""
    RESHAPED = "reshaped"
    """The output is the input under another shape."""


@dataclass(frozen=True)
class Numbers:
    """The formats that a layer is quantized to: every tensor's scale, the bytes of an element of
    its operands and weights, and those of its results where these are others."""

    scales: Mapping[str, Scale]
    element_bytes: int
    requantization: Requantization = Q_POINTS_ONLY
    """What the machine's requantize step can do; weights of some layers use it."""
    out_bytes: int | None = None

    def q_point(self, tensor: str) -> int:
        """Of a tensor that has one; QuantizationError for another scale."""
        return self.scales[tensor].q_point

    def are_q_points(self, layer: Layer) -> bool:
        """Whether every tensor of ``layer`` has a Q-point."""
        return all(self.scales[tensor].is_q_point for tensor in (*layer.inputs, *layer.outputs))

    def whole_scale(self, layer: Layer, tensor: str | None = None) -> Scale:
        """The scale of a tensor of ``layer`` (its output), one for all channels;
        QuantizationError for scales of channels."""
        scale = self.scales[layer.output if tensor is None else tensor]
        if scale.channels is not None:
            raise QuantizationError(
                f"layer {layer.name!r}: {tensor or layer.output!r} has a scale for each channel; "
                "machines take one a tensor"
            )
        return scale

    def constant(self, layer: Layer, value: float, tensor: str) -> int:
        """A constant of ``layer`` as an integer of ``tensor``."""
        try:
            scale = self.scales[tensor]
            if not scale.is_q_point:
                return int(scale.quantize(np.array([value]), self.element_bytes)[0])
            return round_constant(value, scale.q_point, self.element_bytes)
        except QuantizationError as error:
            raise QuantizationError(f"layer {layer.name!r}: {error}") from None

    def bounds(self, layer: Layer, activation: Activation) -> tuple[int, int]:
        """An activation as integers of the layer's output; low <= high."""
        try:
            if isinstance(activation, Clip) and not self.scales[layer.output].is_q_point:
                high = self.constant(layer, activation.high, layer.output)
                return min(self.constant(layer, activation.low, layer.output), high), high
            return activation.bounds(
                self.q_point(layer.output), self.out_bytes or self.element_bytes
            )
        except QuantizationError as error:
            raise QuantizationError(f"layer {layer.name!r}: {error}") from None


class CutTerms(NamedTuple):
    """Terms that a layer cuts at -``limit`` and ``limit``. ``name`` is that of the range which
    calibration has of them: `Operator.states_float` gives those whose cut changes a result."""

    name: str
    limit: float


class Operator(Generic[L, F]):
    """One operator: its float layer, its fixed-point layer, and what both mean.

    ``layer`` and ``fixed`` are its dataclasses; None where it has no such form: some float layers
    are rewritten before they are quantized, some fixed ones are made later. Shapes leave the batch
    out, arrays [B, *shape] have it.
    """

    layer: type[L] | None = None
    fixed: type[F] | None = None
    placement = Placement.COMPUTED
    may_widen = False
    """Whether results may have another width than operands (`FixedLayer.out_bytes`)."""
    halves_away = False
    """Whether results between two integers of a quantized model's scale go away from zero."""

    def shapes(self, layer: L | F, inputs: Shapes, declared: Shapes) -> Shapes:
        """The shapes of the outputs. ``declared`` are those that the graph gives; where the
        layer's parameters leave something open, they decide. GraphError for inputs that the layer
        cannot take."""
        raise NotImplementedError

    def run_float(self, layer: L, arrays: Arrays, shapes: Shapes) -> Arrays:
        """The outputs, float32, for float32 inputs; ``shapes`` are the outputs'."""
        raise GraphError(f"{type(layer).__name__} is no layer of a float graph")

    def run_fixed(self, layer: F, arrays: Arrays, shapes: Shapes, element_bytes: int) -> Arrays:
        """The outputs, exactly as a machine must make them, for operands of ``element_bytes``."""
        raise GraphError(f"{type(layer).__name__} is no layer of a fixed-point graph")

    def states_float(self, layer: L, arrays: Arrays) -> Mapping[str, Array]:
        """All values that the layer computes in the formats of its states, [B, n, *shape]:
        calibration takes their ranges. Without an entry a state has those of the tensors that it
        is tied to."""
        return {}

    def cut_terms(self, layer: L) -> CutTerms | None:
        """What the fixed-point layer cuts before it adds, where that may change its results."""
        return None

    def ties(self, layer: L) -> Sequence[tuple[str, ...]]:
        """Groups of the layer's tensors that must share a scale (states are tied to their initial
        and final values without being named here)."""
        return ()

    def takes_scales(self, layer: L) -> bool:
        """Whether the layer's tensors can have other scales than Q-points, one a tensor; those of
        a machine with multipliers. Tensors that it ties share one; a sum's need not, then."""
        return False

    def is_mean(self, layer: L) -> bool:
        """Whether results are means of what is read: they can need a finer scale, and what is cut
        before has others."""
        return False

    def fills(self, layer: L) -> Sequence[float]:
        """Numbers that results hold beside those that are read."""
        return ()

    def residuals(self, layer: L) -> Sequence[tuple[str, str]]:
        """Pairs (tensor, sum that it is added to at the accumulator's width): digits of the first
        that are far finer than the second's are of no use."""
        return ()

    def quantize(self, layer: L, numbers: Numbers) -> F:
        """The fixed-point layer. QuantizationError where no integers can do what it says."""
        raise QuantizationError(
            f"layer {layer.name!r}: {type(layer).__name__} has no fixed-point form; "
            "fuse the graph first"
        )

    def macs(self, layer: L | F, inputs: Shapes, outputs: Shapes) -> int:
        """Multiply-accumulates for one image, by the shapes of inputs and outputs."""
        return 0

    def word(self, layer: F) -> str:
        """The layer table's word for a layer."""
        raise NotImplementedError

    def view_offsets(self, layer: F, shapes: Mapping[str, Shape]) -> Sequence[int]:
        """Of a VIEW: elements from the input's first to each output's first."""
        raise NotImplementedError

    def order(self, layer: F, inputs: Shapes) -> Order:
        """What the layer does with the order of its inputs' elements."""
        return Order.SHAPED

    def emitted(self, layer: type[Layer] | type[FixedLayer]) -> frozenset[type[FixedLayer]]:
        """The layers that a machine must have code for to take such a layer."""
        if self.placement is Placement.VIEW or self.fixed is None:
            return frozenset()
        return frozenset({self.fixed})


def checked_shift(layer: Layer, shift: int) -> int:
    """Shifts of accumulators below 2**46: more than MAX_SHIFT to the right leaves the same 0."""
    if shift < MIN_SHIFT:
        raise QuantizationError(
            f"layer {layer.name!r} needs a shift of {shift}, the limit is {MIN_SHIFT}: the range "
            f"of {layer.output!r} is far below that of {layer.inputs}"
        )
    return min(shift, MAX_SHIFT)


def take(layer: Layer | FixedLayer, inputs: Shapes, least: int, most: int | None = None) -> None:
    """GraphError unless the layer has from ``least`` to ``most`` inputs (None: the same)."""
    most = least if most is None else most
    if not least <= len(inputs) <= most:
        wanted = str(least) if least == most else f"{least} to {most}"
        raise GraphError(f"layer {layer.name!r} has {len(inputs)} inputs; it takes {wanted}")
