"""Softmax as layers that machines have code for: a maximum, a difference, tables, sums, a product.

before: x -> softmax -> y
after:  x -> max pool -> m;  sub(x, m) -> d -> table -> e;  e -> convolution by ones -> s -> table
        -> r (several of these two, added, where the sums have many octaves);  mul(e, r) -> y

on views with a row of x in each channel, and for the convolution in each row.
"""

from __future__ import annotations

from dataclasses import replace
from math import prod
from typing import Any

import numpy as np

from tvm_npu.codegen.fixed_point import ELEMENT_TYPE, element_limits
from tvm_npu.codegen.graph import FixedGraph, FixedLayer, Shape, q_point_scales
from tvm_npu.codegen.ops import (
    FixedBroadcast,
    FixedConv,
    FixedDifference,
    FixedElementwise,
    FixedPool,
    FixedReshape,
    FixedSoftmax,
    FixedTable,
)


def with_softmax_steps(fixed: FixedGraph) -> FixedGraph:
    """``fixed`` without softmax layers; its tensors keep their names and values."""
    if not any(isinstance(layer, FixedSoftmax) for layer in fixed.layers):
        return fixed
    layers: list[FixedLayer] = []
    shapes = dict(fixed.shapes)
    q_points: dict[str, int] = {}
    for layer in fixed.layers:
        if not isinstance(layer, FixedSoftmax):
            layers.append(layer)
            continue
        steps = _Steps(layer, fixed)
        steps.run()
        layers += steps.layers
        shapes |= steps.shapes
        q_points |= steps.q_points
    scales = {**fixed.scales, **q_point_scales(q_points)}
    return replace(fixed, layers=tuple(layers), shapes=shapes, scales=scales)


class _Steps:
    """The layers of one softmax, with the shapes and Q-points of the tensors between them."""

    def __init__(self, layer: FixedSoftmax, fixed: FixedGraph) -> None:
        self.layer = layer
        self.layers: list[FixedLayer] = []
        self.shapes: dict[str, Shape] = {}
        self.q_points: dict[str, int] = {}
        self._rows = prod(fixed.shapes[layer.output]) // layer.count
        self._in_q_point = fixed.scales[layer.inputs[0]].q_point
        self._out_q_point = fixed.scales[layer.output].q_point
        width = fixed.width_of(layer.inputs[0])
        self._element_type = ELEMENT_TYPE[width]
        self._limits = element_limits(width)
        self._top_q_point = 8 * width - 1

    def run(self) -> None:
        layer, wide, narrow = self.layer, (self._rows, 1, self.layer.count), (self._rows, 1, 1)
        low, high = self._limits
        bounds: dict[str, Any] = {"low": low, "high": high, "source": layer.source}
        x = self._reshape("rows", layer.inputs[0], wide, self._in_q_point)
        m = self._tensor("max", narrow, self._in_q_point)
        self._add(
            FixedPool(self._name("max"), (x,), (m,), "max", (1, layer.count), shift=0, **bounds)
        )
        d = self._tensor("difference", wide, layer.difference_q_point)
        self._add(
            FixedDifference(self._name("difference"), (x, m), (d,), shift=layer.shift, **bounds)
        )
        e = self._tensor("exp", wide, self._top_q_point)
        self._add(
            FixedTable(
                self._name("exp"), (d,), (e,), "exp", layer.exponential, source=layer.source
            )
        )
        r = self._reciprocals(e, bounds)
        y = self._tensor("product", wide, self._out_q_point)
        self._add(
            FixedBroadcast(
                self._name("product"), (e, r), (y,), "mul", shift=layer.product_shift, **bounds
            )
        )
        self._add(FixedReshape(layer.name, (y,), layer.outputs, source=layer.source))

    def _reciprocals(self, e: str, bounds: dict[str, Any]) -> str:
        """One number a row, as (rows, 1, 1)."""
        layer, lines = self.layer, (1, self._rows, 1)
        across = self._reshape("lines", e, (1, self._rows, layer.count), self._top_q_point)
        weight = np.ones((1, 1, 1, layer.count), self._element_type)
        total = ""
        for number, part in enumerate(layer.parts):
            s = self._tensor(f"sum{number}", lines, part.q_point)
            self._add(
                FixedConv(
                    self._name(f"sum{number}"), (across,), (s,), weight, np.zeros(1, np.int32),
                    shift=self._top_q_point - part.q_point, **bounds,
                )
            )  # fmt: skip
            found = self._tensor(f"reciprocal{number}", lines, layer.reciprocal_q_point)
            self._add(
                FixedTable(
                    self._name(f"reciprocal{number}"), (s,), (found,), "reciprocal", part.table,
                    source=layer.source,
                )
            )  # fmt: skip
            if number:
                added = self._tensor(f"reciprocals{number}", lines, layer.reciprocal_q_point)
                name = self._name(f"reciprocals{number}")
                self._add(
                    FixedElementwise(name, (total, found), (added,), "add", shift=0, **bounds)
                )
                found = added
            total = found
        return self._reshape("reciprocal", total, (self._rows, 1, 1), layer.reciprocal_q_point)

    def _reshape(self, step: str, tensor: str, shape: Shape, q_point: int) -> str:
        made = self._tensor(step, shape, q_point)
        self._add(FixedReshape(self._name(step), (tensor,), (made,), source=self.layer.source))
        return made

    def _name(self, step: str) -> str:
        return f"{self.layer.name}@{step}"

    def _tensor(self, step: str, shape: Shape, q_point: int) -> str:
        name = f"{self.layer.output}@{step}"
        self.shapes[name], self.q_points[name] = shape, q_point
        return name

    def _add(self, layer: FixedLayer) -> None:
        self.layers.append(layer)
