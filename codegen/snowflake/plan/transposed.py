"""The planner of transposed convolutions: mode, which phases go side by side, and tiles."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from tvm_npu.codegen.plan.problem import Infeasible
from tvm_npu.codegen.snowflake.plan.phases import PhasesPlan, TransposedShape
from tvm_npu.codegen.snowflake.plan.phases_time import phases_prediction
from tvm_npu.codegen.snowflake.plan.tiling import Geometry, Mode
from tvm_npu.codegen.snowflake.steps.objects import Rooms
from tvm_npu.codegen.snowflake.steps.windows import even_sizes
from tvm_npu.sim.snowflake.machine import SnowflakeMachine

MOST_SIZES = 6
"""Sizes of tiles of rows that are tried with the same filters, the largest that fit."""


def clusters_of(shape: TransposedShape, plan: PhasesPlan, clusters: int) -> int:
    """Clusters that share the rows of every convolution."""
    return min(clusters, *(one.shape.rows.out for one in shape.convolutions(plan.side_by_side)))


def rooms_of(found: tuple[Geometry, ...]) -> Rooms | None:
    """Places for the largest tiles of all convolutions, kernels in as many as there are room for
    and use; None where they do not fit."""
    if not all(one.shape.rows.covers and one.shape.columns.covers for one in found):
        return None
    if any(one.splits_depth for one in found):
        return None
    maps, kernels, out = (
        max(getattr(one, name) for one in found)
        for name in ("maps_words", "kernels_words", "out_words")
    )
    first = found[0]
    tiles = sum(len(one.filter_tiles) for one in found)
    count = min(first.wbuf_words // kernels, tiles)
    if not count:
        return None
    turns = first.plan.mode == "coop" and first.cus > 1
    loads = max(one.map_loads for one in found)
    for map_places in (2, 1) if loads > 1 or len(found) > 1 else (1,):
        for out_places in (1,) if turns else (2, 1):
            at = map_places * maps
            if at + out_places * out <= first.mbuf_words:
                outs = [(0, at + turn * out) for turn in range(out_places)]
                if turns:
                    outs = [(cu, at) for cu in range(first.cus)]
                places = tuple(range(0, count * kernels, kernels))
                return Rooms(tuple(range(0, at, maps)), places, tuple(outs))
    return None


def transposed_plan(
    shape: TransposedShape, machine: SnowflakeMachine
) -> PhasesPlan | Infeasible:
    """The plan with the least predicted time."""
    found = list(candidates(shape, machine))
    if not found:
        return Infeasible(
            "MBuf or WBuf", 0, 0, "no tile of this transposed convolution fits",
            "give the CUs larger buffers",
        )  # fmt: skip
    return min(found, key=lambda one: one.prediction.cycles if one.prediction else 0.0)


def candidates(shape: TransposedShape, machine: SnowflakeMachine) -> Iterator[PhasesPlan]:
    """Plans that fit, with their predictions."""
    modes: tuple[Mode, ...] = ("lane",) if shape.is_depthwise else ("coop", "indp")
    rows, columns = (max(one.out for one in axes) for axes in (shape.rows, shape.columns))
    for mode in modes:
        for way in shape.ways:
            whole = PhasesPlan(
                mode, shape.filters, rows, columns, "maps", planner="phases", side_by_side=way
            )
            for start in _starts(shape, machine, whole):
                yield from _tiles(shape, machine, start)


def _starts(
    shape: TransposedShape, machine: SnowflakeMachine, plan: PhasesPlan
) -> Iterator[PhasesPlan]:
    """With numbers of filters of which two tiles fit a WBuf, or the least."""
    filters = shape.convolutions(plan.side_by_side)[0].shape.filters
    whole = replace(plan, tile_m=filters)
    together = shape.geometries(whole, machine)[0].together
    for count in even_sizes(-(-filters // together)):
        one = replace(plan, tile_m=min(filters, count * together))
        words = max(found.kernels_words for found in shape.geometries(one, machine))
        if words <= machine.wbuf_words // 2 or count == 1:
            yield one


def _tiles(
    shape: TransposedShape, machine: SnowflakeMachine, start: PhasesPlan
) -> Iterator[PhasesPlan]:
    """The largest tiles of rows that fit; if none does, of columns."""
    rows = [replace(start, tile_r=size) for size in even_sizes(start.tile_r)]
    columns = [replace(start, tile_r=1, tile_c=size) for size in even_sizes(start.tile_c)]
    clusters = clusters_of(shape, start, machine.clusters.count)
    for tiles in (rows, columns):
        found = 0
        for plan in tiles:
            geometries = shape.geometries(plan, machine, clusters)
            rooms = rooms_of(geometries)
            if rooms is None:
                continue
            prediction = phases_prediction(shape, plan, geometries, rooms, machine)
            yield replace(plan, prediction=prediction)
            found += 1
            if found == MOST_SIZES:
                break
        if found:
            return
