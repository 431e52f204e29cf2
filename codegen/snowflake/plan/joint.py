"""What a plan costs when several clusters compute a layer together, for compiled code.

Each cluster has a part of the layer (`division`) and runs its plan as if it were alone, with a part
of the memory's rate: what it moves itself of all that the memory moves. What all clusters need
alike the memory serves once. Together they take as long as the slowest, and at least as the memory
takes for all bytes.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tvm_npu.codegen.plan.problem import ConvProblem
from tvm_npu.codegen.snowflake.plan import timeline
from tvm_npu.codegen.snowflake.plan.counting import (
    COOP,
    LANE,
    Along,
    alike_tiles,
    tap_step,
    touched,
)
from tvm_npu.codegen.snowflake.plan.division import parts_of
from tvm_npu.codegen.snowflake.plan.moved import kernels_moved, part
from tvm_npu.codegen.snowflake.plan.numbers import Numbers, numbers
from tvm_npu.codegen.snowflake.plan.room import Choice, depth_parts, spreads_columns
from tvm_npu.codegen.snowflake.plan.tiling import Divides
from tvm_npu.sim.compiled import device, entry
from tvm_npu.sim.compiled.arithmetic import ceil_div
from tvm_npu.sim.compiled.reductions import total
from tvm_npu.sim.snowflake.isa import WORD_BYTES
from tvm_npu.sim.snowflake.machine import SnowflakeMachine

MOST_PARTS = 4
"""Different parts of a layer, at most: a part a cluster."""


class Joint(NamedTuple):
    """A layer on all clusters: ``distinct`` different ``parts`` (the first cluster's first, which
    also stands for those that there are not), with the number of ``clusters`` that compute each;
    whether maps and kernels come once for all clusters."""

    parts: tuple[Numbers, Numbers, Numbers, Numbers]
    distinct: int
    clusters: NDArray[np.int64]
    shares_maps: bool
    shares_kernels: bool


class Bytes(NamedTuple):
    """What moves: maps and residuals, kernels, results."""

    maps: float
    kernels: float
    results: float


@lru_cache(maxsize=256)
def joint(problem: ConvProblem, divides: Divides, machine: SnowflakeMachine) -> Joint | None:
    """None where the layer cannot be divided like that."""
    parts = parts_of(problem, divides, machine.clusters.count)
    if not parts:
        return None
    asked = [one.problem for one in parts]
    distinct = list(dict.fromkeys(asked))
    found = [numbers(one, machine) for one in distinct]
    a, b, c, d = (*found, *[found[0]] * (MOST_PARTS - len(found)))
    return Joint(
        (a, b, c, d), len(distinct), np.array([asked.count(one) for one in distinct], np.int64),
        divides == "filters" and problem.groups == 1, divides == "rows",
    )  # fmt: skip


@device
def within(n: Numbers, p: Choice) -> Choice:
    """``p`` with tiles no larger than a part."""
    return Choice(
        p.mode, min(p.m, n.filters), min(p.r, n.rows.out), min(p.c, n.columns.out), p.maps_stay
    )


@device
def tile_inputs(axis: Along, begin: int, size: int, cus: int) -> int:
    """Inputs that a tile of ``size`` results loads, each CU its own."""
    total, count = 0, min(size, axis.out - begin)
    step = tap_step(axis, ceil_div(count, cus))
    for cu in range(cus):
        at, own = part(axis, begin, count, cus, cu)
        if own:
            total += touched(axis, at, own, step)
    return total


@device
def inputs_inside(axis: Along, size: int, cus: int) -> int:
    """Inputs that all tiles of ``size`` results load, each CU its own."""
    total, begin = 0, 0
    while begin < axis.out:
        tiles = alike_tiles(axis, begin, size)
        total += tiles * tile_inputs(axis, begin, size, cus)
        begin += tiles * size
    return total


@device
def dealt(n: Numbers, mode: int) -> tuple[int, int]:
    """CUs that have rows, and columns, of their own."""
    if mode == COOP:
        return 1, 1
    return (1, n.cus) if spreads_columns(n, mode) else (n.cus, 1)


@device
def kernel_bytes(n: Numbers, mode: int, m: int) -> int:
    """Of all kernels of a group, each once."""
    p = Choice(mode, m, 1, 1, True)
    last, total = ceil_div(n.filters, m) - 1, 0
    for depth in range(depth_parts(n, mode)):
        total += last * kernels_moved(n, p, 0, depth)[0] + kernels_moved(n, p, last, depth)[0]
    return total


@device
def bytes_of(
    n: Numbers, p: Choice, inside: float, kernels: float, map_places: int, kernel_places: int
) -> Bytes:
    """What a plan moves, tiles again that have no place until they are needed again: ``inside`` are
    the inputs of all tiles, ``kernels`` `kernel_bytes`."""
    tiles = ceil_div(n.filters, p.m)
    maps = ceil_div(n.rows.out, p.r) * ceil_div(n.columns.out, p.c)
    again = come = 1
    if p.mode != LANE:
        if p.maps_stay and tiles * depth_parts(n, p.mode) > kernel_places:
            come = maps
        if not p.maps_stay and maps > map_places:
            again = tiles
    results = float(WORD_BYTES * n.filters * n.groups * n.rows.out * n.columns.out)
    loaded = WORD_BYTES * inside * n.planes * n.groups * again
    return Bytes(
        loaded + (results if n.has_residual else 0.0), kernels * n.groups * come, results
    )


@device
def rate_share(layer: Joint, first: Bytes) -> float:
    """The part of the memory's rate that a cluster has, by what the first one moves."""
    shared = first.maps if layer.shares_maps else 0.0
    shared += first.kernels if layer.shares_kernels else 0.0
    whole = first.maps + first.kernels + first.results
    return min(1.0, whole / (shared + total(layer.clusters) * (whole - shared)))


