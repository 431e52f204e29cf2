"""What a plan of a block costs on a machine: `predict_block`.

The head is counted as `cost` counts a convolution, but for what it would store. Behind every tile
of its filters come rounds: a TLT waits for its crew, all engines of the crew pass on what their
TLTs made, and the MAC units multiply that. Nothing overlaps a round but loads for the next step
where there are two buffers.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from functools import lru_cache

from tvm_npu.codegen.errors import PlanningError
from tvm_npu.codegen.nmp.plan.block import (
    BlockPlan,
    BlockProblem,
    crew_size,
    keeps_point_weights,
    made_filters,
    most_point_filters,
)
from tvm_npu.codegen.nmp.plan.check_choices import choice_fault
from tvm_npu.codegen.nmp.plan.cost import combined
from tvm_npu.codegen.nmp.plan.input_residual import taken_cycles
from tvm_npu.codegen.nmp.plan.mac_time import finish_cycles, keep_cycles, mac_cycles, step_cycles
from tvm_npu.codegen.nmp.plan.overlap import TileTimes
from tvm_npu.codegen.nmp.plan.spread import spreads
from tvm_npu.codegen.nmp.plan.tle_cost import TleCost
from tvm_npu.codegen.nmp.plan.tle_walk import Tiles, TleWalk
from tvm_npu.codegen.nmp.plan.traffic import NO_TRAFFIC, Traffic, flat_transfer, out_transfer
from tvm_npu.codegen.nmp.plan.turns import Tile, TleTurns, tle_turns, tlt_filters
from tvm_npu.codegen.plan.problem import Prediction, share
from tvm_npu.sim.machine_parts import BIAS_BYTES
from tvm_npu.sim.nmp.machine import NmpMachine

TURN_CYCLES = 80.0
"""What a core does between the products of two rounds where there are two slots. This and what
follows is by simulation of plans near the fastest, of random blocks and of networks."""
SHARED_STEP_CYCLES = 106.0
"""With one buffer, what a step takes more where TLEs wait for each other's part of IN tiles."""
HIDDEN_PASS_CYCLES = 330.0
"""What of the first pass goes on while other TLTs are at the head's tile, unless loads for two
steps are in front of them."""
HIDDEN_AHEAD_CYCLES = 250.0
"""Likewise with two buffers and all of a TLT's filters in one tile, where such loads are."""
HIDDEN_CHIP_SHARE = 0.6
"""Likewise of what goes to windows of TLTs in other places than the first."""
KEPT_ROW_CYCLES = 14.0
"""With two buffers, what a row of a tile takes more where rows are kept."""
HIDDEN_KEEP_CYCLES = 480.0
"""With two buffers, what of the copy of rows that stay goes on beside."""
AHEAD_STEP_CYCLES = 30.0
"""With two buffers and a window, what a step takes more whose next loads come first."""
HIDDEN_TAKE_CYCLES = 100.0
"""With two buffers, what of the copies of a residual that comes from IN tiles goes on beside."""


def predict_block(problem: BlockProblem, plan: BlockPlan, machine: NmpMachine) -> Prediction:
    """As `cost.predict`; bytes that are passed on are no traffic of the DRAM. PlanningError for
    choices that contradict each other."""
    fault = choice_fault(problem.head, plan.head, machine)
    if fault is not None:
        raise PlanningError(f"no prediction for this plan: {fault}")
    costs: Counter[TleCost] = Counter()
    slices = plan.head.filter_slices
    found: dict[object, TleCost] = {}
    for number, turns in enumerate(tle_turns(problem.head, plan.head, machine)):
        walk = BlockWalk(problem, plan, machine, turns, number % slices)
        alike = walk.alike
        if alike not in found:
            found[alike] = walk.cost()
        costs[found[alike]] += 1
    return combined(costs, 1, machine)


@lru_cache(maxsize=1 << 12)
def _filters_of(filters: int, slices: int, runs: int, tle_run: int) -> tuple[int, ...]:
    """Of ``filters``, those of each filter part of slice number ``tle_run`` (`point_share`)."""
    own = share(filters, slices, tle_run)[1]
    return tuple(share(own, runs, run)[1] for run in range(runs))


