"""Pools, paddings, reorderings and moves: where their operands lie."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from tvm_npu.codegen.ops import FixedMove, FixedPad, FixedPool, FixedReflectPad, FixedReshape
from tvm_npu.codegen.snowflake.emit.elementwise import as_row
from tvm_npu.codegen.snowflake.emit.place import LayerSteps, Site, shares
from tvm_npu.codegen.snowflake.plan.move import MoveShape, MoveTiles, clusters_parts
from tvm_npu.codegen.snowflake.plan.pools import PoolShape, PoolTiles, pool_parts
from tvm_npu.codegen.snowflake.plan.spread import OrderTiles, PadTiles
from tvm_npu.codegen.snowflake.plan.tiling import Stays
from tvm_npu.codegen.snowflake.steps.move import MoveLayer
from tvm_npu.codegen.snowflake.steps.objects import Rooms, Step
from tvm_npu.codegen.snowflake.steps.pads import OrderLayer, PadLayer
from tvm_npu.codegen.snowflake.steps.pool import PoolLayer
from tvm_npu.codegen.snowflake.steps.reflect import ReflectLayer
from tvm_npu.codegen.snowflake.steps.requantize import Requantize
from tvm_npu.sim.snowflake.isa import LANES

Range = tuple[int, int]
FILL_WORDS = 1024
WORD: np.dtype[np.int16] = np.dtype("<i2")


def pool_layer(layer: FixedPool, site: Site) -> list[LayerSteps]:
    shape, tiles = site.planned.problem, site.planned.plan
    assert isinstance(shape, PoolShape) and isinstance(tiles, PoolTiles)
    ones = 0
    if not shape.is_max:
        words = np.ones(LANES * shape.columns.kernel, np.int16)
        ones = site.constants.add(words, WORD, f"layer {layer.name!r}, ones")
    top, left, bottom, right = layer.counted_padding if layer.count_include_pad else (0, 0, 0, 0)
    found = []
    for rows, planes in pool_parts(shape, tiles, site.clusters):
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


def pad_layer(layer: FixedPad, site: Site) -> list[LayerSteps]:
    tiles = site.planned.plan
    assert isinstance(tiles, PadTiles)
    fill = np.full(FILL_WORDS, layer.value, np.int16)
    at = site.constants.add(fill, WORD, f"layer {layer.name!r}, fill value")
    target = site.tensor(layer.output)
    found = []
    for rows in shares(target.rows, site.clusters):
        made = PadLayer(
            site.index, tiles, site.machine.mbuf_words, site.tensor(layer.inputs[0]), target,
            layer.before, layer.stride, at, FILL_WORDS, rows,
        )  # fmt: skip
        found.append(LayerSteps([(made.steps(), made.rooms, "maps")]))
    return found


def reflect_layer(layer: FixedReflectPad, site: Site) -> list[LayerSteps]:
    tiles = site.planned.plan
    assert isinstance(tiles, PadTiles)
    target = site.tensor(layer.output)
    found = []
    for rows in shares(target.rows, site.clusters):
        made = ReflectLayer(
            site.index, tiles, site.machine.mbuf_words, site.tensor(layer.inputs[0]), target,
            layer.padding[:2], rows,
        )  # fmt: skip
        found.append(LayerSteps([(made.steps(), made.rooms, "maps")]))
    return found


def reorder_layer(layer: FixedReshape, site: Site) -> list[LayerSteps]:
    tiles = site.planned.plan
    assert isinstance(tiles, OrderTiles)
    source = as_row(site.tensor(layer.inputs[0]))
    found = []
    for words in shares(source.columns * source.planes, site.clusters):
        made = OrderLayer(
            site.index, tiles, site.machine.mbuf_words, source, as_row(site.tensor(layer.output)),
            words,
        )  # fmt: skip
        found.append(LayerSteps([(made.steps(), made.rooms, "maps")]))
    return found


def move_layer(layer: FixedMove, site: Site) -> list[LayerSteps]:
    """Pieces one after the other: clusters have parts of the same piece at a time."""
    shape, tiles = site.planned.problem, site.planned.plan
    assert isinstance(shape, MoveShape) and isinstance(tiles, MoveTiles)
    sources, target = [site.tensor(name) for name in layer.inputs], site.tensor(layer.output)
    found: list[list[tuple[list[Step], Rooms, Stays]]] = [[] for _ in range(site.clusters)]
    for number, (piece, chosen) in enumerate(zip(shape.pieces, tiles.pieces, strict=True)):
        parts = clusters_parts(piece, target.pitch, site.clusters)
        for cluster, mine in enumerate(found):
            made = MoveLayer(
                site.index, number, piece, chosen, site.machine.mbuf_words,
                sources[piece.source], target, parts[min(cluster, len(parts) - 1)],
            )  # fmt: skip
            mine.append((made.steps() if cluster < len(parts) else [], made.rooms, "maps"))
    return [LayerSteps(mine) for mine in found]
