"""Transposed convolutions as convolutions of the input, one a phase, and their tiles.

Results whose rows (and columns) are the same modulo the stride make a phase: it is a convolution of
the input, at stride 1, with every stride-th row and column of the kernel. All phases look at the
same window of the input, of which each takes a part: so a tile of maps serves them all.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from tvm_npu.codegen.plan.problem import Infeasible, Prediction, share
from tvm_npu.codegen.snowflake.plan.tiling import (
    ConvShape,
    Geometry,
    Mode,
    SnowflakePlan,
    geometry,
)
from tvm_npu.codegen.snowflake.steps.objects import Rooms
from tvm_npu.codegen.snowflake.steps.windows import Axis, even_sizes
from tvm_npu.sim.snowflake.isa import LANES, VMACS, WORD_BYTES
from tvm_npu.sim.snowflake.machine import SnowflakeMachine

ISSUED = 2.5
"""Instructions of a sum beside two for each of its traces, about."""


@dataclass(frozen=True)
class PhaseAxis(Axis):
    """The rows (or columns) of a phase: of the common window's taps it takes ``taken`` (first,
    count). Tap t is row ``kernel_first`` - t * ``kernel_step`` of the layer's kernel, or none: taps
    of zeros give every result one. Result j is row ``begin`` + j * ``kernel_step`` of the
    layer's."""

    taken: tuple[int, int] = (0, 0)
    kernel_first: int = 0
    kernel_step: int = 1
    begin: int = 0

    def taps(self, at: int) -> tuple[int, int]:
        low, count = super().taps(at)
        begin, end = max(low, self.taken[0]), min(low + count, sum(self.taken))
        return begin, max(0, end - begin)


