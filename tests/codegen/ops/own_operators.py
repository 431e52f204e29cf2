"""Operators that no part of the project has: a split with several outputs, a sum with a state."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from math import prod

import numpy as np

from tvm_npu.codegen.fixed_point import element_limits, requantize
from tvm_npu.codegen.graph import FixedLayer, Layer, Requantized, Shape
from tvm_npu.codegen.ops.operator import Arrays, Numbers, Operator, Placement, Shapes, take
from tvm_npu.codegen.ops.registry import OPERATORS


@dataclass(frozen=True, eq=False)
class Split(Layer):
    """The channels, cut in as many equal parts as there are outputs."""


@dataclass(frozen=True, eq=False)
class FixedSplit(FixedLayer):
    """Layout only."""


class SplitOperator(Operator[Split, FixedSplit]):
    layer = Split
    fixed = FixedSplit
    placement = Placement.VIEW

    def shapes(self, layer: Split | FixedSplit, inputs: Shapes, declared: Shapes) -> Shapes:
        take(layer, inputs, 1)
        part = (inputs[0][0] // len(layer.outputs), *inputs[0][1:])
        return (part,) * len(layer.outputs)

    def run_float(self, layer: Split, arrays: Arrays, shapes: Shapes) -> Arrays:
        return np.split(arrays[0], len(layer.outputs), axis=1)

    def run_fixed(
        self, layer: FixedSplit, arrays: Arrays, shapes: Shapes, element_bytes: int
    ) -> Arrays:
        return np.split(arrays[0], len(layer.outputs), axis=1)

    def ties(self, layer: Split) -> tuple[tuple[str, ...], ...]:
        return ((*layer.inputs, *layer.outputs),)

    def quantize(self, layer: Split, numbers: Numbers) -> FixedSplit:
        return FixedSplit(layer.name, layer.inputs, layer.outputs, source=layer.source)

    def word(self, layer: FixedSplit) -> str:
        return "split"

    def view_offsets(self, layer: FixedSplit, shapes: Mapping[str, Shape]) -> tuple[int, ...]:
        size = prod(shapes[layer.inputs[0]]) // len(layer.outputs)
        return tuple(size * index for index in range(len(layer.outputs)))


@dataclass(frozen=True, eq=False)
class RunningSum(Layer):
    """(steps, N) -> (steps, N): the sum of all rows so far, in a state (N,)."""


@dataclass(frozen=True, eq=False)
class FixedRunningSum(Requantized):
    """The state is saturated to the element type at every step."""

    shift_in: int


class RunningSumOperator(Operator[RunningSum, FixedRunningSum]):
    layer = RunningSum
    fixed = FixedRunningSum

    def shapes(
        self, layer: RunningSum | FixedRunningSum, inputs: Shapes, declared: Shapes
    ) -> Shapes:
        return (inputs[0], *(inputs[0][1:] for _ in layer.outputs[1:]))

    def run_float(self, layer: RunningSum, arrays: Arrays, shapes: Shapes) -> Arrays:
        sums = np.cumsum(arrays[0], axis=1, dtype=np.float32)
        if len(arrays) > 1:
            sums = sums + arrays[1][:, None]
        return (sums, sums[:, -1])[: len(layer.outputs)]

    def run_fixed(
        self, layer: FixedRunningSum, arrays: Arrays, shapes: Shapes, element_bytes: int
    ) -> Arrays:
        x = arrays[0].astype(np.int64)
        state = arrays[1].astype(np.int64) if len(arrays) > 1 else np.zeros_like(x[:, 0])
        rows = []
        for step in range(x.shape[1]):
            total = (state << layer.shift_in) + x[:, step]
            state = requantize(total, layer.shift, layer.low, layer.high, element_bytes)
            state = state.astype(np.int64)
            rows.append(state)
        dtype = arrays[0].dtype
        return (np.stack(rows, 1).astype(dtype), state.astype(dtype))[: len(layer.outputs)]

    def ties(self, layer: RunningSum) -> tuple[tuple[str, ...], ...]:
        return ((layer.states[0].tensor, layer.outputs[0]),)

    def quantize(self, layer: RunningSum, numbers: Numbers) -> FixedRunningSum:
        shift = numbers.q_point(layer.inputs[0]) - numbers.q_point(layer.outputs[0])
        low, high = element_limits(numbers.element_bytes)
        return FixedRunningSum(
            layer.name, layer.inputs, layer.outputs, max(shift, 0), shift=shift, low=low,
            high=high, source=layer.source, states=layer.states,
        )  # fmt: skip

    def word(self, layer: FixedRunningSum) -> str:
        return "running_sum"


@contextmanager
def own_operators() -> Iterator[None]:
    """Both are known inside."""
    mine = {
        Split: (split := SplitOperator()), FixedSplit: split,
        RunningSum: (running := RunningSumOperator()), FixedRunningSum: running,
    }  # fmt: skip
    OPERATORS.update(mine)
    try:
        yield
    finally:
        for kind in mine:
            del OPERATORS[kind]
