"""Time of a TLE that takes few steps of a convolution, event by event.

Behind the products of a tile its TLT passes it over the ring, takes it through the window and
stores it: the engine of the TLE serves transfers of several kinds while some TLTs multiply. In a
layer of many tiles that evens out. In one of few, the closed forms of `cost` and `overlap`, where
everything in a step waits for its slowest TLT, are up to a quarter too slow. Here every TLT does
what its code does, in that order:

    with one buffer    loads, products, ring, window, store
    with two           loads of the next step, products, ring, window, store
    with `macs_first`  the same, but loads once all is there that the products need

IN and W tiles that TLTs share are loaded by the first of them once all have freed the buffer; where
several load, for some each, all TLTs wait for that (`emit.shared_buffer`). What comes over the
Global Ringbus is taken to arrive with the TLE's own part. All TLEs begin together and want the DRAM
at the same times. The first TLT, which fetches code for the others, comes after them.

Plans with a window behind are chosen by this time. Without one they are chosen by the closed forms,
over which `exact` proves its plans, and only the layer table of a program has it (`sequence`).
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from itertools import product
from typing import NamedTuple

from tvm_npu.codegen.nmp.plan.conv_plan import loads_weights_early
from tvm_npu.codegen.nmp.plan.mac_time import step_cycles
from tvm_npu.codegen.nmp.plan.queue_walk import Action, Ask, Signal, Wait, Work, walked_cycles
from tvm_npu.codegen.nmp.plan.tle_walk import Tiles, TleWalk
from tvm_npu.codegen.nmp.plan.traffic import NO_TRAFFIC, Traffic
from tvm_npu.codegen.nmp.plan.turns import Tile, tlt_filters

MOST_STEPS = 8
"""Of a TLT. Beyond, the closed forms are as good and faster."""
BEHIND_INSTRUCTIONS = 25
"""What a core does of a step's instructions (`mac_time.step_cycles`) between the arrival of its
tiles and its products, and between what comes over the ring and the store; the others are in front
of the next step's loads. By simulation."""


class Step(NamedTuple):
    """What a TLT works on. ``in_content`` and ``w_content`` count what its buffers have held, and
    ``stores`` its OUT tiles before this one, of which ``is_last`` is the last step."""

    row: Tile
    column: Tile
    items: int
    channels: int
    in_content: int
    w_content: int
    stores: int
    is_last: bool

    @property
    def tiles(self) -> tuple[Tiles, Tiles, tuple[int, ...]]:
        """As `TleWalk` takes those of TLTs."""
        return (self.row,), (self.column,), (self.items,)

    @property
    def has_place(self) -> bool:
        return self.row.out > 0 and self.column.out > 0

    @property
    def has_work(self) -> bool:
        return self.items > 0 and self.has_place


def takes_few_steps(walk: TleWalk) -> bool:
    turns = walk.turns.places * sum(number for _, number in walk.turns.items)
    return turns * sum(number for _, number in walk.channels) <= MOST_STEPS


def few_steps_cycles(walk: TleWalk, behind: Sequence[Traffic] = ()) -> float:
    """Time of a TLE for a convolution, or a group of one, without a residual, until all is stored.
    ``behind``: what each TLT asks for behind its last store, for the layer after this one."""
    parts = tlt_filters(walk.plan, walk.machine)
    places = walk.plan.tlt_rows * walk.plan.tlt_columns
    tlts = [Tlt(walk, place, part, parts) for place in range(places) for part in range(parts)]
    programs = [
        one.program(more)
        for one, more in zip(tlts, behind or (NO_TRAFFIC,) * len(tlts), strict=True)
    ]
    return walked_cycles([*programs[1:], programs[0]])


