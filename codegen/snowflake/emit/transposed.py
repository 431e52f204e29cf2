"""Transposed convolutions: a convolution layer a phase, whose results lie strided in memory."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tvm_npu.codegen.ops import FixedTransposedConv
from tvm_npu.codegen.snowflake.emit.place import LayerSteps, Site
from tvm_npu.codegen.snowflake.plan.tiling import ConvShape, SnowflakePlan
from tvm_npu.codegen.snowflake.plan.transposed import PhaseAxis, TransposedShape, rooms_of
from tvm_npu.codegen.snowflake.steps.conv import ConvLayer
from tvm_npu.codegen.snowflake.steps.kernels import arranged
from tvm_npu.codegen.snowflake.steps.maps import Map
from tvm_npu.codegen.snowflake.steps.objects import Step
from tvm_npu.codegen.snowflake.steps.requantize import Requantize

WORD: np.dtype[np.int16] = np.dtype("<i2")


def transposed_layer(layer: FixedTransposedConv, site: Site) -> list[LayerSteps]:
    """All phases of a tile of maps one after the other, group by group."""
    shape, plan = site.planned.problem, site.planned.plan
    assert isinstance(shape, TransposedShape) and isinstance(plan, SnowflakePlan)
    source, target = site.tensor(layer.inputs[0]), site.tensor(layer.output)
    requantize = Requantize(layer.shift, layer.low, layer.high)
    geometries = shape.geometries(plan, site.machine)
    rooms = rooms_of(geometries)
    assert rooms is not None
    parts = []
    for group in range(shape.groups):
        steps: list[Step] = []
        for number, found in enumerate(geometries):
            one = found.shape
            weight, bias = _weights(layer, one, group)
            words = arranged(found, weight, bias)
            what = f"layer {layer.name!r}, weights of phase {number}"
            made = ConvLayer(
                site.index, found, source.some_planes(group * one.planes, one.planes),
                _phase_of(target.some_planes(group * one.filters, one.filters), one), None, words,
                site.constants.add(words.words, WORD, what), requantize,
                group * len(geometries) + number,
                maps_group=group * len(geometries) if shape.shares_maps else None,
            )  # fmt: skip
            steps += made.steps()
        parts.append((steps, rooms, plan.stays))
    return [LayerSteps(parts)]


def _phase_of(target: Map, shape: ConvShape) -> Map:
    """The results of a phase in the layer's."""
    rows, columns = shape.rows, shape.columns
    assert isinstance(rows, PhaseAxis) and isinstance(columns, PhaseAxis)
    return replace(
        target, offset=target.byte(rows.begin, columns.begin), rows=rows.out, columns=columns.out,
        pitch=target.pitch * columns.kernel_step, row_pitch=target.row_words * rows.kernel_step,
    )  # fmt: skip


def _weights(
    layer: FixedTransposedConv, shape: ConvShape, group: int
) -> tuple[NDArray[Any], NDArray[Any]]:
    """[filters, rows, columns, planes] of a phase's window (depthwise: without planes) and
    biases; zeros where the kernel has no row or column."""
    mine = slice(group * shape.filters, (group + 1) * shape.filters)
    weight, bias = layer.weight[mine], layer.bias[mine]
    for axis, one in ((2, shape.rows), (3, shape.columns)):
        assert isinstance(one, PhaseAxis)
        rows = one.kernel_first - one.kernel_step * np.arange(one.kernel)
        inside = (rows >= 0) & (rows < weight.shape[axis])
        taken = np.take(weight, np.where(inside, rows, 0), axis=axis)
        weight = taken * inside.reshape((1,) * axis + (-1,) + (1,) * (3 - axis))
    if shape.is_depthwise:
        return weight[:, 0], bias
    return weight.transpose(0, 2, 3, 1), bias