@dataclass(frozen=True)
class BlockWalk:
    """The transfers and MAC steps of the TLE with filter slice ``tle_run``, by kind of turn."""

    problem: BlockProblem
    plan: BlockPlan
    machine: NmpMachine
    turns: TleTurns
    tle_run: int

    @property
    def alike(self) -> object:
        """The same for TLEs that cost the same: numbers of parts of tiles are left out where all
        parts are equal."""
        turns, head = self.turns, self.plan.head
        slices, sharing = head.filter_slices, head.row_slices * head.column_slices
        in_part = weight_part = 0
        if head.ring_in and (head.tile_n % slices or self.problem.head.channels % head.tile_n):
            in_part = turns.in_part
        if head.ring_weights and head.tile_m % sharing:
            weight_part = turns.weight_part
        return turns.rows, turns.columns, turns.items, in_part, weight_part, self._own_filters()

    def cost(self) -> TleCost:
        problem, plan, machine = self.problem, self.plan, self.machine
        walk = TleWalk(problem.head, plan.head, machine, self.turns)
        head = walk.cost()
        filter_turns = sum(steps for _, steps in self.turns.items)
        outputs, macs = NO_TRAFFIC, head.mac_cycles
        for rows, row_number in self.turns.rows:
            for columns, column_number in self.turns.columns:
                times = row_number * column_number
                outputs += self._store(rows, columns) * times
                macs += times * filter_turns * self._rounds(rows[0], columns[0])
                if problem.head.window is None:  # with one, the head's time has it
                    sizes = self.turns.items[0][0]
                    macs += times * filter_turns * walk.finish(rows, columns, sizes)
                macs += times * self._end(rows[0], columns[0])
        weights = head.weights + self._biases()
        loads = 1 if self._keeps_weights else filter_turns * self.turns.places
        weights += self._load_weights() * loads
        whole = replace(
            head, weights=weights, outputs=outputs, mac_cycles=macs, overlapped_cycles=0.0,
            residuals=outputs if self._loads_residual else NO_TRAFFIC,
        )  # fmt: skip
        if plan.head.buffers == 2:
            time = self._overlapped(walk, filter_turns)
        else:
            tiles = filter_turns * self.turns.places
            steps = tiles * sum(number for _, number in walk.channels)
            time = whole.cycles(machine) + self._beside(whole, steps)
        return replace(whole, overlapped_cycles=time)

    def _beside(self, whole: TleCost, steps: int) -> float:
        """With one buffer, what ``steps`` take longer than all transfers and MACs one after another
        where TLEs share IN tiles; and, less than nothing, what goes on beside."""
        shared = SHARED_STEP_CYCLES * (self.plan.head.filter_slices > 1)
        windows = whole.on_chip.engine_cycles(self.machine, whole.rivals)
        return shared * steps - HIDDEN_CHIP_SHARE * (1 - 1 / self.turns.tlt_places) * windows

    @property
    def _keeps_weights(self) -> bool:
        return keeps_point_weights(self.problem, self.plan, self.machine)

    def _own_filters(self) -> tuple[int, ...]:
        """Of the pointwise convolution, by filter part of the TLE."""
        head = self.plan.head
        runs = tlt_filters(head, self.machine)
        return _filters_of(self.problem.filters, head.filter_slices, runs, self.tle_run)

    def _biases(self) -> Traffic:
        total, bursts = NO_TRAFFIC, self.machine.dram.burst_bytes
        for count in self._own_filters():
            total += flat_transfer(count, BIAS_BYTES, bursts) * self.turns.tlt_places
        return total

    def _load_weights(self) -> Traffic:
        """Those for a tile of the head's filters."""
        most = most_point_filters(self.problem, self.plan, self.machine)
        channels = made_filters(self.problem, self.plan) * crew_size(self.plan, self.machine)
        one = flat_transfer(
            most * channels, self.problem.element_bytes, self.machine.dram.burst_bytes
        )
        return one * (sum(count > 0 for count in self._own_filters()) * self.turns.tlt_places)

    def _store(self, rows: Tiles, columns: Tiles) -> Traffic:
        """The OUT tiles of a place of every TLT."""
        total, point = NO_TRAFFIC, self.problem.point
        for count in self._own_filters():
            for row in rows:
                for column in columns:
                    total += out_transfer(
                        point, count, row.out, column.out, self.machine.dram.burst_bytes,
                        self.plan.head.linear_maps,
                    )  # fmt: skip
        return total

    def _rounds(self, row: Tile, column: Tile) -> float:
        """From a tile of the head to the products with it, of the TLT with most."""
        machine, plan, point = self.machine, self.plan, self.problem.point
        assert machine.ring is not None
        crew, area = crew_size(plan, machine), row.out * column.out
        most = most_point_filters(self.problem, plan, machine)
        size = plan.passed * area * point.element_bytes / machine.ring.bytes_per_cycle
        tlts, tles = machine.cores.tlts_per_tle, machine.cores.tles
        engine = machine.dme.setup_cycles + size
        if plan.head.filter_slices > 1:
            engine += machine.ring.hop_cycles * (tles - 1)
            passing = max(tlts * engine, tlts * tles * size + engine)
        else:
            passing = tlts * engine
        products = mac_cycles(
            point, most, crew * plan.passed, row.out, column.out, machine
        )
        waiting = step_cycles(machine)
        rounds = made_filters(self.problem, plan) // plan.passed
        hidden = 0.0
        if plan.head.buffers == 1 or plan.head.macs_first:
            hidden = min(HIDDEN_PASS_CYCLES, passing)
        elif plan.head.schedule == "WS":
            hidden = min(HIDDEN_AHEAD_CYCLES, passing)
        if plan.slots == 1:
            waiting *= plan.head.buffers == 2
            return rounds * (waiting + passing + products) - hidden
        # The first pass and the last products have nothing beside them.
        products -= waiting - TURN_CYCLES
        later = (rounds - 1) * max(products, waiting + passing)
        return waiting + passing + later + products - hidden

    def _end(self, row: Tile, column: Tile) -> float:
        """The end of a place's OUT tile, and what comes of IN tiles for it."""
        problem, plan, machine = self.problem, self.plan, self.machine
        most = most_point_filters(problem, plan, machine)
        end = finish_cycles(problem.point, most, row.out, column.out, machine)
        if plan.residual_on_chip:
            taken = taken_cycles(problem, plan, machine, row.out, column.out)
            end += max(0.0, taken - (HIDDEN_TAKE_CYCLES if plan.head.buffers == 2 else 0.0))
        return end

    def _kept_beside(self, column: Tile) -> float:
        """Of the copy of rows that stay in a place, with two buffers."""
        if not self.plan.head.keeps_rows:
            return 0.0
        own = self.turns.items[0][0][0]
        copy = keep_cycles(self.problem.head, own, column.passed, self.machine)
        return min(HIDDEN_KEEP_CYCLES, copy)

    @property
    def _loads_residual(self) -> bool:
        """From the DRAM."""
        return self.problem.has_residual and not self.plan.residual_on_chip

    def _overlapped(self, walk: TleWalk, filter_turns: int) -> float:
        """Time with two buffers. Under the first tile of a place goes the store of the place
        before, and beside it the place's residual; every tile has its part of the place's end."""
        share = 1 / filter_turns
        weights = 0.0 if self._keeps_weights else walk.engine(self._load_weights())

        def tile(rows: Tiles, columns: Tiles, sizes: tuple[int, ...]) -> TileTimes:
            times = walk.tile_times(rows, columns, sizes)
            behind = times.behind + self._rounds(rows[0], columns[0])
            behind -= self._kept_beside(columns[0])
            store = walk.engine(self._store(rows, columns))
            residual = store if self._loads_residual else 0.0
            if not spreads(2, sum(times.steps)):
                behind += residual * share  # nothing goes on beside it
                residual = 0.0
            more = 0.0
            if self.problem.head.window is not None and not self.plan.head.macs_first:
                more = AHEAD_STEP_CYCLES
            if self.plan.head.keeps_rows:
                more += KEPT_ROW_CYCLES * max(tile.middle for tile in rows)
            return replace(
                times, behind=behind + self._end(rows[0], columns[0]) * share,
                store=store, residual=residual, beside=weights,
                macs=tuple(one + more for one in times.macs),
            )  # fmt: skip

        def later(first: TileTimes) -> TileTimes:
            return replace(first, store=0.0, residual=0.0)

        # What is behind the head's products comes under those of the first place.
        before = walk.in_a_row(walk.biases()) - walk.in_a_row(walk.head_biases())
        once = before + walk.in_a_row(self._biases())
        if self._keeps_weights:
            once += walk.in_a_row(self._load_weights())
        first = tile(self.turns.rows[0][0], self.turns.columns[0][0], self.turns.items[0][0])
        return max(0.0, once - first.slack) - before + walk.overlapped(tile, later)
