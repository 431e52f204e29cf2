"""How long tiles of a chain take at least, all at once: bounds of what the clocks of
`emit.interlock` say.

Each unit does its work one command after the other: nothing is shorter than what the engine does,
with the loads in front of its first products and the store behind its last, nor than all transfers,
with the work between the last load and the last store. With one buffer a strip's loads come behind
the store of the strip before, and a round's weights of the pointwise convolution behind its
products of the round before. Words that issue, and all segments of a transfer but one, are left
out.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

import numpy as np

from tvm_npu.codegen.plan.loops.machine import LoopMachine
from tvm_npu.codegen.tiles.plan.chain_space import ChainSpace, Counts, Of, Table
from tvm_npu.codegen.tiles.plan.loop_machine import loop_machine
from tvm_npu.sim.arithmetic import ceil_div
from tvm_npu.sim.lazy import cached_property


@dataclass(frozen=True, eq=False)
class ChainBound:
    """Of all tiles of a space, in cycles."""

    space: ChainSpace

    def cycles(self, buffers: int) -> Table:
        """Nothing is shorter."""
        return self._one_place() if buffers == 1 else self._two_places()

    @property
    def _view(self) -> LoopMachine:
        return loop_machine(self.space.machine)

    @property
    def _pes(self) -> int:
        array = self.space.machine.array
        assert array is not None  # there are no chains without
        return array.width * array.height

    # Transfers

    def _moving(self, transfers: Table, size_bytes: Table) -> Table:
        cost = self._view.transfer
        return (cost.start + cost.segment) * transfers + cost.byte * size_bytes

    @cached_property
    def _mover(self) -> Table:
        """All transfers."""
        space, own = self.space, self.space.by_rows
        sets = np.where(space.weights_stay, 1, space.strips * space.rounds)
        count = (sets + 1) * len(space.problem.convolutions)
        if space.keeps_rows:
            kept = own.shared > 0
            coming = kept & (own.inputs.count > own.shared)
            count = count + own.sum(np.where(kept, space.problem.head.channels * coming, 1))
        elif not space.place.held:
            count = count + space.strips * (space.rounds if space.problem.is_depthwise else 1)
        count = count + space.strips * (space.loads_residual + (0 if space.place.kept else 1))
        return self._moving(count, space.moved_bytes)

    def _store(self, rows: Table) -> Table:
        """Of an OUT tile of ``rows``."""
        if self.space.place.kept:
            return 0.0
        point = self.space.problem.point
        return self._moving(1, rows * (point.filters * point.columns * point.element_bytes))

    def _inputs(self, count: Table, rows: Table) -> Table:
        """``count`` IN tiles of a strip's first round, ``rows`` together."""
        space, head = self.space, self.space.problem.head
        if space.place.held:
            return 0.0
        channels = space.channels if space.problem.is_depthwise else head.channels
        return self._moving(count, rows * channels * (head.in_columns * head.element_bytes))

    def _weights(self, number: int, channels: Table) -> Table:
        """Of one convolution, those of a round of ``channels``."""
        return self._moving(1, channels * self.space.weights_of_channel[number])

    # Work of the engine

    def _products(self, number: int, channels: Table, rows: Counts, of: Of) -> Table:
        """Of one convolution in rounds of ``channels``, one in each strip of ``rows``."""
        view, one = self._view, self.space.problem.convolutions[number]
        taps, depth = prod(one.kernel), one.channels // one.groups
        if number == self._last:
            turns = ceil_div(channels, view.pes_on("N")) * ceil_div(one.filters, view.pes_on("M"))
        else:
            turns = channels if one.groups > 1 else ceil_div(channels, view.pes_on("M"))
            at_once = view.best_taps(depth, taps)
            turns = turns * (ceil_div(depth, view.pes_on("N")) * ceil_div(taps, at_once))
        turns = turns * ceil_div(one.columns, view.pes_on("C"))
        iterations = turns * of(ceil_div(rows, view.pes_on("R")))
        return view.engine.setup * of(np.ones_like(rows)) + view.engine.iteration * iterations

    @property
    def _last(self) -> int:
        """The pointwise convolution's number."""
        return len(self.space.problem.convolutions) - 1

    def _round(self, channels: Table, of: Of) -> tuple[Table, Table]:
        """A round of ``channels``, of some strips: the work in front of the pointwise convolution,
        and its products."""
        problem, own = self.space.problem, self.space.by_rows
        head, middle, out = problem.head, problem.middle, own.out.count
        front = self._products(0, channels, own.middle.count, of)
        made = head.columns * of(own.middle.count)
        if middle is not None:
            front = front + self._products(1, channels, out, of)
            made = made + middle.columns * of(out)
        front = front + channels * (made / self._pes)
        return front, self._products(self._last, channels, out, of)

    def _finish(self, of: Of) -> Table:
        """OUT tiles of some strips, and their copies where they stay on chip."""
        point, rows = self.space.problem.point, self.space.by_rows.out.count
        found = of(ceil_div(rows * (point.filters * point.columns), self._pes))
        if not self.space.place.kept:
            return found
        by_channel = point.filters * of(ceil_div(rows * point.columns, self._pes))
        return found + np.where(self.space.strips == 1, found, by_channel)

    @cached_property
    def _slides(self) -> Table:
        """Of rows that move on chip."""
        own, head = self.space.by_rows, self.space.problem.head
        if not self.space.keeps_rows:
            return 0.0
        return head.channels * own.sum(ceil_div(own.shared * head.in_columns, self._pes))

    @cached_property
    def _rounds(self) -> tuple[tuple[Table, Table], tuple[Table, Table]]:
        """Of all strips: a round of the most channels, and the last one."""
        space, every = self.space, self.space.by_rows.sum
        return self._round(space.channels, every), self._round(space.last_channels, every)

    @cached_property
    def _engine(self) -> Table:
        """All its work."""
        first, last = self._rounds
        rounds = (self.space.rounds - 1) * sum(first) + sum(last)
        return rounds + self._finish(self.space.by_rows.sum) + self._slides

    # Both

    def _two_places(self) -> Table:
        space, own = self.space, self.space.by_rows
        inputs = self._inputs(1, own.first(own.inputs.count))
        # The head's weights may come while rows of the first strip move to the second one.
        weights = np.maximum(self._weights(0, space.channels) - self._slides, 0.0)
        working = inputs + weights + self._engine
        working = working + self._store(own.last(own.out.count))
        front, point = self._round(space.last_channels, own.last)
        # In front of the last store comes work on what the mover loads last: weights of a round, or
        # where these stay what is behind the biases, or a strip, beside which the one before is
        # stored.
        finish, stay = self._finish(own.last), space.weights_stay
        several = stay & (space.strips > 1)
        tail = finish + np.where(stay & ~several, 0.0, point) + np.where(several, front, 0.0)
        tail = np.where(several & (own.last(space.coming) == 0), 0.0, tail)
        tail = np.where(space.loads_residual, finish, tail)
        beside = np.where(several, self._store(space.rows), 0.0)
        return np.maximum(working, self._mover + np.maximum(tail - beside, 0.0))

    def _one_place(self) -> Table:
        space, own = self.space, self.space.by_rows
        (front, _), (last_front, last_point) = self._rounds
        finish, comes = self._finish(own.sum), space.coming > 0
        # The engine stands still while OUT tiles go and the next strip's IN tile comes, but for
        # rows that move meanwhile, and for the head's weights behind that.
        still = self._inputs(own.sum(1 * comes), own.sum(space.coming)) - self._slides
        still = still + self._store(space.rows) * own.sum(1 * (comes & (own.out.begin > 0)))
        still = still + self._store(own.last(own.out.count))
        sets = np.where(space.weights_stay, 1, space.strips)
        still = still + self._weights(0, space.channels) * sets
        for channels, work, times in (
            (space.channels, front, space.rounds - 2), (space.last_channels, last_front, 1)
        ):  # fmt: skip
            late = space.strips * self._weights(self._last, channels) - work
            late = np.maximum(late, 0.0) * times
            still = still + np.where(space.weights_stay, 0.0, late)
        # The mover stands still while work is done on what came last; at first that is biases.
        first = sum(self._round(space.last_channels, own.first))
        strips = (0.0 if space.keeps_rows else last_front) + last_point - first
        tail = finish + np.where(space.weights_stay, np.maximum(strips, 0.0), last_point)
        tail = np.where(space.loads_residual, finish, tail)
        return np.maximum(self._engine + still, self._mover + tail)
