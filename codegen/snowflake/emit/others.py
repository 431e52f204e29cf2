"""Pools, paddings and reorderings: where their operands lie."""

from __future__ import annotations

import numpy as np

from tvm_npu.codegen.ops import FixedPad, FixedPool, FixedReflectPad, FixedReshape
from tvm_npu.codegen.snowflake.emit.elementwise import as_row
from tvm_npu.codegen.snowflake.emit.place import LayerSteps, Site
from tvm_npu.codegen.snowflake.plan.spread import OrderTiles, PadTiles, PoolShape, PoolTiles
from tvm_npu.codegen.snowflake.steps.pads import OrderLayer, PadLayer
from tvm_npu.codegen.snowflake.steps.pool import PoolLayer
from tvm_npu.codegen.snowflake.steps.reflect import ReflectLayer
from tvm_npu.codegen.snowflake.steps.requantize import Requantize
from tvm_npu.sim.snowflake.isa import LANES

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
    made = PoolLayer(
        site.index, shape, tiles, site.machine.clusters.cus, site.tensor(layer.inputs[0]),
        site.tensor(layer.output), Requantize(layer.shift, layer.low, layer.high),
        (0, shape.rows.out), ones, ((top, bottom), (left, right)),
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


def reflect_layer(layer: FixedReflectPad, site: Site) -> list[LayerSteps]:
    tiles = site.planned.plan
    assert isinstance(tiles, PadTiles)
    target = site.tensor(layer.output)
    made = ReflectLayer(
        site.index, tiles, site.machine.mbuf_words, site.tensor(layer.inputs[0]), target,
        layer.padding[:2], (0, target.rows),
    )  # fmt: skip
    return [LayerSteps([(made.steps(), made.rooms, "maps")])]


def reorder_layer(layer: FixedReshape, site: Site) -> list[LayerSteps]:
    tiles = site.planned.plan
    assert isinstance(tiles, OrderTiles)
    made = OrderLayer(
        site.index, tiles, site.machine.mbuf_words, as_row(site.tensor(layer.inputs[0])),
        as_row(site.tensor(layer.output)),
    )  # fmt: skip
    return [LayerSteps([(made.steps(), made.rooms, "maps")])]
