"""The fixed-point NPU graph: what `codegen.quantize` makes and what a Program computes.

Every tensor t holds integers q with real value ``q * 2**-q_points[t]`` in ``element_bytes`` bytes.
Every layer ends in the same step, stated once in `codegen.reference.requantize`:
``clip(saturate(floor((acc + half) >> shift)), low, high)`` with half = 2**(shift-1); a negative
shift is a left shift. ``low`` and ``high`` are integers at the output's Q-point.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from numpy.typing import NDArray

from tvm_npu.codegen.graph import Padding, Shape

IntArray = NDArray[Any]


@dataclass(frozen=True, eq=False)
class FixedLayer:
    name: str
    inputs: tuple[str, ...]
    output: str
    source: tuple[str, ...] = field(default=(), kw_only=True)


@dataclass(frozen=True, eq=False)
class Requantized(FixedLayer):
    """A layer that ends in the requantize step."""

    shift: int = field(kw_only=True)
    low: int = field(kw_only=True)
    high: int = field(kw_only=True)


@dataclass(frozen=True, eq=False)
class FixedConv(Requantized):
    """Convolution or (``is_dense``) fully connected layer; inputs are (x,) or (x, residual).

    acc = sum(x * weight) + bias, exactly; with a residual
    acc = (acc << accumulator_shift) + (residual << residual_shift); then requantize.
    ``weight`` is [M, N / groups, kernel_h, kernel_w] at the element type, ``bias`` int32 [M] at
    the accumulator's Q-point. A dense layer has a 1x1 kernel and sees its input as (N, 1, 1).
    """

    weight: IntArray
    bias: IntArray
    stride: tuple[int, int] = (1, 1)
    padding: Padding = (0, 0, 0, 0)
    dilation: tuple[int, int] = (1, 1)
    groups: int = 1
    accumulator_shift: int = 0
    residual_shift: int = 0
    is_dense: bool = False
    weight_q_point: int = 0


@dataclass(frozen=True, eq=False)
class FixedPool(Requantized):
    """Pooling at the input's Q-point (shift is 0). Average: floor((2*sum + n) / (2*n))."""

    kind: Literal["max", "avg"]
    kernel: tuple[int, int]
    stride: tuple[int, int] = (1, 1)
    padding: Padding = (0, 0, 0, 0)
    count_include_pad: bool = False
    counted_padding: Padding = (0, 0, 0, 0)


@dataclass(frozen=True, eq=False)
class FixedElementwise(Requantized):
    """add: (a << shift_a) + (b << shift_b); mul: a * b; copy: a; then requantize."""

    op: Literal["add", "mul", "copy"]
    shift_a: int = 0
    shift_b: int = 0


@dataclass(frozen=True, eq=False)
class FixedChain(FixedLayer):
    """A convolution and, behind it, a pool or a depthwise convolution that takes its output tile
    by tile: what lies between the two is never a tensor. Inputs are the convolution's, the output
    is the window's."""

    conv: FixedConv
    window: FixedPool | FixedConv


@dataclass(frozen=True, eq=False)
class FixedPad(FixedLayer):
    """As `graph.Pad`, with an integer fill value at the tensor's Q-point."""

    before: tuple[int, int, int]
    after: tuple[int, int, int]
    stride: tuple[int, int]
    value: int


@dataclass(frozen=True, eq=False)
class FixedConcat(FixedLayer):
    """Layout only: all inputs and the output share one Q-point."""


@dataclass(frozen=True, eq=False)
class FixedReshape(FixedLayer):
    """Layout only."""


@dataclass(frozen=True, eq=False)
class FixedChannelSlice(FixedLayer):
    """Layout only."""

    begin: int


@dataclass(frozen=True, eq=False)
class FixedGraph:
    layers: tuple[FixedLayer, ...]
    shapes: dict[str, Shape]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    q_points: dict[str, int]
    element_bytes: Literal[1, 2]
    name: str = "npu"

    @property
    def precision(self) -> str:
        return f"int{8 * self.element_bytes}"
