"""What a plan of the sum of two convolutions costs on a machine: `predict_sum`.

The whole is counted as `cost` counts a convolution, but that IN tiles of the first's channels are
as the first loads them, that biases come twice, and that between the channels of both an OUT tile
comes to its end and goes over the ring to MB0. A TLT waits for its own transfer; with two buffers
those of the others go on under its products, so that TLTs begin one after the other from then on.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace

from tvm_npu.codegen.errors import PlanningError
from tvm_npu.codegen.nmp.plan.check_choices import choice_fault
from tvm_npu.codegen.nmp.plan.conv_plan import ConvPlan
from tvm_npu.codegen.nmp.plan.conv_sum import SumProblem
from tvm_npu.codegen.nmp.plan.cost import combined
from tvm_npu.codegen.nmp.plan.mac_time import finish_cycles, step_cycles
from tvm_npu.codegen.nmp.plan.overlap import TileTimes
from tvm_npu.codegen.nmp.plan.spread import own_step, spreads
from tvm_npu.codegen.nmp.plan.tle_cost import TleCost
from tvm_npu.codegen.nmp.plan.tle_walk import Tiles, TleWalk
from tvm_npu.codegen.nmp.plan.traffic import NO_TRAFFIC, Traffic, chip_transfer, flat_transfer
from tvm_npu.codegen.nmp.plan.turns import TleTurns, tle_turns
from tvm_npu.codegen.plan.problem import Prediction
from tvm_npu.sim.machine_parts import BIAS_BYTES
from tvm_npu.sim.nmp.machine import NmpMachine


def predict_sum(problem: SumProblem, plan: ConvPlan, machine: NmpMachine) -> Prediction:
    """As `cost.predict`. PlanningError for choices that contradict each other."""
    fault = choice_fault(problem.whole, plan, machine)
    if fault is not None:
        raise PlanningError(f"no prediction for this plan: {fault}")
    kinds: Counter[TleTurns] = Counter(
        turns
        if plan.ring_in or plan.ring_weights
        else TleTurns(turns.rows, turns.columns, turns.items)
        for turns in tle_turns(problem.whole, plan, machine)
    )
    costs: Counter[TleCost] = Counter()
    for turns, tles in kinds.items():
        costs[SumWalk(problem, plan, machine, turns).cost()] += tles
    return combined(costs, 1, machine)


class SumWalk(TleWalk):
    """The transfers and MAC steps of one TLE."""

    def __init__(
        self, problem: SumProblem, plan: ConvPlan, machine: NmpMachine, turns: TleTurns
    ) -> None:
        super().__init__(problem.whole, plan, machine, turns)
        self.first = TleWalk(problem.first, plan, machine, turns)
        self.second = TleWalk(problem.second, plan, machine, turns)
        self.turn = problem.first.channels // plan.tile_n

    def cost(self) -> TleCost:
        """``on_chip`` is what goes over the ring in between."""
        inputs, on_chip, ends = self._differs()
        head = super().cost()
        return replace(head, inputs=inputs, mac_cycles=head.mac_cycles + ends, on_chip=on_chip)

    def _differs(self) -> tuple[Traffic, Traffic, float]:
        """IN tiles, what goes over the ring, and cycles of MAC unit and core around that."""
        inputs = on_chip = NO_TRAFFIC
        ends = 0.0
        for sizes, steps in self.turns.items:
            for rows, row_number in self.turns.rows:
                for columns, column_number in self.turns.columns:
                    times = steps * row_number * column_number
                    for load, _, number in self._steps(rows, columns, sizes):
                        inputs += load * (times * number)
                    on_chip += self.pass_on(rows, columns, sizes) * times
                    ends += times * self.turn_cycles(rows, columns, sizes)
        return inputs, on_chip, ends

    def _steps(
        self, rows: Tiles, columns: Tiles, sizes: tuple[int, ...]
    ) -> Iterator[tuple[Traffic, int, int]]:
        """The loads of IN tiles, channels, and how many, of the first and of the second."""
        extent = self.plan.tile_n
        own = self.first.load_in(_own(rows), _own(columns), sizes, extent)
        yield own, extent, self.turn
        for extent, number in self.second.channels:
            yield self.second.load_in(rows, columns, sizes, extent), extent, number

    def _one_buffer(
        self, inputs: Traffic, weights: Traffic, biases: Traffic, outputs: Traffic, macs: float
    ) -> float:
        own, on_chip, ends = self._differs()
        return super()._one_buffer(
            own, weights, biases, outputs, macs + ends + self.engine(on_chip)
        )

    def turn_cycles(self, rows: Tiles, columns: Tiles, sizes: tuple[int, ...]) -> float:
        """MAC unit and core between the channels of both and, behind those of the second, for the
        addition."""
        tile = sizes[0], rows[0].middle, columns[0].middle
        end = finish_cycles(self.problem, *tile, self.machine)
        return 2 * end + step_cycles(self.machine)

    def _once_loads(self, run: int) -> tuple[Traffic, ...]:
        biases = flat_transfer(run, BIAS_BYTES, self.burst_bytes)
        return (biases, biases)

    def tile_times(self, rows: Tiles, columns: Tiles, sizes: tuple[int, ...]) -> TileTimes:
        times = super().tile_times(rows, columns, sizes)
        loads, macs = [], []
        for moved, extent, number in self._steps(rows, columns, sizes):
            load = self.engine(moved)
            if not self.keeps_weights:
                load += self.engine(self.load_weights(sizes, extent))
            loads += [load + self.late] * number
            macs += [self.multiply(rows, columns, sizes, extent)] * number
        tile = sizes[0] * rows[0].middle * columns[0].middle
        own_pass = self.engine(chip_transfer(tile, self.problem.element_bytes))
        return SumTimes(
            times.tlts, (1,) * len(loads), tuple(loads), tuple(macs), 0.0, times.finish,
            times.store, 0.0,
            turn=self.turn,
            between=self.turn_cycles(rows, columns, sizes) + own_pass,
            passes=self.engine(self.pass_on(rows, columns, sizes)),
        )  # fmt: skip


def _own(tiles: Tiles) -> Tiles:
    """With what the first sees of its IFM, which has the places of the OFM."""
    return tuple(tile._replace(real=tile.middle) for tile in tiles)


@dataclass(frozen=True)
class SumTimes(TileTimes):
    """`TileTimes` step by step: in front of the products of step number ``turn`` come ``between``
    cycles of MAC unit and core, and ``passes`` of the engine."""

    turn: int = 0
    between: float = 0.0
    passes: float = 0.0

    def cycles(
        self, once: float = 0.0, is_first: bool = False, next_load: float | None = None
    ) -> float:
        store = 0.0 if is_first else self.store
        loads = [*self.loads[1:], (self.loads[0] if next_load is None else next_load) + once]
        macs = [*self.macs[:-1], self.macs[-1] + self.finish]
        count = len(macs)
        stores = [0.0] * count
        if spreads(2, count):
            for tlt in range(self.tlts):
                stores[own_step(tlt, self.tlts, count)] += store / self.tlts
        else:
            stores[0] = store
        macs[self.turn] += self.between
        loads[self.turn] += self.passes
        steps = zip(macs, loads, stores, strict=True)
        return sum(max(mac, load + stored) for mac, load, stored in steps)
