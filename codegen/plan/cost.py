"""What a plan costs on a machine: `predict`.

The model knows no search. It counts a plan exactly: ragged edge tiles, clipping at the borders of
the IFM, how rows, columns and filters are dealt to TLEs and TLTs, and who loads what for whom.

A TLE works in steps: one tile of each TLT, one run of tile_n channels. All its TLTs start together
and the first, whose tiles are the largest, sets the MAC time of the step. In a step

  IN  is loaded once for each set of TLTs with the same rows and columns; with ``ring_in`` only
      the TLE's run of ceil(tile_n / filter_slices) channels of it, which may be short or empty
  W   is loaded once for each set of TLTs with the same filters; with ``ring_weights`` only the
      TLE's run of ceil(tile_m / sharing TLEs) filters of it: TLE p of them takes run
      (p + filter part) % sharing

and a TLT stores its OUT tile, after it has loaded its residual tile, at the end of the channels.
OS and IS load both for every step; WS loads W, with all channels, once a turn over its filters;
``keeps_in`` loads IN once a place. TLEs that share a stream over the ring make as many turns as
the longest of them and load their runs in all of those. Biases are one 1-D load a TLT.

Times. With one buffer a TLE loads, multiplies and stores in turn:

    loads + MAC + stores

where `traffic` says how long all transfers of the TLE together take, and `mac_cycles` what a step
takes its MAC unit.
With two, `overlap.overlapped_cycles` says how steps hide each other. The TLEs run side by side:
the slowest sets the time, unless the DRAM that they share or the Global Ringbus takes longer.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace

from tvm_npu.codegen.errors import PlanningError
from tvm_npu.codegen.plan.check import choice_fault
from tvm_npu.codegen.plan.overlap import TileTimes, overlapped_cycles
from tvm_npu.codegen.plan.problem import ConvPlan, ConvProblem, Prediction
from tvm_npu.codegen.plan.traffic import (
    BIAS_BYTES,
    NO_TRAFFIC,
    Traffic,
    flat_transfer,
    in_transfer,
    out_transfer,
    rivals,
    weight_transfer,
)
from tvm_npu.codegen.plan.turns import Tile, TleTurns, tle_turns
from tvm_npu.sim.machine import Machine

Tiles = tuple[Tile, ...]
STEP_INSTRUCTIONS, STEP_SEMAPHORES = 40, 5


def mac_cycles(
    problem: ConvProblem, filters: int, channels: int, rows: int, columns: int, machine: Machine
) -> float:
    """MAC time of one step: TSO, Equation 7, at the reachable share of the peak rate, with what
    the core does around it."""
    if filters * rows * columns == 0:
        return 0.0
    rate = machine.macs_per_cycle(problem.element_bytes)
    if problem.is_dense:
        units = filters * -(-channels // rate)
    else:
        kernel = problem.kernel[0] * problem.kernel[1]
        units = channels * filters * -(-rows * columns * kernel // rate)
    return units / machine.mac.efficiency + machine.mac.setup_cycles + step_cycles(machine)


def step_cycles(machine: Machine) -> float:
    """What a core does in a step beside waiting: about so many instructions and semaphores."""
    cores = machine.cores
    return STEP_INSTRUCTIONS * cores.instruction_cycles + STEP_SEMAPHORES * cores.semaphore_cycles


def finish_cycles(
    problem: ConvProblem, filters: int, rows: int, columns: int, machine: Machine
) -> float:
    """MAC unit time at the end of one OUT tile: its requantization, after the addition of the
    residual tile where there is one."""
    elements = filters * rows * columns
    if elements == 0:
        return 0.0
    beats = -(-elements // machine.macs_per_cycle(problem.element_bytes))
    one = beats / machine.mac.efficiency + machine.mac.setup_cycles
    return 2 * one if problem.has_residual else one


def window_cycles(
    problem: ConvProblem, tlts: int, filters: int, rows: int, columns: int, machine: Machine
) -> float:
    """Time of one OUT tile between the end of its channels and its store, where a window comes
    behind the convolution: its OFM tile requantized, the forwards of ``tlts`` TLTs one after
    another, the window, and, behind a depthwise convolution, that requantized."""
    window, ring = problem.window, machine.ring
    if window is None or ring is None or filters * rows * columns == 0:
        return 0.0
    rate, mac = machine.macs_per_cycle(problem.element_bytes), machine.mac
    middle = problem.middle_tile(rows, columns)
    area = middle[0] * middle[1]
    forward = machine.dme.setup_cycles
    forward += filters * area * problem.element_bytes / ring.bytes_per_cycle
    taps = window.kernel[0] * window.kernel[1]
    beats = -(-filters * area // rate) + filters * -(-rows * columns * taps // rate)
    operations = 2
    if window.has_weights:
        beats += -(-filters * rows * columns // rate)
        operations += 1
    return tlts * forward + beats / mac.efficiency + operations * mac.setup_cycles


def channel_tiles(count: int, tile: int) -> tuple[tuple[int, int], ...]:
    """(extent, how many) of the tiles of a plain axis: full ones, then a ragged one."""
    full, rest = divmod(count, tile)
    return tuple(kind for kind in ((tile, full), (rest, 1 if rest else 0)) if kind[1])


def one_group(problem: ConvProblem) -> ConvProblem:
    """One group of a grouped convolution as a convolution of its own."""
    return replace(
        problem,
        filters=problem.filters // problem.groups,
        channels=problem.channels // problem.groups,
        groups=1,
    )


@dataclass(frozen=True)
class TleCost:
    """What one TLE does for a layer: traffic by stream, the cycles of its MAC steps, its time when
    one goes on under the other (0: nothing does), and the engines that want the DRAM when its
    does."""

    inputs: Traffic = NO_TRAFFIC
    weights: Traffic = NO_TRAFFIC
    outputs: Traffic = NO_TRAFFIC
    mac_cycles: float = 0.0
    overlapped_cycles: float = 0.0
    rivals: float = 1.0

    @property
    def traffic(self) -> Traffic:
        return self.inputs + self.weights + self.outputs

    def load_cycles(self, machine: Machine) -> float:
        return (self.inputs + self.weights).engine_cycles(machine)

    def store_cycles(self, machine: Machine) -> float:
        return self.outputs.engine_cycles(machine)

    def cycles(self, machine: Machine) -> float:
        if self.overlapped_cycles:
            return self.overlapped_cycles
        return self.traffic.engine_cycles(machine, self.rivals) + self.mac_cycles


def predict(problem: ConvProblem, plan: ConvPlan, machine: Machine) -> Prediction:
    """Exact count of the plan's transfers and MAC steps, and the time that follows.

    ``cycles`` is the slowest TLE's time, the DRAM's or the ring's, whichever is longest;
    ``mac_cycles``, ``load_cycles`` and ``store_cycles`` are the slowest TLE's, as if its engine
    had the DRAM to itself; the bytes are those
    that cross the DRAM bus for the whole layer (a multicast or a forwarded load counts once;
    residual tiles count as input, biases as weights). PlanningError for a plan whose choices
    contradict each other or need what the machine lacks; whether its tiles fit is `check_plan`'s
    question.
    """
    fault = choice_fault(problem, plan, machine)
    if fault is not None:
        raise PlanningError(f"no prediction for this plan: {fault}")
    repeats = 1
    if plan.mode == "multicast" and problem.groups > 1:
        repeats = problem.groups
        problem = one_group(problem)
    costs: Counter[TleCost] = Counter()
    kinds = Counter(
        turns if plan.ring_in or plan.ring_weights else replace(turns, in_part=0, weight_part=0)
        for turns in tle_turns(problem, plan, machine)
    )
    for turns, tles in kinds.items():
        costs[_TleWalk(problem, plan, machine, turns).cost()] += tles
    return _combine(costs, repeats, machine)


def _combine(costs: Counter[TleCost], repeats: int, machine: Machine) -> Prediction:
    slowest = max(costs, key=lambda cost: cost.cycles(machine))
    inputs = weights = outputs = NO_TRAFFIC
    for cost, tles in costs.items():
        inputs += cost.inputs * (tles * repeats)
        weights += cost.weights * (tles * repeats)
        outputs += cost.outputs * (tles * repeats)
    everything = inputs + weights + outputs
    own = slowest.cycles(machine) * repeats
    load, store = slowest.load_cycles(machine) * repeats, slowest.store_cycles(machine) * repeats
    mac = slowest.mac_cycles * repeats
    dram, ring = everything.dram_cycles(machine), everything.ring_cycles(machine)
    cycles = max(own, dram, ring)
    if own == cycles:
        bound = "mac" if mac >= load + store else "dma"
    else:
        bound = "dram" if dram == cycles else "ring"
    return Prediction(
        cycles=cycles,
        mac_cycles=mac,
        load_cycles=load,
        store_cycles=store,
        in_bytes=inputs.bytes,
        weight_bytes=weights.bytes,
        out_bytes=outputs.bytes,
        ring_bytes=everything.ring_bytes,
        bound=bound,  # type: ignore[arg-type]
    )


class _TleWalk:
    """The transfers and MAC steps of one TLE, by kind of turn."""

    def __init__(
        self, problem: ConvProblem, plan: ConvPlan, machine: Machine, turns: TleTurns
    ) -> None:
        self.problem, self.plan, self.machine, self.turns = problem, plan, machine, turns
        self.burst_bytes, self.rivals = machine.dram.burst_bytes, rivals(plan)
        self.is_grouped = plan.mode == "grouped"
        self.each = problem.filters // problem.groups if self.is_grouped else 1
        self.depth = problem.channels // problem.groups
        self.channels = channel_tiles(self.depth, plan.tile_n)
        self.keeps_weights = plan.schedule == "WS"
        self.in_run = -(-plan.tile_n // plan.filter_slices)
        self.sharing = plan.row_slices * plan.column_slices
        self.weight_run = -(-plan.tile_m // self.sharing)

    def cost(self) -> TleCost:
        turns = self.turns
        inputs = outputs = NO_TRAFFIC
        weights = self._biases()
        macs = 0.0
        places = turns.places
        for sizes, steps in turns.items:
            if self.keeps_weights:
                weights += self._load_weights(sizes, self.depth) * steps
            else:
                for extent, number in self.channels:
                    weights += self._load_weights(sizes, extent) * (steps * number * places)
            for rows, row_number in turns.rows:
                for columns, column_number in turns.columns:
                    times = steps * row_number * column_number
                    for extent, number in self.channels:
                        if not self.plan.keeps_in:
                            one = self._load_in(rows, columns, sizes, extent)
                            inputs += one * (times * number)
                        step = self._multiply(rows, columns, sizes, extent)
                        macs += times * number * step
                    outputs += self._store(rows, columns, sizes) * times
                    macs += times * self._through_window(rows, columns, sizes)
        if self.plan.keeps_in:
            for rows, row_number in turns.rows:
                for columns, column_number in turns.columns:
                    one = self._load_in(rows, columns, (), self.depth)
                    inputs += one * (row_number * column_number)
        if self.problem.has_residual:
            inputs += outputs
        overlapped = self._overlapped() if self.plan.buffers == 2 else 0.0
        return TleCost(inputs, weights, outputs, macs, overlapped, self.rivals)

    def _biases(self) -> Traffic:
        """One 1-D load a TLT that has anything to do, of the biases of its filters; likewise of
        the kernels and biases of a depthwise convolution behind it."""
        turns = self.turns
        active = sum(extent > 0 for extent, _ in turns.rows[0][0])
        active *= sum(extent > 0 for extent, _ in turns.columns[0][0])
        runs = [sum(column) for column in zip(*(
            [size * steps for size in sizes] for sizes, steps in turns.items
        ), strict=True)]  # fmt: skip
        total = NO_TRAFFIC
        for run, tlts in Counter(runs).items():
            one = flat_transfer(run * self.each, BIAS_BYTES, self.burst_bytes)
            window = self.problem.window
            if window is not None and window.has_weights:
                taps = window.kernel[0] * window.kernel[1]
                one += one
                one += flat_transfer(run * taps, self.problem.element_bytes, self.burst_bytes)
            total += one * (tlts * active)
        return total

    def _load_weights(self, sizes: tuple[int, ...], channels: int) -> Traffic:
        """The W tiles of one step."""
        tiled = self.plan.weights == "tiles"
        total = NO_TRAFFIC
        if not self.plan.ring_weights:
            for size, tlts in Counter(sizes).items():
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

    def _load_in(
        self, rows: Tiles, columns: Tiles, sizes: tuple[int, ...], channels: int
    ) -> Traffic:
        """The IN tiles of one step: one for all filter parts, or (grouped) one for each."""
        loads = [(channels, 1)]
        if self.is_grouped:
            loads = [(size * channels, tlts) for size, tlts in Counter(sizes).items()]
        elif self.plan.ring_in:
            begin = self.turns.in_part * self.in_run
            loads = [(max(0, min(self.in_run, channels - begin)), 1)]
        total = NO_TRAFFIC
        for (_, in_rows), row_parts in Counter(rows).items():
            for (_, in_columns), column_parts in Counter(columns).items():
                for taken, tlts in loads:
                    one = in_transfer(
                        self.problem, taken, in_rows, in_columns, self.burst_bytes,
                        self.plan.linear_maps,
                    )  # fmt: skip
                    total += one * (row_parts * column_parts * tlts)
        return total.forwarded() if self.plan.ring_in else total

    def _store(self, rows: Tiles, columns: Tiles, sizes: tuple[int, ...]) -> Traffic:
        """The OUT tiles at the end of one turn."""
        total = NO_TRAFFIC
        for (out_rows, _), row_parts in Counter(rows).items():
            for (out_columns, _), column_parts in Counter(columns).items():
                for size, tlts in Counter(sizes).items():
                    one = out_transfer(
                        self.problem, size * self.each, out_rows, out_columns, self.burst_bytes,
                        self.plan.linear_maps,
                    )  # fmt: skip
                    total += one * (row_parts * column_parts * tlts)
        return total

    def _multiply(
        self, rows: Tiles, columns: Tiles, sizes: tuple[int, ...], channels: int
    ) -> float:
        """MAC time of one step: the first TLT's."""
        middle = self.problem.middle_tile(rows[0][0], columns[0][0])
        middle = min(middle[0], self.problem.rows), min(middle[1], self.problem.columns)
        filters = sizes[0] * self.each
        return mac_cycles(self.problem, filters, channels, *middle, self.machine)

    def _through_window(self, rows: Tiles, columns: Tiles, sizes: tuple[int, ...]) -> float:
        """What a window adds to an OUT tile: all TLTs forward their tiles, the first one's last."""
        if self.problem.window is None:
            return 0.0
        parts = sum(size > 0 for size in sizes)
        parts *= sum(extent > 0 for extent, _ in rows) * sum(extent > 0 for extent, _ in columns)
        first = (sizes[0], rows[0][0], columns[0][0])
        return window_cycles(self.problem, parts, *first, self.machine)

    def _engine(self, moved: Traffic) -> float:
        return moved.engine_cycles(self.machine, self.rivals)

    def _overlapped(self) -> float:
        """Time of the TLE with two buffers."""
        turns, machine = self.turns, self.machine
        keeps_in = self.plan.keeps_in

        def tile(rows: Tiles, columns: Tiles, sizes: tuple[int, ...]) -> TileTimes:
            loads = []
            for extent, _ in self.channels:
                own = 0.0
                if not keeps_in:
                    own += self._engine(self._load_in(rows, columns, sizes, extent))
                if not self.keeps_weights:
                    own += self._engine(self._load_weights(sizes, extent))
                loads.append(own)
            store = self._engine(self._store(rows, columns, sizes))
            return TileTimes(
                steps=tuple(number for _, number in self.channels),
                loads=tuple(loads),
                macs=tuple(
                    self._multiply(rows, columns, sizes, extent) for extent, _ in self.channels
                ),
                residual=store if self.problem.has_residual else 0.0,
                finish=finish_cycles(
                    self.problem, sizes[0] * self.each, rows[0][0], columns[0][0], machine
                )
                + self._through_window(rows, columns, sizes),
                store=store,
            )

        places = [
            (rows, columns, row_number * column_number)
            for rows, row_number in turns.rows
            for columns, column_number in turns.columns
        ]
        tiles = [
            [(tile(rows, columns, sizes), number * steps) for rows, columns, number in places]
            for sizes, steps in turns.items
        ]
        once = []
        if self.keeps_weights:
            for column, (sizes, steps) in zip(tiles, turns.items, strict=True):
                load = self._engine(self._load_weights(sizes, self.depth))
                once.append((column[-1][0], load, steps))
        elif keeps_in:
            for (rows, columns, number), (before, _) in zip(places, tiles[-1], strict=True):
                load = self._engine(self._load_in(rows, columns, (), self.depth))
                once.append((before, load, number))
        biases = self._engine(self._biases())
        return biases + overlapped_cycles([kind for item in tiles for kind in item], once)