class Tlt:
    """The TLT with place ``place`` and filter part ``part`` of ``parts``."""

    def __init__(self, walk: TleWalk, place: int, part: int, parts: int) -> None:
        plan, machine = walk.plan, walk.machine
        self.walk, self.place, self.part, self.parts = walk, place, part, parts
        self.tlts = machine.cores.tlts_per_tle
        self.keeps_weights = plan.schedule == "WS"
        self.is_early = loads_weights_early(walk.problem, plan)
        self.behind = BEHIND_INSTRUCTIONS * machine.cores.instruction_cycles
        self.in_front = max(0.0, walk.step_cycles - self.behind)
        self.steps = self._steps()
        last = self.steps[-1]
        self.in_halves = min(plan.buffers, last.in_content + 1)
        self.w_halves = min(plan.buffers, last.w_content + 1)
        self.out_halves = min(plan.buffers, sum(step.is_last for step in self.steps))
        places = self.tlts // parts
        self.shares_in, self.shares_w = parts > 1 or plan.ring_in, places > 1 or plan.ring_weights
        self.all_wait_for_in = plan.ring_in or (self.shares_in and places > 1)
        self.all_wait_for_w = plan.ring_weights or (self.shares_w and parts > 1)

    def program(self, behind: Traffic) -> Iterator[Action]:
        """Until its last store is complete, behind which it asks for what is ``behind``."""
        yield from self._once()
        ahead = self.walk.plan.buffers - 1
        for number in range(len(self.steps)):
            if number:
                yield Work(self.in_front)
            if number and self.walk.plan.macs_first:
                yield from self._await(number - 1)
            yield from self._load_in(number)
            if number or not self.is_early:
                yield from self._load_weights(number)
            if number >= ahead:
                yield from self._consume(number - ahead, not self.walk.plan.macs_first)
        if ahead:
            yield from self._consume(len(self.steps) - 1)
        if behind != NO_TRAFFIC:
            yield Work(self.in_front)
            yield self._ask(behind, self._key("behind"))
        yield Wait(self._key("stored"), sum(step.has_work and step.is_last for step in self.steps))

    def _steps(self) -> list[Step]:
        """In the order of the loops."""
        walk, plan = self.walk, self.walk.plan
        turns, (row_part, column_part) = walk.in_order, divmod(self.place, plan.tlt_columns)
        rows = [tiles[row_part] for tiles, number in turns.rows for _ in range(number)]
        columns = [tiles[column_part] for tiles, number in turns.columns for _ in range(number)]
        items = [sizes[self.part] for sizes, number in turns.items for _ in range(number)]
        spots = list(product(rows, columns))
        if plan.keeps_rows:
            spots = [(row, column) for column in columns for row in rows]
        order = list(product(range(len(spots)), range(len(items))))
        if self.keeps_weights or plan.keeps_rows:
            order = [(spot, tile) for tile in range(len(items)) for spot in range(len(spots))]
        channels = [extent for extent, number in walk.channels for _ in range(number)]
        steps, done = [], 0
        for turn, (spot, tile) in enumerate(order):
            for at, extent in enumerate(channels):
                content = turn * len(channels) + at
                step = Step(
                    *spots[spot], items[tile], extent, spot if plan.keeps_in else content,
                    tile if self.keeps_weights else content, done, at == len(channels) - 1,
                )  # fmt: skip
                steps.append(step)
            done += step.has_work
        return steps

    def _key(self, what: str) -> Hashable:
        return (what, self.place, self.part)

    def _ask(self, moved: Traffic, key: Hashable) -> Ask:
        """Engines of all TLEs want the DRAM at once. A part of what comes over the Global Ringbus
        may be empty, and its transfer too."""
        plan = self.walk.plan
        tles = plan.row_slices * plan.column_slices * plan.filter_slices
        cycles = moved.engine_cycles(self.walk.machine, tles)
        return Ask(cycles or self.walk.machine.dme.setup_cycles, key)

    def _once(self) -> Iterator[Action]:
        """Biases, and kernels and biases of a depthwise convolution behind."""
        key, loads = self._key("once"), self.walk.once_loads(self.part)
        first = self.steps[0]
        if self.is_early:
            if first.items:
                yield self._ask(loads[0], key)
            yield from self._load_weights(0)
        if first.has_work:
            for number, load in enumerate(loads, 1):
                if number > 1 or not self.is_early:
                    yield self._ask(load, key)
                yield Wait(key, number)

    def _load_in(self, number: int) -> Iterator[Action]:
        step = self.steps[number]
        if not self._is_new(number, "in_content"):
            return
        freed, loads = step.in_content - self.in_halves, self.part == 0
        if freed >= 0 and (self.all_wait_for_in or (self.shares_in and loads)):
            yield Wait(("in free", freed), self.tlts)
        if loads and step.has_place:
            moved = self.walk.load_in(*step.tiles, step.channels)
            yield self._ask(moved, ("in", self.place, step.in_content))

    def _load_weights(self, number: int) -> Iterator[Action]:
        step = self.steps[number]
        if not self._is_new(number, "w_content"):
            return
        freed, loads = step.w_content - self.w_halves, self.place == 0
        if freed >= 0 and (self.all_wait_for_w or (self.shares_w and loads)):
            yield Wait(("w free", freed), self.tlts)
        if loads and step.items:
            sizes = tuple(step.items if part == self.part else 0 for part in range(self.parts))
            channels = self.walk.depth if self.keeps_weights else step.channels
            moved = self.walk.load_weights(sizes, channels)
            yield self._ask(moved, ("w", self.part, step.w_content))

    def _await(self, number: int) -> Iterator[Action]:
        """What the products of a step need."""
        step = self.steps[number]
        if step.has_place:
            yield Wait(("in", self.place, step.in_content))
        if step.items:
            yield Wait(("w", self.part, step.w_content))
        if step.has_work and step.stores >= self.out_halves:
            yield Wait(self._key("stored"), step.stores + 1 - self.out_halves)

    def _consume(self, number: int, waits: bool = True) -> Iterator[Action]:
        step, walk = self.steps[number], self.walk
        if waits:
            yield from self._await(number)
        if step.has_work:
            yield Work(walk.multiply(*step.tiles, step.channels) - self.in_front)
            if step.is_last:
                yield from self._end(step)
        if self.shares_in and self._is_done(number, "in_content"):
            yield Signal(("in free", step.in_content))
        if self.shares_w and self._is_done(number, "w_content"):
            yield Signal(("w free", step.w_content))
        if step.has_work and step.is_last:
            yield self._ask(walk.store(*step.tiles), self._key("stored"))

    def _end(self, step: Step) -> Iterator[Action]:
        """Of an OUT tile, up to its store."""
        walk = self.walk
        yield Work(walk.finish(*step.tiles))
        if walk.problem.window is None:
            return
        yield self._ask(walk.pass_on(*step.tiles), self._key("passed"))
        yield Wait(self._key("passed"), step.stores + 1)
        window = walk.through_window(*step.tiles) - step_cycles(walk.machine)
        yield Work(window + self.behind)

    def _is_new(self, number: int, content: str) -> bool:
        """Whether the step brings a content that the one before does not have."""
        return number == 0 or self._differ(number - 1, number, content)

    def _is_done(self, number: int, content: str) -> bool:
        """Whether the step after needs another content."""
        return number == len(self.steps) - 1 or self._differ(number, number + 1, content)

    def _differ(self, one: int, other: int, content: str) -> bool:
        return bool(getattr(self.steps[one], content) != getattr(self.steps[other], content))