@device
def with_rate(n: Numbers, share: float) -> Numbers:
    """``n`` with a part of the memory's rate."""
    return Numbers(
        n.rows, n.columns, n.planes, n.filters, n.groups, n.in_pitch, n.out_pitch, n.has_residual,
        n.cus, n.mbuf, n.wbuf, n.queue, n.vector_latency, n.load_latency, n.store_latency,
        n.rate * share, n.coop_lines,
    )  # fmt: skip


@device
def add_bytes(layer: Joint, number: int, own: Bytes, costs) -> None:
    """Adds to the `timeline.COSTS` what the clusters with part ``number`` move."""
    clusters = layer.clusters[number]
    if number == 0 or not layer.shares_maps:
        costs[timeline.IN_BYTES] += own.maps * (1 if layer.shares_maps else clusters)
    if number == 0 or not layer.shares_kernels:
        costs[timeline.WEIGHT_BYTES] += own.kernels * (1 if layer.shares_kernels else clusters)
    costs[timeline.OUT_BYTES] += own.results * clusters


@device
def moved_by(costs) -> float:
    """All bytes."""
    return costs[timeline.IN_BYTES] + costs[timeline.WEIGHT_BYTES] + costs[timeline.OUT_BYTES]


@device
def timed_together(layer: Joint, p: Choice, share: float, limit: float, costs) -> bool:
    """Adds to ``costs``, which have all bytes, the times of all clusters; False as soon as it is
    sure that these are not less than ``limit``."""
    rate = layer.parts[0].rate
    costs[timeline.LOADS] = (costs[timeline.IN_BYTES] + costs[timeline.WEIGHT_BYTES]) / rate
    costs[timeline.STORES] = costs[timeline.OUT_BYTES] / rate
    costs[timeline.CYCLES] = costs[timeline.LOADS] + costs[timeline.STORES]
    if costs[timeline.CYCLES] >= limit:
        return False
    best = limit if np.isinf(limit) else timeline.resolved_below(limit)
    one = np.zeros(timeline.COSTS)
    for number in range(layer.distinct):
        n = with_rate(layer.parts[number], share)
        own = within(n, p)
        if not timeline.timed(n, own, timeline.fitting(n, own), best, one):
            return False
        for cost in (timeline.CYCLES, timeline.VECTOR, timeline.STEPS, timeline.ALONE):
            costs[cost] = max(costs[cost], one[cost])
    return True


@entry
def joint_costs(layer, p, costs):
    """Writes the `timeline.COSTS` of all clusters; False where tiles do not fit all of them."""
    costs[:] = 0.0
    share = 1.0
    for number in range(layer.distinct):
        n = layer.parts[number]
        own = within(n, p)
        room = timeline.fitting(n, own)
        if room[0] == 0:
            return False
        down, across = dealt(n, own.mode)
        inside = inputs_inside(n.rows, own.r, down) * inputs_inside(n.columns, own.c, across)
        kernels = kernel_bytes(n, own.mode, own.m)
        found = bytes_of(n, own, float(inside), float(kernels), room[0], room[1])
        if number == 0:
            share = rate_share(layer, found)
        add_bytes(layer, number, found, costs)
    return timed_together(layer, p, share, np.inf, costs)
