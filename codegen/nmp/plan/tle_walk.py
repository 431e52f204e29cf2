"""What one TLE transfers and computes for a layer, by kind of turn (see `cost`)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import lru_cache

from tvm_npu.codegen.nmp.plan.conv_plan import ConvPlan
from tvm_npu.codegen.nmp.plan.in_turn import TurnTimes, gains_of, in_turn_cycles
from tvm_npu.codegen.nmp.plan.mac_time import (
    all_finish_cycles,
    finish_cycles,
    keep_cycles,
    late_cycles,
    mac_cycles,
    rows_mac_cycles,
    step_cycles,
    window_cycles,
)
from tvm_npu.codegen.nmp.plan.overlap import TileTimes, overlapped_cycles
from tvm_npu.codegen.nmp.plan.rounds import RoundTimes, rounds_cycles
from tvm_npu.codegen.nmp.plan.tle_cost import TleCost
from tvm_npu.codegen.nmp.plan.traffic import (
    NO_TRAFFIC,
    Traffic,
    chip_transfer,
    flat_transfer,
    in_transfer,
    out_transfer,
    rivals,
    weight_transfer,
)
from tvm_npu.codegen.nmp.plan.turns import PlaceTurns, Tile, TleTurns
from tvm_npu.codegen.plan.problem import ConvProblem
from tvm_npu.sim.machine_parts import BIAS_BYTES
from tvm_npu.sim.nmp.machine import NmpMachine

Tiles = tuple[Tile, ...]


def channel_tiles(count: int, tile: int) -> tuple[tuple[int, int], ...]:
    """(extent, how many) of the tiles of a plain axis: full ones, then a ragged one."""
    full, rest = divmod(count, tile)
    return tuple(kind for kind in ((tile, full), (rest, 1 if rest else 0)) if kind[1])


def _most(tiles: Tiles) -> int:
    """The most of the OFM that one of the tiles takes."""
    return max(tile.middle for tile in tiles)


@lru_cache(maxsize=1 << 14)
def _middles(turns: PlaceTurns) -> tuple[int, int]:
    """Along an axis: what the TLT with most takes of the OFM, in how many turns."""
    largest = [(_most(tiles), number) for tiles, number in turns]
    extent = sum(most * number for most, number in largest)
    return extent, sum(number for most, number in largest if most)


@lru_cache(maxsize=1 << 14)
def _kinds(rows: Tiles, columns: Tiles) -> tuple[tuple[Tile, Tile, int], ...]:
    """The distinct tiles of the parts: (along the rows, along the columns, how many)."""
    return tuple(
        (row, column, row_parts * column_parts)
        for row, row_parts in Counter(rows).items()
        for column, column_parts in Counter(columns).items()
    )


@lru_cache(maxsize=1 << 14)
def _distinct(sizes: tuple[int, ...]) -> tuple[tuple[int, int], ...]:
    """The distinct numbers of items of the parts: (items, how many parts)."""
    return tuple(Counter(sizes).items())


class TleWalk:
    """The transfers and MAC steps of one TLE, by kind of turn."""

    def __init__(
        self, problem: ConvProblem, plan: ConvPlan, machine: NmpMachine, turns: TleTurns
    ) -> None:
        self.problem, self.plan, self.machine = problem, plan, machine
        self.in_order, self.turns = turns, turns.alike_together()
        self.burst_bytes, self.rivals = machine.dram.burst_bytes, rivals(plan)
        self.is_grouped = plan.mode == "grouped"
        self.each = problem.filters // problem.groups if self.is_grouped else 1
        self.depth = problem.channels // problem.groups
        self.channels = channel_tiles(self.depth, plan.tile_n)
        self.keeps_weights = plan.schedule == "WS"
        self.in_run = -(-plan.tile_n // plan.filter_slices)
        self.sharing = plan.row_slices * plan.column_slices
        self.step_cycles = step_cycles(
            machine, plan.buffers, self.keeps_weights, plan.macs_first
        )
        self.late = 0.0
        if plan.macs_first:
            self.late = late_cycles(machine, plan.ring_in or plan.ring_weights)
        self.weight_run = -(-plan.tile_m // self.sharing)

    def cost(self) -> TleCost:
        turns, biases = self.turns, self._biases()
        inputs = outputs = on_chip = NO_TRAFFIC
        weights = NO_TRAFFIC
        macs = 0.0
        places = turns.places
        for sizes, steps in turns.items:
            if self.keeps_weights:
                weights += self.load_weights(sizes, self.depth) * steps
            else:
                for extent, number in self.channels:
                    weights += self.load_weights(sizes, extent) * (steps * number * places)
            for rows, row_number in turns.rows:
                for columns, column_number in turns.columns:
                    times = steps * row_number * column_number
                    for extent, number in self.channels:
                        if not self.plan.keeps_in:
                            one = self.load_in(rows, columns, sizes, extent)
                            inputs += one * (times * number)
                        step = self.multiply(rows, columns, sizes, extent)
                        macs += times * number * step
                    outputs += self.store(rows, columns, sizes) * times
                    if self.problem.window is not None:
                        on_chip += self.pass_on(rows, columns, sizes) * times
                        macs += times * self._end(rows, columns, sizes)
        if self.plan.keeps_in:
            for rows, row_number in turns.rows:
                for columns, column_number in turns.columns:
                    one = self.load_in(rows, columns, (), self.depth)
                    inputs += one * (row_number * column_number)
        residuals = outputs if self.problem.has_residual else NO_TRAFFIC
        time = 0.0
        if self.plan.buffers == 2:
            time = self._overlapped()
        elif self.problem.window is None:
            time = self._one_buffer(inputs, weights, biases, outputs, macs)
        return TleCost(
            inputs, weights + biases, outputs, macs, time, self.rivals, on_chip, residuals
        )

    def _one_buffer(
        self, inputs: Traffic, weights: Traffic, biases: Traffic, outputs: Traffic, macs: float
    ) -> float:
        """Time of the TLE with one buffer."""
        plan, turns = self.plan, self.turns
        rows, row_turns = _middles(turns.rows)
        columns, column_turns = _middles(turns.columns)
        sizes = sum(sizes[0] * number for sizes, number in turns.items)
        item_turns = sum(number for sizes, number in turns.items if sizes[0])
        turn_count = row_turns * column_turns
        stores = self.engine(outputs)
        residuals = stores if self.problem.has_residual else 0.0
        ends = all_finish_cycles(
            self.problem, self.each * sizes * rows * columns, turn_count * item_turns, self.machine
        )
        times = TurnTimes(
            self.engine(inputs), self.engine(weights), self.engine(biases), stores + residuals,
            macs + ends,
        )  # fmt: skip
        parts = turns.parts
        if self.is_grouped:
            loads = times.inputs + times.weights + residuals
            rounds = turn_count * item_turns
            return rounds_cycles(
                RoundTimes(times.transfers, times.biases, loads, stores, times.macs, parts, rounds)
            )
        steps = sum(number for _, number in self.channels)
        gains = gains_of(plan, parts, turns.tlt_places, steps, turn_count)
        return in_turn_cycles(times, gains)

    def _biases(self) -> Traffic:
        """One 1-D load a TLT that has anything to do, of the biases of its filters; with a
        depthwise convolution behind, another one and its kernels."""
        active = self.turns.tlt_places
        total = NO_TRAFFIC
        for run, tlts in Counter(self._item_runs()).items():
            total += sum(self._once_loads(run), NO_TRAFFIC) * (tlts * active)
        return total

    def head_biases(self) -> Traffic:
        """Of `_biases` those of the convolution alone."""
        active = sum(tile.out > 0 for tile in self.turns.rows[0][0])
        active *= sum(tile.out > 0 for tile in self.turns.columns[0][0])
        total = NO_TRAFFIC
        for run, tlts in Counter(self._item_runs()).items():
            total += self._once_loads(run)[0] * (tlts * active)
        return total

    def biases(self) -> Traffic:
        """All that TLTs load once."""
        return self._biases()

    def once_loads(self, part: int) -> tuple[Traffic, ...]:
        """What a TLT with filter part ``part`` loads in front of its steps, in that order."""
        return self._once_loads(self._item_runs()[part])

    def _once_loads(self, run: int) -> tuple[Traffic, ...]:
        count = run * self.each * self.problem.planes
        biases = flat_transfer(count, BIAS_BYTES, self.burst_bytes)
        window = self.problem.window
        if window is None or not window.has_weights:
            return (biases,)
        taps = window.kernel[0] * window.kernel[1]
        kernels = flat_transfer(run * taps, self.problem.element_bytes, self.burst_bytes)
        return (biases, kernels, biases)

    def _item_runs(self) -> list[int]:
        """All items of each part."""
        return [
            sum(column)
            for column in zip(
                *([size * steps for size in sizes] for sizes, steps in self.turns.items),
                strict=True,
            )
        ]

    def early_loads(self) -> tuple[Traffic, ...]:
        """Biases and the first W tile of each TLT, where they share nothing (`sequence`)."""
        channels = self.depth if self.keeps_weights else self.channels[0][0]
        is_tiled = self.plan.weights == "tiles"
        return tuple(
            flat_transfer(run * self.problem.planes, BIAS_BYTES, self.burst_bytes)
            + weight_transfer(self.problem, size, channels, self.burst_bytes, is_tiled)
            if size
            else NO_TRAFFIC
            for size, run in zip(self.turns.items[0][0], self._item_runs(), strict=True)
        )

    def load_weights(self, sizes: tuple[int, ...], channels: int) -> Traffic:
        """The W tiles of one step."""
        tiled = self.plan.weights == "tiles"
        total = NO_TRAFFIC
        if not self.plan.ring_weights:
            for size, tlts in _distinct(sizes):
                one = weight_transfer(
                    self.problem, size * self.each, channels, self.burst_bytes, tiled
                )
                total += one * tlts
            return total
        for part, size in enumerate(sizes):
            begin = (self.turns.weight_part + part) % self.sharing * self.weight_run
            own = max(0, min(self.weight_run, size - begin))
            total += weight_transfer(self.problem, own, channels, self.burst_bytes, tiled)
        return total.forwarded()

    def load_in(
        self, rows: Tiles, columns: Tiles, sizes: tuple[int, ...], channels: int
    ) -> Traffic:
        """The IN tiles of one step: one for all filter parts, or (grouped) one for each."""
        loads = [(channels, 1)]
        if self.is_grouped:
            loads = [(size * channels, tlts) for size, tlts in _distinct(sizes)]
        elif self.plan.ring_in:
            begin = self.turns.in_part * self.in_run
            loads = [(max(0, min(self.in_run, channels - begin)), 1)]
        total = NO_TRAFFIC
        for row, column, parts in _kinds(rows, columns):
            for taken, tlts in loads:
                one = in_transfer(
                    self.problem, taken, row.real, column.real, self.burst_bytes,
                    self.plan.linear_maps, self.plan.in_by_channels,
                )  # fmt: skip
                total += one * (parts * tlts)
        return total.forwarded() if self.plan.ring_in else total

    def store(self, rows: Tiles, columns: Tiles, sizes: tuple[int, ...]) -> Traffic:
        """The OUT tiles at the end of one turn."""
        total = NO_TRAFFIC
        for row, column, parts in _kinds(rows, columns):
            for size, tlts in _distinct(sizes):
                one = out_transfer(
                    self.problem, size * self.each, row.out, column.out, self.burst_bytes,
                    self.plan.linear_maps,
                )  # fmt: skip
                total += one * (parts * tlts)
        return total

    def pass_on(self, rows: Tiles, columns: Tiles, sizes: tuple[int, ...]) -> Traffic:
        """The tiles of the OFM that go to a window behind at the end of one turn."""
        total = NO_TRAFFIC
        for row, column, parts in _kinds(rows, columns):
            for size, tlts in _distinct(sizes):
                elements = size * self.problem.planes * row.passed * column.passed
                total += chip_transfer(elements, self.problem.element_bytes) * (parts * tlts)
        return total

    def _end(self, rows: Tiles, columns: Tiles, sizes: tuple[int, ...]) -> float:
        """MAC unit time at the end of one turn, of the TLT with most."""
        through = self.through_window(rows, columns, sizes)
        return self.finish(rows, columns, sizes) + through

    def finish(self, rows: Tiles, columns: Tiles, sizes: tuple[int, ...]) -> float:
        filters = sizes[0] * self.each
        return finish_cycles(self.problem, filters, _most(rows), _most(columns), self.machine)

    def through_window(self, rows: Tiles, columns: Tiles, sizes: tuple[int, ...]) -> float:
        filters = sizes[0] * self.each
        cycles = window_cycles(self.problem, filters, rows[0].out, columns[0].out, self.machine)
        if self.plan.keeps_rows:
            cycles += keep_cycles(self.problem, filters, columns[0].passed, self.machine)
        return cycles

    def multiply(
        self, rows: Tiles, columns: Tiles, sizes: tuple[int, ...], channels: int
    ) -> float:
        """MAC time of one step: that of the TLT with most."""
        if self.plan.keeps_rows:
            return rows_mac_cycles(
                self.problem, sizes[0] * self.each, channels, _most(rows), _most(columns),
                self.machine, self.step_cycles,
            )  # fmt: skip
        return mac_cycles(
            self.problem, sizes[0] * self.each, channels, _most(rows), _most(columns),
            self.machine, self.step_cycles,
        )  # fmt: skip

    def engine(self, moved: Traffic) -> float:
        """Time of the TLE's engine for some transfers."""
        return moved.engine_cycles(self.machine, self.rivals, self.plan.buffers == 2)

    def in_a_row(self, moved: Traffic) -> float:
        """Likewise for transfers that nothing waits for in between, with two buffers, too: while
        one of them is set up, the DRAM serves the other engines."""
        return moved.engine_cycles(self.machine, self.rivals)

    def _overlapped(self) -> float:
        """Time of the TLE with two buffers."""
        return self.overlapped(self.tile_times)

    def tile_times(self, rows: Tiles, columns: Tiles, sizes: tuple[int, ...]) -> TileTimes:
        """Of the OUT tiles of a turn."""
        loads = []
        for extent, _ in self.channels:
            own = 0.0
            if not self.plan.keeps_in:
                own += self.engine(self.load_in(rows, columns, sizes, extent))
            if not self.keeps_weights:
                own += self.engine(self.load_weights(sizes, extent))
            loads.append(own + self.late if own else own)
        store = self.engine(self.store(rows, columns, sizes))
        behind = 0.0
        if self.problem.window is not None:  # the last TLT waits until the engine has moved all
            behind = self.engine(self.pass_on(rows, columns, sizes))
            behind += self.through_window(rows, columns, sizes)
        return TileTimes(
            tlts=self.machine.cores.tlts_per_tle,
            steps=tuple(number for _, number in self.channels),
            loads=tuple(loads),
            macs=tuple(
                self.multiply(rows, columns, sizes, extent) for extent, _ in self.channels
            ),
            residual=store if self.problem.has_residual else 0.0,
            finish=self.finish(rows, columns, sizes),
            store=store,
            behind=behind,
        )

    def overlapped(
        self,
        tile: Callable[[Tiles, Tiles, tuple[int, ...]], TileTimes],
        later: Callable[[TileTimes], TileTimes] | None = None,
    ) -> float:
        """Time of the TLE with two buffers, where ``tile`` says what OUT tiles of a turn take;
        ``later``: where a place has several tiles of one kind, what all but the first take."""
        turns, keeps_in = self.turns, self.plan.keeps_in
        engine = self.engine if self.problem.window is None else self.in_a_row
        places = [
            (rows, columns, row_number * column_number)
            for rows, row_number in turns.rows
            for columns, column_number in turns.columns
        ]
        tiles: list[list[tuple[TileTimes, int]]] = []
        for sizes, steps in turns.items:
            tiles.append([])
            lasts: list[TileTimes] = []
            for rows, columns, number in places:
                one, once_each = tile(rows, columns, sizes), steps
                if later is not None and steps > 1:
                    tiles[-1].append((one, number))
                    one, once_each = later(one), steps - 1
                lasts.append(one)
                tiles[-1].append((one, number * once_each))
        once = []
        if self.keeps_weights:
            for column, (sizes, steps) in zip(tiles, turns.items, strict=True):
                load = engine(self.load_weights(sizes, self.depth))
                once.append((column[-1][0], load, steps))
        elif keeps_in:
            for (rows, columns, number), before in zip(places, lasts, strict=True):
                load = engine(self.load_in(rows, columns, (), self.depth))
                once.append((before, load, number))
        biases = engine(self._biases())
        return biases + overlapped_cycles([kind for item in tiles for kind in item], once)
