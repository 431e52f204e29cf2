"""Elementwise layers: sums, products, maxima, copies, tables; where their operands lie."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tvm_npu.codegen.fixed_point import element_limits
from tvm_npu.codegen.ops import (
    FixedBroadcast,
    FixedElementwise,
    FixedMaxFeatureMap,
    FixedMaximum,
    FixedTable,
)
from tvm_npu.codegen.snowflake.emit.place import LayerSteps, Site, shares
from tvm_npu.codegen.snowflake.plan.spread import FlatTiles
from tvm_npu.codegen.snowflake.steps.elementwise import FlatLayer, Operation
from tvm_npu.codegen.snowflake.steps.maps import Map
from tvm_npu.codegen.snowflake.steps.objects import Specials
from tvm_npu.codegen.snowflake.steps.requantize import Requantize
from tvm_npu.codegen.snowflake.steps.tables import PlacedTable
from tvm_npu.sim.snowflake.isa import LANES, MacMode, Special

STREAMS = {"add": MacMode.ADD, "mul": MacMode.MULTIPLY, "copy": MacMode.SCALE}


def as_row(tensor: Map) -> Map:
    """All pixels as one row."""
    return tensor.seen_as(1, tensor.rows * tensor.columns, tensor.planes)


def is_move(layer: FixedElementwise, element_bytes: int) -> bool:
    """The layer copies its input as it is."""
    limits = element_limits(element_bytes)
    return layer.op == "copy" and layer.shift == 0 and (layer.low, layer.high) == limits


def elementwise_layer(layer: FixedElementwise, site: Site) -> list[LayerSteps]:
    moves = is_move(layer, site.region.fixed.element_bytes)
    specials = {
        **Requantize(layer.shift, layer.low, layer.high).specials,
        Special.SHIFT_A: layer.shift_a,
        Special.SHIFT_B: layer.shift_b,
    }
    sources = [site.tensor(name) for name in layer.inputs]
    return _flat(site, sources, layer.output, "move" if moves else STREAMS[layer.op], specials)


def broadcast_layer(layer: FixedBroadcast, site: Site) -> list[LayerSteps]:
    """Loads repeat the second operand's only pixel."""
    source, pixel = (site.tensor(name) for name in layer.inputs)
    repeated = replace(pixel, columns=source.rows * source.columns, pitch=0)
    specials = {
        **Requantize(layer.shift, layer.low, layer.high).specials,
        Special.SHIFT_A: 0,
        Special.SHIFT_B: 0,
    }
    return _flat(site, [source, repeated], layer.output, STREAMS[layer.op], specials)


def maximum_layer(layer: FixedMaximum, site: Site) -> list[LayerSteps]:
    sources = [site.tensor(name) for name in layer.inputs]
    specials = Requantize(layer.shift, layer.low, layer.high).specials
    return _flat(site, sources, layer.output, "max", specials)


def feature_map_layer(layer: FixedMaxFeatureMap, site: Site) -> list[LayerSteps]:
    """Both halves of the channels are operands of their own."""
    whole = site.tensor(layer.inputs[0])
    half = whole.planes // 2
    halves = [whole.some_planes(first, half) for first in (0, half)]
    specials = Requantize(layer.shift, layer.low, layer.high).specials
    return _flat(site, halves, layer.output, "max", specials)


def table_layer(layer: FixedTable, site: Site) -> list[LayerSteps]:
    element_bytes = site.region.fixed.element_bytes
    table = site.tables.add(layer.function, layer.table, element_bytes)
    specials = Requantize(0, *element_limits(element_bytes)).specials
    sources = [site.tensor(layer.inputs[0])]
    return _flat(site, sources, layer.output, MacMode.TABLE, specials, table)


def _flat(
    site: Site, inputs: Sequence[Map], output: str, operation: Operation, specials: Specials,
    table: PlacedTable | None = None,
) -> list[LayerSteps]:  # fmt: skip
    tiles = site.planned.plan
    assert isinstance(tiles, FlatTiles)
    sources, target = [as_row(one) for one in inputs], as_row(site.tensor(output))
    pixels = target.columns
    if all(one.pitch == one.planes == target.planes for one in (*sources, target)):
        # Without gaps between pixels words are all alike; pixels of a line share them evenly.
        words = pixels * target.planes
        size = next(width for width in (LANES, 8, 4, 2, 1) if words % width == 0)
        sources = [one.seen_as(1, words // size, size) for one in sources]
        target = target.seen_as(1, words // size, size)
        most = min(tiles.tile_pixels * tiles.tile_planes, words)
        tiles = FlatTiles(max(1, most // size), size)
    found = []
    for part in shares(target.columns, site.clusters):
        made = FlatLayer(
            site.index, tiles, site.machine.clusters.cus, site.machine.mbuf_words, tuple(sources),
            target, operation, specials, part, table,
        )  # fmt: skip
        found.append(LayerSteps([(made.steps(), made.rooms, "maps")]))
    return found
