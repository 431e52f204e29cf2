"""Bias correction: what quantized weights and inputs shift a layer's mean by goes into its biases.

Section 4.2 of "Data-Free Quantization Through Weight Equalization and Bias Correction" (Nagel et
al., ICCV 2019), with means over calibration data: layer by layer, each on what the integer layers
before it give, those already corrected.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tvm_npu.codegen.graph import NO_CLIP, FloatArray, Graph, Layer
from tvm_npu.codegen.ops import Conv2d, Dense, FixedConv
from tvm_npu.codegen.ops.registry import operator_of
from tvm_npu.codegen.passes.calibrate import Ranges
from tvm_npu.codegen.passes.quantize import (
    NO_INT16,
    Formats,
    Int16Layers,
    Precision,
    formats,
    prepare,
)
from tvm_npu.sim.description import Requantization


@dataclass
class _Walk:
    """Both graphs, layer by layer, on one batch; ``corrections`` by the tensor that a layer
    writes."""

    graph: Graph
    formats: Formats
    floats: dict[str, Any]
    integers: dict[str, Any]
    corrections: dict[str, NDArray[np.float64]]

    def step(self, layer: Layer) -> None:
        shapes = [self.graph.shapes[tensor] for tensor in layer.outputs]
        arrays = [self.floats[tensor] for tensor in layer.inputs]
        corrected = layer
        if isinstance(layer, Conv2d | Dense):
            shift = self._shift(layer, arrays, shapes)
            self.corrections[layer.output] = shift
            corrected = replace(layer, bias=(layer.bias + shift).astype(np.float32))
        operator = operator_of(layer)
        made = operator.run_float(layer, arrays, shapes)
        fixed = self.formats.fixed(corrected)
        inputs = [self.integers[tensor] for tensor in layer.inputs]
        width = self.formats.widths[layer.inputs[0]]
        results = operator_of(fixed).run_fixed(fixed, inputs, shapes, width)
        self.floats.update(zip(layer.outputs, made, strict=True))
        self.integers.update(zip(layer.outputs, results, strict=True))

    def _shift(
        self, layer: Conv2d | Dense, arrays: list[Any], shapes: list[Any]
    ) -> NDArray[np.float64]:
        """By how much the means of the channels are too low, in front of the activation."""
        plain = replace(layer, activation=NO_CLIP)
        fixed = self.formats.fixed(layer)
        assert isinstance(fixed, FixedConv)
        rounded = replace(plain, weight=_restored(fixed).reshape(layer.weight.shape))
        scales = self.formats.scales
        inputs = [scales[tensor].dequantize(self.integers[tensor]) for tensor in layer.inputs]
        operator = operator_of(layer)
        (wanted,) = operator.run_float(plain, arrays, shapes)
        (found,) = operator.run_float(rounded, inputs, shapes)
        error = wanted.astype(np.float64) - found
        return error.mean(axis=(0, *range(2, error.ndim)))


def _restored(layer: FixedConv) -> FloatArray:
    """The real values of a fixed layer's weights."""
    q = np.full(len(layer.weight), layer.weight_q_point, np.int64)
    if layer.filter_shifts is not None:
        q = q + layer.filter_shifts
    return np.ldexp(layer.weight.astype(np.float32), -q.reshape(-1, 1, 1, 1)).astype(np.float32)


def bias_corrections(
    graph: Graph,
    ranges: Ranges,
    precision: Precision,
    requantization: Requantization,
    batch: Mapping[str, FloatArray],
    int16: Int16Layers = NO_INT16,
) -> dict[str, tuple[float, ...]]:
    """What to add to the biases of every convolution and fully connected layer of a fused graph, by
    the tensor that it writes. ``batch`` holds float32 [B, *shape] by input name; all of it is in
    memory at a time. Raises as `quantize`."""
    prepared = prepare(graph, ranges, precision, int16)
    graph, found = prepared.graph, formats(prepared, requantization, int16.requantization)
    integers = {
        name: found.scales[name].quantize(batch[name], found.widths[name])
        for name in graph.inputs
    }
    floats = {name: batch[name] for name in graph.inputs}
    walk = _Walk(graph, found, floats, integers, {})
    last = {tensor: index for index, layer in enumerate(graph.layers) for tensor in layer.inputs}
    for index, layer in enumerate(graph.layers):
        walk.step(layer)
        for tensor in layer.inputs:
            if last[tensor] == index:
                walk.floats.pop(tensor, None)
                walk.integers.pop(tensor, None)
    return {tensor: tuple(shift.tolist()) for tensor, shift in walk.corrections.items()}
