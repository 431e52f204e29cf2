"""Pools, elementwise layers, paddings and reorderings: where their operands lie."""

from __future__ import annotations

import numpy as np

from tvm_npu.codegen.fixed_point import element_limits
from tvm_npu.codegen.ops import FixedElementwise, FixedPad, FixedPool, FixedReshape
from tvm_npu.codegen.snowflake.emit.place import LayerSteps, Site
from tvm_npu.codegen.snowflake.plan.spread import (
    FlatTiles,
    OrderTiles,
    PadTiles,
    PoolShape,
    PoolTiles,
)
from tvm_npu.codegen.snowflake.steps.elementwise import FlatLayer
from tvm_npu.codegen.snowflake.steps.maps import Map
from tvm_npu.codegen.snowflake.steps.pads import OrderLayer, PadLayer
from tvm_npu.codegen.snowflake.steps.pool import PoolLayer
from tvm_npu.codegen.snowflake.steps.requantize import Requantize
from tvm_npu.sim.snowflake.isa import LANES, MacMode, Special

FILL_WORDS = 1024
WORD: np.dtype[np.int16] = np.dtype("<i2")
STREAMS = {"add": MacMode.ADD, "mul": MacMode.MULTIPLY, "copy": MacMode.SCALE}


def pool_layer(layer: FixedPool, site: Site) -> list[LayerSteps]:
    shape, tiles = site.planned.problem, site.planned.plan
    assert isinstance(shape, PoolShape) and isinstance(tiles, PoolTiles)
    ones = 0
    if not shape.is_max:
        words = np.ones(LANES * shape.columns.kernel, np.int16)
        ones = site.constants.add(words, WORD, f"layer {layer.name!r}, ones")
    top, left, bottom, right = layer.counted_padding if layer.count_include_pad else (0, 0, 0, 0)
    made = PoolLayer(
        site.index, shape, tiles, site.machine.clusters.cus, site.tensor(layer.inputs[0]),
        site.tensor(layer.output), Requantize(layer.shift, layer.low, layer.high),
        (0, shape.rows.out), ones, ((top, bottom), (left, right)),
    )  # fmt: skip
    return [LayerSteps([(made.steps(), made.rooms, "maps")])]


def is_move(layer: FixedElementwise, element_bytes: int) -> bool:
    """The layer copies its input as it is."""
    limits = element_limits(element_bytes)
    return layer.op == "copy" and layer.shift == 0 and (layer.low, layer.high) == limits


def elementwise_layer(layer: FixedElementwise, site: Site) -> list[LayerSteps]:
    tiles = site.planned.plan
    assert isinstance(tiles, FlatTiles)
    tensors = [_row(site.tensor(name)) for name in (*layer.inputs, layer.output)]
    mode = None if is_move(layer, site.region.fixed.element_bytes) else STREAMS[layer.op]
    specials = {
        **Requantize(layer.shift, layer.low, layer.high).specials,
        Special.SHIFT_A: layer.shift_a,
        Special.SHIFT_B: layer.shift_b,
    }
    sources, target = tensors[:-1], tensors[-1]
    pixels = target.columns
    if all(one.pitch == one.planes == target.planes for one in tensors):
        # Without gaps between pixels words are all alike; pixels of a line share them evenly.
        words = pixels * target.planes
        size = next(width for width in (LANES, 8, 4, 2, 1) if words % width == 0)
        sources = [one.seen_as(1, words // size, size) for one in sources]
        target = target.seen_as(1, words // size, size)
        share = min(tiles.tile_pixels * tiles.tile_planes, words)
        tiles = FlatTiles(max(1, share // size), size)
    made = FlatLayer(
        site.index, tiles, site.machine.clusters.cus, site.machine.mbuf_words, tuple(sources),
        target, mode, specials, (0, target.columns),
    )  # fmt: skip
    return [LayerSteps([(made.steps(), made.rooms, "maps")])]


def pad_layer(layer: FixedPad, site: Site) -> list[LayerSteps]:
    tiles = site.planned.plan
    assert isinstance(tiles, PadTiles)
    fill = np.full(FILL_WORDS, layer.value, np.int16)
    at = site.constants.add(fill, WORD, f"layer {layer.name!r}, fill value")
    target = site.tensor(layer.output)
    made = PadLayer(
        site.index, tiles, site.machine.mbuf_words, site.tensor(layer.inputs[0]), target,
        layer.before, layer.stride, at, FILL_WORDS, (0, target.rows),
    )  # fmt: skip
    return [LayerSteps([(made.steps(), made.rooms, "maps")])]


def reorder_layer(layer: FixedReshape, site: Site) -> list[LayerSteps]:
    tiles = site.planned.plan
    assert isinstance(tiles, OrderTiles)
    made = OrderLayer(
        site.index, tiles, site.machine.mbuf_words, _row(site.tensor(layer.inputs[0])),
        _row(site.tensor(layer.output)),
    )  # fmt: skip
    return [LayerSteps([(made.steps(), made.rooms, "maps")])]


def _row(tensor: Map) -> Map:
    """All pixels as one row."""
    return tensor.seen_as(1, tensor.rows * tensor.columns, tensor.planes)
