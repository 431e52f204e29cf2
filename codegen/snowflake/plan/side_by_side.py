"""Convolutions whose few filters leave vMACs idle: neighbouring results are computed side by side,
as filters of a convolution with a larger window and stride.

Each result has zeros where its window does not reach, which costs products; what is won are the
MACs that the filters of one result do not fill.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from math import inf

from tvm_npu.codegen.graph import FixedGraph, FixedLayer
from tvm_npu.codegen.graph.tensors import chw
from tvm_npu.codegen.ops import FixedConv, FixedConvPixels
from tvm_npu.codegen.plan.layers import LayerPlanner
from tvm_npu.codegen.plan.planner import goal
from tvm_npu.codegen.plan.problem import ConvProblem
from tvm_npu.codegen.snowflake.plan.tiling import SnowflakePlan, together
from tvm_npu.sim.snowflake.isa import LANES
from tvm_npu.sim.snowflake.machine import SnowflakeMachine

MOST_PIXELS = 8
"""Results of a block, along an axis."""
LEAST_GAIN = 1.05
"""Of the share of products that count, for a block to be planned."""


def with_pixels_side_by_side(
    fixed: FixedGraph, planner: LayerPlanner, machine: SnowflakeMachine
) -> FixedGraph:
    """``fixed`` with blocks of results for the convolutions that take less time so or, where the
    planner's goal is traffic, move less."""
    layers = tuple(_better(layer, fixed, planner, machine) for layer in fixed.layers)
    return fixed if layers == fixed.layers else replace(fixed, layers=layers)


def _better(
    layer: FixedLayer, fixed: FixedGraph, planner: LayerPlanner, machine: SnowflakeMachine
) -> FixedLayer:
    if not isinstance(layer, FixedConv) or not _can_have_blocks(layer):
        return layer
    _, rows, columns = chw(fixed.shapes[layer.output])
    alone = _useful_share(layer, (1, 1), machine)
    blocks = list(_blocks(rows, columns))
    best = max(blocks, key=lambda one: _useful_share(layer, one, machine), default=(1, 1))
    if _useful_share(layer, best, machine) < LEAST_GAIN * alone:
        return layer
    made = FixedConvPixels(
        layer.name, layer.inputs, layer.outputs, layer, best, source=layer.source
    )
    after, before = (_cost(one, fixed, planner) for one in (made, layer))
    return made if after < before else layer


def _cost(layer: FixedLayer, fixed: FixedGraph, planner: LayerPlanner) -> tuple[float, ...]:
    """Predicted time, behind the bytes that the layer moves where these are the goal."""
    cycles = planner.cycles(layer, fixed.shapes)
    if goal(planner.chosen) == "cycles":
        return (cycles,)
    _, plan = planner.answer(layer, fixed.shapes)
    known = plan.prediction if isinstance(plan, SnowflakePlan) else None
    return (inf if known is None else known.moved_bytes, cycles)


def _can_have_blocks(layer: FixedConv) -> bool:
    plain = layer.groups == 1 and not layer.is_dense and len(layer.inputs) == 1
    return plain and layer.dilation == (1, 1)


def _blocks(rows: int, columns: int) -> Iterator[tuple[int, int]]:
    """(rows, columns) that divide those of the results; those of a row first, whose results lie
    one behind the other in memory."""
    for down in range(1, MOST_PIXELS + 1):
        for across in range(1, MOST_PIXELS + 1):
            if rows % down == 0 and columns % across == 0:
                yield down, across


def _useful_share(
    layer: FixedConv, pixels: tuple[int, int], machine: SnowflakeMachine
) -> float:
    """Of the products that the vMACs make, in the mode in which that is more."""
    filters, channels, *kernel = layer.weight.shape
    share = 1.0
    for size, stride, count in zip(kernel, layer.stride, pixels, strict=True):
        share *= size / (size + (count - 1) * stride)
    filters *= pixels[0] * pixels[1]
    units = [together("indp", machine)]
    if channels % LANES == 0:
        units.append(together("coop", machine))
    return share * max(filters / (-(-filters // unit) * unit) for unit in units)


def block_problem(asked: ConvProblem, layer: FixedConvPixels) -> ConvProblem:
    """The question of ``layer``, of whose convolution ``asked`` is the question."""
    rows, columns = layer.pixels
    return replace(
        asked, filters=asked.filters * rows * columns, rows=asked.rows // rows,
        columns=asked.columns // columns, kernel=layer.kernel, stride=layer.stride,
    )  # fmt: skip
