"""Pools, elementwise layers, paddings and reorderings: where their operands lie."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from tvm_npu.codegen.fixed_point import element_limits
from tvm_npu.codegen.ops import FixedElementwise, FixedPad, FixedPool, FixedReshape
from tvm_npu.codegen.plan.problem import share
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

Range = tuple[int, int]
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
    found = []
    for rows, planes in _pool_parts(shape, site.clusters):
        made = PoolLayer(
            site.index, replace(shape, planes=planes[1]),
            replace(tiles, tile_planes=min(tiles.tile_planes, planes[1])),
            site.machine.clusters.cus, site.tensor(layer.inputs[0]).some_planes(*planes),
            site.tensor(layer.output).some_planes(*planes),
            Requantize(layer.shift, layer.low, layer.high), rows, ones,
            ((top, bottom), (left, right)),
        )  # fmt: skip
        found.append(LayerSteps([(made.steps(), made.rooms, "maps")]))
    return found


def _pool_parts(shape: PoolShape, clusters: int) -> list[tuple[Range, Range]]:
    """(rows, planes) of each cluster: lines of planes are shared out where there are not enough
    rows."""
    rows, planes = (0, shape.rows.out), (0, shape.planes)
    if shape.rows.out >= clusters:
        return [(share(rows[1], clusters, cluster), planes) for cluster in range(clusters)]
    lines = -(-shape.planes // LANES)
    parts = [share(lines, min(lines, clusters), part) for part in range(min(lines, clusters))]
    return [
        (rows, (LANES * first, min(LANES * count, shape.planes - LANES * first)))
        for first, count in parts
    ]


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
        most = min(tiles.tile_pixels * tiles.tile_planes, words)
        tiles = FlatTiles(max(1, most // size), size)
    found = []
    for part in _shares(target.columns, site.clusters):
        made = FlatLayer(
            site.index, tiles, site.machine.clusters.cus, site.machine.mbuf_words, tuple(sources),
            target, mode, specials, part,
        )  # fmt: skip
        found.append(LayerSteps([(made.steps(), made.rooms, "maps")]))
    return found


def pad_layer(layer: FixedPad, site: Site) -> list[LayerSteps]:
    tiles = site.planned.plan
    assert isinstance(tiles, PadTiles)
    fill = np.full(FILL_WORDS, layer.value, np.int16)
    at = site.constants.add(fill, WORD, f"layer {layer.name!r}, fill value")
    target = site.tensor(layer.output)
    found = []
    for rows in _shares(target.rows, site.clusters):
        made = PadLayer(
            site.index, tiles, site.machine.mbuf_words, site.tensor(layer.inputs[0]), target,
            layer.before, layer.stride, at, FILL_WORDS, rows,
        )  # fmt: skip
        found.append(LayerSteps([(made.steps(), made.rooms, "maps")]))
    return found


def reorder_layer(layer: FixedReshape, site: Site) -> list[LayerSteps]:
    tiles = site.planned.plan
    assert isinstance(tiles, OrderTiles)
    source = _row(site.tensor(layer.inputs[0]))
    found = []
    for words in _shares(source.columns * source.planes, site.clusters):
        made = OrderLayer(
            site.index, tiles, site.machine.mbuf_words, source, _row(site.tensor(layer.output)),
            words,
        )  # fmt: skip
        found.append(LayerSteps([(made.steps(), made.rooms, "maps")]))
    return found


def _shares(total: int, clusters: int) -> list[Range]:
    """(begin, count) of each cluster that gets something."""
    parts = min(total, clusters)
    return [share(total, parts, part) for part in range(parts)]


def _row(tensor: Map) -> Map:
    """All pixels as one row."""
    return tensor.seen_as(1, tensor.rows * tensor.columns, tensor.planes)
