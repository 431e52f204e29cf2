"""Convolutions and fully connected layers: weights arranged, groups one after the other."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tvm_npu.codegen.ops import FixedConv
from tvm_npu.codegen.plan.problem import ConvProblem
from tvm_npu.codegen.snowflake.emit.place import LayerSteps, Site
from tvm_npu.codegen.snowflake.plan.tiling import ConvShape, SnowflakePlan, conv_shape, geometry
from tvm_npu.codegen.snowflake.steps.conv import ConvLayer
from tvm_npu.codegen.snowflake.steps.kernels import arranged
from tvm_npu.codegen.snowflake.steps.maps import Map
from tvm_npu.codegen.snowflake.steps.requantize import Requantize
from tvm_npu.sim.snowflake.isa import WORD_BYTES


def conv_layer(layer: FixedConv, site: Site) -> list[LayerSteps]:
    """The steps of each cluster."""
    problem, plan = site.planned.problem, site.planned.plan
    assert isinstance(problem, ConvProblem) and isinstance(plan, SnowflakePlan)
    source, target = site.tensor(layer.inputs[0]), site.tensor(layer.output)
    residual = site.tensor(layer.inputs[1]) if len(layer.inputs) > 1 else None
    shape = conv_shape(problem, source.planes)
    requantize = Requantize(
        layer.shift, layer.low, layer.high, layer.accumulator_shift, layer.residual_shift
    )
    parts = []
    for group in range(shape.groups):
        found = geometry(shape, plan, site.machine)
        assert found.rooms is not None
        weight, bias = _weights(layer, shape, source, group)
        words = arranged(found, weight, bias)
        at = site.constants.add(words.words, np.dtype("<i2"), f"layer {layer.name!r}, weights")
        made = ConvLayer(
            site.index, found,
            group_of(_seen(source, shape.rows.size, shape.columns.size), group, shape.planes),
            group_of(_seen(target, shape.rows.out, shape.columns.out), group, shape.filters),
            None if residual is None else group_of(
                _seen(residual, shape.rows.out, shape.columns.out), group, shape.filters
            ),
            words, at, requantize, group,
        )  # fmt: skip
        parts.append((made.steps(), found.rooms, plan.stays))
    return [LayerSteps(parts)]


def _seen(tensor: Map, rows: int, columns: int) -> Map:
    words = tensor.rows * tensor.columns * tensor.planes
    return tensor.seen_as(rows, columns, words // (rows * columns))


def group_of(tensor: Map, group: int, planes: int) -> Map:
    """One group's planes."""
    offset = tensor.offset + WORD_BYTES * group * planes
    return replace(tensor, offset=offset, planes=planes)


def _weights(
    layer: FixedConv, shape: ConvShape, source: Map, group: int
) -> tuple[NDArray[Any], NDArray[Any]]:
    """[filters, rows, columns, planes] and biases of a group; of a fully connected layer in the
    order in which its input lies."""
    mine = slice(group * shape.filters, (group + 1) * shape.filters)
    weight, bias = layer.weight[mine], layer.bias[mine]
    if layer.is_dense:
        pixels = shape.taps
        weight = weight.reshape(len(weight), shape.planes, 1, pixels)
    if shape.is_depthwise:
        return weight[:, 0], bias
    return weight.transpose(0, 2, 3, 1), bias