def phase_axes(
    size: int, out: int, kernel: int, stride: int, before: int
) -> tuple[PhaseAxis, ...]:
    """The phases of ``out`` results along one axis; ``before`` of them are taken away in front."""
    found: list[tuple[int, int, int, int, int]] = []
    # (first result, how many, first input of result 0, last one, the row of the kernel for it)
    for begin in range(min(stride, out)):
        count = -(-(out - begin) // stride)
        last, first_row = divmod(begin + before, stride)
        rows = max(0, -(-(kernel - first_row) // stride))
        low = min(last - rows + 1, size - count)
        found.append((begin, count, low, max(last, 0, low), last * stride + first_row))
    lowest, highest = min(one[2] for one in found), max(one[3] for one in found)
    return tuple(
        PhaseAxis(
            size, count, highest - lowest + 1, before=-lowest,
            taken=(low - lowest, high - low + 1), kernel_first=row - lowest * stride,
            kernel_step=stride, begin=begin,
        )
        for begin, count, low, high, row in found
    )  # fmt: skip


@dataclass(frozen=True)
class TransposedShape:
    """One group's phases; in mode lane, which takes all groups of a depthwise layer at once, those
    of all."""

    phases: tuple[ConvShape, ...]
    groups: int

    @property
    def shares_maps(self) -> bool:
        """Tiles of maps are the same for all phases."""
        return len({(one.rows.out, one.columns.out) for one in self.phases}) == 1

    def geometries(
        self, plan: SnowflakePlan, machine: SnowflakeMachine, clusters: int = 1, cluster: int = 0
    ) -> tuple[Geometry, ...]:
        """Of each phase, for the rows that cluster number ``cluster`` of ``clusters`` has."""
        return tuple(
            geometry(
                one, replace(plan, tile_c=min(plan.tile_c, one.columns.out)), machine,
                share(one.rows.out, clusters, cluster),
            )
            for one in self.phases
        )  # fmt: skip


def transposed_shape(
    size: tuple[int, int, int], out: tuple[int, int, int], kernel: tuple[int, int],
    stride: tuple[int, int], before: tuple[int, int], groups: int,
) -> TransposedShape:  # fmt: skip
    """Of an input (planes, rows, columns) and output; ``before`` are rows and columns that are
    taken away in front."""
    depthwise = groups > 1 and groups == size[0] == out[0]
    planes, filters = (size[0], out[0]) if depthwise else (size[0] // groups, out[0] // groups)
    rows, columns = (
        phase_axes(size[1 + axis], out[1 + axis], kernel[axis], stride[axis], before[axis])
        for axis in range(2)
    )
    phases = tuple(
        ConvShape(row, column, planes, filters, 1, has_residual=False, is_depthwise=depthwise)
        for row in rows
        for column in columns
    )
    return TransposedShape(phases, 1 if depthwise else groups)


def rooms_of(found: tuple[Geometry, ...]) -> Rooms | None:
    """Places for the largest tiles of all phases, kernels in as many as there are room for and
    use; None where they do not fit."""
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
) -> SnowflakePlan | Infeasible:
    """The plan with the least predicted time; tiles of maps have two places where any fit so."""
    found: dict[int, list[SnowflakePlan]] = {1: [], 2: []}
    modes: tuple[Mode, ...] = ("lane",) if shape.phases[0].is_depthwise else ("coop", "indp")
    for mode in modes:
        for plan in _candidates(shape, machine, mode):
            geometries = shape.geometries(plan, machine)
            rooms = rooms_of(geometries)
            if rooms is not None:
                prediction = _prediction(shape, geometries, rooms, machine)
                found[len(rooms.maps)].append(replace(plan, prediction=prediction))
    best = found[2] or found[1]
    if not best:
        return Infeasible(
            "MBuf or WBuf", 0, 0, "no tile of this transposed convolution fits",
            "give the CUs larger buffers",
        )  # fmt: skip
    return min(best, key=lambda one: one.prediction.cycles if one.prediction else 0.0)


def _taken(axis: Axis) -> int:
    assert isinstance(axis, PhaseAxis)
    return axis.taken[1]


def _compute_cycles(shape: TransposedShape, machine: SnowflakeMachine, mode: Mode) -> float:
    """Sums of one group: what the vMACs take, or the core to issue them."""
    cus = machine.clusters.cus
    total = 0.0
    for one in shape.phases:
        rows, columns = _taken(one.rows), _taken(one.columns)
        issued = ISSUED + 2 * rows
        if mode == "coop":
            trace = -(-columns * one.planes // LANES)
            each = max(rows * trace, issued) * -(-one.filters // (VMACS * cus))
            total += each * one.results
        else:
            planes = 1 if mode == "lane" else one.planes
            lines = -(-one.filters // (VMACS * LANES)) * (VMACS if mode == "lane" else 1)
            each = max(rows * columns * planes * lines, issued)
            spread = one.columns.out * -(-one.rows.out // cus)
            total += each * spread
    return total


def _candidates(
    shape: TransposedShape, machine: SnowflakeMachine, mode: Mode
) -> Iterator[SnowflakePlan]:
    rows = max(one.rows.out for one in shape.phases)
    columns = max(one.columns.out for one in shape.phases)
    filters = shape.phases[0].filters
    start = SnowflakePlan(mode, filters, rows, columns, "maps", planner="phases")
    together = geometry(shape.phases[0], start, machine).together
    half = machine.wbuf_words // 2
    for count in even_sizes(-(-filters // together)):
        plan = replace(start, tile_m=min(filters, count * together))
        words = max(one.kernels_words for one in shape.geometries(plan, machine))
        if words > half and count > 1:
            continue
        yield from (replace(plan, tile_r=size) for size in even_sizes(rows))
        yield from (replace(plan, tile_r=1, tile_c=size) for size in even_sizes(columns))


def _prediction(
    shape: TransposedShape, found: tuple[Geometry, ...], rooms: Rooms, machine: SnowflakeMachine
) -> Prediction:
    """What the vMACs take, or what memory does; then the first tiles, for which everything waits,
    and the last results."""
    first, one = found[0], shape.phases[0]
    macs = shape.groups * _compute_cycles(shape, machine, first.plan.mode)
    times = 1 if shape.shares_maps else len(found)
    inputs = WORD_BYTES * shape.groups * one.rows.size * one.columns.size * one.planes * times
    vmacs = first.together if first.plan.mode == "coop" else VMACS
    tile = WORD_BYTES * vmacs * max(part.kernels_words for part in found)
    tiles = sum(len(part.filter_tiles) for part in found)
    again = len(first.map_tiles) if len(rooms.kernels) < tiles else 1
    weights = shape.groups * tile * tiles * again
    out = WORD_BYTES * shape.groups * sum(part.results * part.filters for part in shape.phases)
    load = (inputs + weights) / machine.memory_bytes_per_cycle
    store = out / machine.memory_bytes_per_cycle
    parts = 1 if first.plan.mode == "coop" else first.cus
    ends = tile + WORD_BYTES * (first.maps_words + first.out_words) * parts
    cycles = max(macs, load + store) + ends / machine.memory_bytes_per_cycle
    return Prediction(
        cycles, macs, load, store, inputs, weights, out,
        bound="mac" if macs > load + store else "dram",
    )  # fmt: skip
