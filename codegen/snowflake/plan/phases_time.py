"""How long a transposed convolution takes: its steps one after the other, as in `timeline`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from tvm_npu.codegen.plan.problem import Prediction
from tvm_npu.codegen.snowflake.plan.counting import run_units
from tvm_npu.codegen.snowflake.plan.moved import kernels_moved, maps_moved
from tvm_npu.codegen.snowflake.plan.numbers import MODES, Numbers, shape_numbers
from tvm_npu.codegen.snowflake.plan.phases import PhaseAxis, PhasesPlan, Together, TransposedShape
from tvm_npu.codegen.snowflake.plan.room import Choice
from tvm_npu.codegen.snowflake.plan.step_sums import tile_work
from tvm_npu.codegen.snowflake.plan.sums_time import (
    CYCLES_OF,
    ISSUED,
    VECTORS,
    column_kinds,
    row_kinds,
)
from tvm_npu.codegen.snowflake.plan.tiling import ConvShape, Geometry
from tvm_npu.codegen.snowflake.plan.timeline import (
    BETWEEN,
    CHUNK,
    CHUNK_WORDS,
    CODE_BYTES,
    ISSUE,
    MOVE,
    MOVE_WORDS,
    RESULTS,
    START,
    chunks_of,
)
from tvm_npu.codegen.snowflake.steps.chunks import CHUNKS
from tvm_npu.codegen.snowflake.steps.objects import Rooms
from tvm_npu.sim.compiled import entry
from tvm_npu.sim.lazy import cached_property
from tvm_npu.sim.snowflake.isa import MEMORY_UNIT_BYTES, WORD_BYTES
from tvm_npu.sim.snowflake.machine import SnowflakeMachine

Range = tuple[int, int]


@entry
def _step_work(n, p, rows, columns, filters, work):
    """Writes to ``work`` what a step takes for ``filters`` filters of a tile; the share of its
    first chunk."""
    down = np.zeros(2 * n.rows.kernel + 1, np.int64)
    across = np.zeros(2 * n.columns.kernel + 1, np.int64)
    row_kinds(n, p.mode, rows[0], rows[1], down)
    column_kinds(n, p.mode, columns[0], columns[1], across)
    tile_work(n, p, filters, 0, down, across, work)
    return chunks_of(n, p, filters, rows[1], columns[1], 1).first


@entry
def _maps_moved(n, p, rows, columns):
    return maps_moved(n, p, 0, 0, rows[0], rows[1], columns[0], columns[1])


@entry
def _kernels_moved(n, p, tile):
    return kernels_moved(n, p, tile, 0)


@entry
def _run_units(begin, size, step, runs):
    return run_units(begin, size, step, runs)


@dataclass(frozen=True)
class _Moves:
    """Transfers: bytes, 64-byte units, how many."""

    size: int = 0
    units: float = 0.0
    count: int = 0


@dataclass(frozen=True)
class _Step:
    """What a step computes, brings (``late``: before it can begin) and stores."""

    cycles: float
    issued: float
    vectors: float
    share: float
    maps: _Moves
    kernels: _Moves
    is_late: bool
    out: _Moves


@dataclass(frozen=True)
class _Convolution:
    """One of a layer's convolutions on a machine."""

    one: Together
    found: Geometry
    machine: SnowflakeMachine

    @cached_property
    def _alone(self) -> Numbers:
        """With its own window: what is multiplied."""
        rows, columns = self.one.shape.rows, self.one.shape.columns
        assert isinstance(rows, PhaseAxis) and isinstance(columns, PhaseAxis)
        shape: ConvShape = replace(self.one.shape, rows=rows.alone, columns=columns.alone)
        return shape_numbers(shape, self.machine)

    @cached_property
    def _common(self) -> Numbers:
        """With the window of all: what is loaded."""
        rows, columns = self.one.shape.rows, self.one.shape.columns
        assert isinstance(rows, PhaseAxis) and isinstance(columns, PhaseAxis)
        shape: ConvShape = replace(self.one.shape, rows=rows.common, columns=columns.common)
        return shape_numbers(shape, self.machine)

    @cached_property
    def _choice(self) -> Choice:
        plan = self.found.plan
        return Choice(MODES.index(plan.mode), plan.tile_m, plan.tile_r, plan.tile_c, True)

    def work(self, rows: Range, columns: Range, filters: int) -> tuple[Any, float]:
        """(cycles, instructions, vector instructions), share of the first chunk."""
        work = np.zeros(3)
        share = _step_work(self._alone, self._choice, rows, columns, filters, work)
        return work, share

    def maps(self, rows: Range, columns: Range) -> _Moves:
        return _Moves(*_maps_moved(self._common, self._choice, rows, columns))

    def kernels(self, tile: int) -> _Moves:
        return _Moves(*_kernels_moved(self._common, self._choice, tile))

    def out(self, rows: Range, columns: Range, filters: Range) -> _Moves:
        """Runs of results that lie together in memory and in the MBufs."""
        row, column = self.one.phases[0].rows, self.one.phases[0].columns
        each = self.one.shape.filters // len(self.one.phases)
        in_row = len({phase.columns for phase in self.one.phases})
        together = min(filters[1], each * in_row)
        pieces = -(-filters[1] // together)
        step = WORD_BYTES * each * column.kernel_step
        runs, size = rows[1] * columns[1], WORD_BYTES * together
        count = rows[1]
        if size == step and pieces == 1:
            runs, size = rows[1], size * columns[1]
            step *= self.one.shape.columns.out * row.kernel_step
            count = 1 if self.found.plan.mode == "coop" else self.found.cus
        units = _run_units(0, size, step, runs) * pieces
        return _Moves(WORD_BYTES * rows[1] * columns[1] * filters[1], units, count * pieces)


def _steps(
    shape: TransposedShape, convolutions: list[_Convolution], rooms: Rooms
) -> Iterator[_Step]:
    """Of one group, every convolution of a tile of maps in turn."""
    tiles = [
        (number, tile)
        for number, one in enumerate(convolutions)
        for tile in range(len(one.found.filter_tiles))
    ]
    keeps = len(rooms.kernels) >= len(tiles)
    known: dict[tuple[Any, ...], tuple[Any, float, _Moves, _Moves]] = {}
    seen: set[tuple[int, int]] = set()
    if shape.shares_maps:
        order = [(at, number, tile) for at in range(len(convolutions[0].found.map_tiles))
                 for number, tile in tiles]  # fmt: skip
    else:
        order = [(at, number, tile) for number, tile in tiles
                 for at in range(len(convolutions[number].found.map_tiles))]  # fmt: skip
    before = (-1, -1)
    for at, number, tile in order:
        one = convolutions[number]
        rows, columns = one.found.map_tiles[at]
        filters = one.found.filter_tiles[tile]
        ends = rows[0] == 0, sum(rows) == one.one.shape.rows.out
        key = (number, filters, rows[1], columns[1], ends, columns[0] == 0)
        if key not in known:
            work, share = one.work(rows, columns, filters[1])
            known[key] = work, share, one.maps(rows, columns), one.out(rows, columns, filters)
        work, share, maps, out = known[key]
        here = (at, -1 if shape.shares_maps else number)
        new_maps = here != before
        before = here
        new_kernels = (number, tile) not in seen
        if keeps or len(tiles) == 1:
            seen.add((number, tile))
        yield _Step(
            work[CYCLES_OF], work[ISSUED], work[VECTORS], share, maps if new_maps else _Moves(),
            one.kernels(tile) if new_kernels else _Moves(), len(rooms.maps) == 1 and new_maps, out,
        )  # fmt: skip


def phases_prediction(
    shape: TransposedShape, plan: PhasesPlan, found: tuple[Geometry, ...], rooms: Rooms,
    machine: SnowflakeMachine,
) -> Prediction:  # fmt: skip
    """Of the plan for the rows that ``found`` are of: the time of its steps, the bytes of all
    clusters. Clusters share the memory, but come by the same kernels at once."""
    convolutions = [
        _Convolution(one, geometry, machine)
        for one, geometry in zip(shape.convolutions(plan.side_by_side), found, strict=True)
    ]
    steps = list(_steps(shape, convolutions, rooms)) * shape.groups
    clusters = machine.clusters.count
    time = _time(steps, machine)
    inputs = clusters * sum(step.maps.size for step in steps)
    weights = sum(step.kernels.size for step in steps)
    out = clusters * sum(step.out.size for step in steps)
    per = MEMORY_UNIT_BYTES / machine.memory_bytes_per_cycle
    load = per * sum(clusters * step.maps.units + step.kernels.units for step in steps)
    store = per * sum(clusters * step.out.units for step in steps)
    vector = sum(step.cycles for step in steps)
    return Prediction(
        max(time, load + store), vector, load, store, inputs, weights, out,
        bound="mac" if vector > load + store else "dram",
    )  # fmt: skip


def _time(steps: list[_Step], machine: SnowflakeMachine) -> float:
    """Loads of a step come beside the one before it, if they are not late, behind the results of
    the step before that."""
    clusters = machine.clusters.count
    per = MEMORY_UNIT_BYTES / machine.memory_bytes_per_cycle
    memory, core, vector, ready, results = 0.0, START, START, START, START
    last = _Moves()
    for number, step in enumerate(steps):
        begin = max(core, ready)
        first = number == 0
        late = _both(step, first or step.is_late, first, clusters)
        if late.units:
            begin = max(begin, results if number else 0.0) + MOVE * late.count
            memory = max(memory, begin) + per * late.units
            begin = memory + machine.load.latency_cycles
        start = max(vector + BETWEEN, begin + ISSUE)
        behind = steps[number + 1] if number + 1 < len(steps) else None
        during = _Moves() if behind is None else _both(behind, not behind.is_late, True, clusters)
        chunks = min(CHUNKS, 1.0 / step.share)
        moves = last.count + during.count
        issued = step.issued + CHUNK * chunks + MOVE * moves
        hidden = machine.vector.queue_depth * step.cycles / max(1.0, step.vectors)
        vector = max(start + step.cycles, begin + issued)
        core = max(begin + issued, vector - hidden)
        asked = max(
            begin + step.share * step.issued + CHUNK, start + step.share * step.cycles - hidden
        )
        ready = core
        if last.units:
            asked = max(asked, results)
            memory = max(memory, asked + MOVE) + per * clusters * last.units
        if during.units:
            code = CODE_BYTES * (CHUNK_WORDS * chunks + MOVE_WORDS * moves)
            memory = max(memory, asked + MOVE * moves)
            memory += per * (during.units + clusters * code / MEMORY_UNIT_BYTES)
            ready = max(ready, memory + machine.load.latency_cycles)
        results = vector + machine.vector.latency_cycles + RESULTS
        last = step.out
    memory = max(memory, results + MOVE) + per * clusters * last.units
    return max(memory, vector + MOVE * last.count) + machine.store.latency_cycles


def _both(step: _Step, with_maps: bool, with_kernels: bool, clusters: int) -> _Moves:
    """What comes for a step: maps of every cluster, kernels once for all."""
    units, count = 0.0, 0
    if with_maps:
        units, count = clusters * step.maps.units, step.maps.count
    if with_kernels:
        units, count = units + step.kernels.units, count + step.kernels.count
    return _Moves(0, units, count)
