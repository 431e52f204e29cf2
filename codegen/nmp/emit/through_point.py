"""A pointwise convolution behind a convolution or a cascade: rounds in which the TLTs that share a
place pass on what they made, and the end of its OUT tiles (`plan.block.BlockPlan`).

In front of a round every TLT of the crew says that its MAC unit rests and that it no longer needs
what lies in the place of the passed tile in MB0; when all have, they pass on. With two such places,
slots, they pass on for one round while the MAC units work on the other.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from tvm_npu.codegen.nmp.emit.commands import Assign, Nodes, Transfer, loop, product, when
from tvm_npu.codegen.nmp.emit.conv_mac import ConvMac, WTile
from tvm_npu.codegen.nmp.emit.conv_transfers import ConvTransfers
from tvm_npu.codegen.nmp.emit.conventions import (
    MAC_DONE,
    POINT_RESIDUAL_ARRIVED,
    POINT_W_ARRIVED,
    SECOND_ARRIVED,
    stored,
    wait,
    wait_store,
)
from tvm_npu.codegen.nmp.emit.expressions import Expression, Variable
from tvm_npu.codegen.nmp.emit.input_residual import InputResidual
from tvm_npu.codegen.nmp.emit.mac import OutTile, first_bias, out_tile
from tvm_npu.codegen.nmp.emit.shared_buffer import SharedBuffer
from tvm_npu.codegen.nmp.emit.spread import Spread
from tvm_npu.codegen.nmp.emit.steps import Step, Steps, when_has_place
from tvm_npu.codegen.nmp.emit.transfers import OnChip, run_transfer
from tvm_npu.sim.machine_parts import BIAS_BYTES
from tvm_npu.sim.nmp.xnmp import Initialise, Memory
from tvm_npu.sim.streams import Stream

SLOT = Variable("passed_slot", 0, 1)
"""The place in MB0 of what belongs to the round at hand."""


@dataclass(frozen=True)
class PointLayout:
    """Where things of the pointwise convolution lie: what is passed on, from element
    ``from_element`` of MB2 to byte ``passed_offset`` of MB0, with two slots in turns ``slot_bytes``
    behind that; its OUT tile at ``out_element`` of MB2; the residual at byte ``residual_offset`` of
    MB0, and on its way from IN tiles at ``residual_element`` of MB2; its weights at byte
    ``w_offset`` of MB1; and its biases, behind ``first_bias`` others."""

    from_element: int
    out_element: int
    residual_element: int
    passed_offset: int
    slot_bytes: int
    residual_offset: int
    w_offset: int
    first_bias: int


@dataclass(frozen=True)
class Crew:
    """The TLTs that share a place: how many, the channels that each passes on in a round, the
    filters of a TLT in a tile of the head's and the channels that one of these makes, the masks of
    them all, this one's ``slot`` (its number among them, times the bytes of what it passes on at
    one position), and what keeps them in step."""

    size: int
    passed: int
    tile_filters: int
    planes: int
    tlts: Expression
    tles: Expression
    slot: Expression
    buffer: SharedBuffer

    @property
    def tile_channels(self) -> int:
        """That a TLT makes in a tile of the head's filters."""
        return self.tile_filters * self.planes


@dataclass(frozen=True)
class ThroughPoint:
    """``filters`` are this TLT's of the pointwise convolution, from ``first_filter`` on, and
    ``most_filters`` the most that one has. ``weight`` and ``bias`` are where its own begin in
    DRAM. ``on_chip``: where the residual comes from IN tiles."""

    mac: ConvMac
    transfers: ConvTransfers
    steps: Steps
    layout: PointLayout
    crew: Crew
    first_filter: Expression
    filters: Expression
    most_filters: int
    weight: Expression
    bias: Expression
    keeps_weights: bool
    has_two_ports: bool
    spread: Spread | None
    on_chip: InputResidual | None

    @property
    def _size(self) -> int:
        return self.transfers.tiles.size

    @property
    def _channel_bytes(self) -> int:
        """Of the weights, for one channel of every TLT of the crew."""
        return self.most_filters * self.crew.size * self._size

    def constants(self) -> Nodes:
        """In front of the layer: biases, and the weights where they stay, and the wait for them."""
        biases, *weights = self._constant_loads
        nodes: Nodes = (biases, wait(SECOND_ARRIVED))
        if weights:
            nodes += (*weights, wait(POINT_W_ARRIVED))
        return when(self.filters, ">", nodes)

    def late_constants(self) -> Nodes:
        """The same without the wait."""
        return when(self.filters, ">", self._constant_loads)

    def await_constants(self) -> Nodes:
        """Of `late_constants`."""
        waits: Nodes = (wait(SECOND_ARRIVED),)
        if self.keeps_weights:
            waits += (wait(POINT_W_ARRIVED),)
        return when(self.filters, ">", waits)

    @property
    def _constant_loads(self) -> Nodes:
        behind = OnChip(Expression(constant=self.layout.first_bias * BIAS_BYTES))
        nodes: Nodes = self.transfers.load_biases(self.bias, self.filters, behind)[:1]
        if self.keeps_weights:
            nodes += (self._load_weights(Expression()),)
        return nodes

    def begin(self, step: Step) -> Nodes:
        """In the first step of a tile of the head's filters, in front of its MACs or, where
        memories have two ports, beside them."""
        nodes: Nodes = ()
        if not self.keeps_weights:
            nodes = when(self.filters, ">", (self._load_weights(step.m), *self._weights_in_time))
        if not self.has_two_ports:  # the head's MACs may not touch MB2 under a store
            nodes += when(step.m, "==", wait_store())
        return (*when(step.n, "==", nodes), *self._in_own_step(step))

    def open(self, step: Step) -> Nodes:
        """In front of the loops, whose indices ``step`` names."""
        return () if self.spread is None else self.spread.open(_place(step))

    def close(self, step: Step) -> Nodes:
        """Behind the loops."""
        return () if self.spread is None else self.spread.store(_place(step), self._store)

    def _in_own_step(self, step: Step) -> Nodes:
        """Of the first tile of the head's filters at a place: the OUT tile of the place before is
        stored, and the residual loaded."""
        if self.spread is None:
            return ()
        nodes = (*self.spread.store(_place(step), self._store), *self._load_residual(step))
        return when(step.m, "==", self.spread.in_own_step(step, when(self.filters, ">", nodes)))

    def rounds(self, step: Step) -> Nodes:
        """From the head's tile to the OUT tile; for TLTs without a place, too, which only keep in
        step."""
        early: Nodes = ()
        if self.has_two_ports:
            if not self.keeps_weights:
                early = when(self.filters, ">", (wait(POINT_W_ARRIVED),))
            free = wait_store() if self.spread is None else self.spread.await_stores()
            early += when(step.m, "==", free)
        one_by_one = self.crew.buffer.halves == 1
        rounds = self._one_by_one(step) if one_by_one else self._in_turns(step)
        return (*when_has_place(step, early), *rounds)

    def _one_by_one(self, step: Step) -> Nodes:
        """A round begins when all are through with the one before."""
        buffer, start = self.crew.buffer, Expression()

        def turn(channel: Expression, _: Expression) -> Nodes:
            passed = when_has_place(step, self._pass_on(step, channel, start))
            products = (
                *buffer.await_content(start),
                *when(self.filters, ">", (*self._multiply(step, channel, start), wait(MAC_DONE))),
            )
            return (
                *buffer.release(start),
                *buffer.acquire(start, passed),
                *when_has_place(step, products),
            )

        return loop("passed", self.crew.tile_channels, self.crew.passed, turn)

    def _in_turns(self, step: Step) -> Nodes:
        """What belongs to the next round is passed on under the products of this one."""
        buffer, crew = self.crew.buffer, self.crew
        slot = Expression.of(SLOT)
        other = slot * -1 + 1

        def pass_on(channel: Expression, slot: Expression) -> Nodes:
            return buffer.acquire(slot, when_has_place(step, self._pass_on(step, channel, slot)))

        def turn(channel: Expression, _: Expression) -> Nodes:
            behind = Expression.of(crew.tile_channels) - channel - crew.passed
            multiply = (
                *buffer.await_content(slot),
                *when(self.filters, ">", self._multiply(step, channel, slot)),
            )
            done = when_has_place(step, when(self.filters, ">", (wait(MAC_DONE),)))
            return (
                *when_has_place(step, multiply),
                *when(behind, ">", pass_on(channel + crew.passed, other)),
                *done,
                *when(behind - crew.passed, ">", buffer.release(slot)),
                Assign(SLOT, other),
            )

        return (
            *buffer.open(),
            Assign(SLOT, Expression()),
            *pass_on(Expression(), Expression()),
            *loop("passed", crew.tile_channels, crew.passed, turn),
        )

    def end(self, step: Step) -> Nodes:
        """The end of an OUT tile, behind the last of the head's filters."""
        out, bias = self._out(step), self._bias
        nodes: Nodes = ()
        if self.transfers.tiles.problem.has_residual:
            place = Expression(constant=self.layout.residual_offset)
            add = self.mac.add_residual(out, bias, place, POINT_RESIDUAL_ARRIVED)
            if self.on_chip is not None:
                add = (*self.on_chip.await_arrival(), *add[1:])
            load = self._load_residual(step) if self.spread is None else ()
            nodes = (*load, *add)
        nodes += self.mac.requantize(out, bias, self.first_filter)
        if self.spread is not None and self.spread.has_several_places(_place(step)):
            nodes += self.spread.keep(_place(step))
        else:
            nodes += (*self._store(step), *stored())
        last = self.steps.turns.items - step.m - self.crew.tile_filters
        work = when_has_place(step, when(self.filters, ">", nodes))
        return when(last, ">", (), work)

    def _load_residual(self, step: Step) -> Nodes:
        if not self.transfers.tiles.problem.has_residual or self.on_chip is not None:
            return ()
        place = OnChip(Expression(constant=self.layout.residual_offset))
        box = self.steps.out_box(step)
        return (
            self.transfers.load_residual(
                self.first_filter, self.filters, box, place, POINT_RESIDUAL_ARRIVED
            ),
        )

    def _store(self, step: Step) -> Nodes:
        place = OnChip(Expression(constant=self.layout.out_element))
        box = self.steps.out_box(step)
        return (self.transfers.store_out(self.first_filter, self.filters, box, place),)

    @property
    def _weights_in_time(self) -> Nodes:
        """With one port the MAC unit may not touch MB1 while weights arrive."""
        return () if self.has_two_ports else (wait(POINT_W_ARRIVED),)

    @property
    def _bias(self) -> Expression:
        return Expression(constant=self.layout.first_bias)

    def _out(self, step: Step) -> OutTile:
        return out_tile(
            self.filters, step.rows, step.columns, self._size, self.layout.out_element
        )

    def _load_weights(self, first: Expression) -> Transfer:
        return run_transfer(
            "nmp_load", Stream.WEIGHT, Memory.MB1,
            self.weight + first * (self.crew.planes * self._channel_bytes),
            POINT_W_ARRIVED, self.crew.tile_channels * self._channel_bytes, self._size,
            OnChip(Expression(constant=self.layout.w_offset)),
        )  # fmt: skip

    def _pass_on(self, step: Step, channel: Expression, slot: Expression) -> Nodes:
        """The own channels of the round to ``slot`` of all of the crew."""
        crew = self.crew
        area, make_area = product("passed_area", step.rows, step.columns)
        source, make_source = product("passed_from", channel, area)
        target, make_target = product("passed_to", crew.slot, area)
        place = target + self._slot_offset(slot)

        def forward(arrived: int) -> Nodes:
            on_chip = OnChip(source + self.layout.from_element, crew.tlts, crew.tles)
            return (
                run_transfer(
                    "nmp_forward", Stream.OTHER, Memory.MB0, place, arrived,
                    area * (crew.passed * self._size), self._size, on_chip,
                ),
            )  # fmt: skip

        nodes = crew.buffer.with_semaphore(slot, forward)
        return (*make_area, *make_source, *make_target, *nodes)

    def _slot_offset(self, slot: Expression) -> Expression:
        return slot * self.layout.slot_bytes + self.layout.passed_offset

    def _multiply(self, step: Step, channel: Expression, slot: Expression) -> Nodes:
        """The products of a round begin to add to the OUT tile."""
        crew = self.crew
        channels = Expression(constant=crew.size * crew.passed)
        offset = channel * self._channel_bytes + self.layout.w_offset

        def multiply(initialise: Initialise) -> Nodes:
            return (
                self.mac.multiply(
                    self._out(step), initialise, WTile(offset, channels, self._bias), channels,
                    Expression.of(1), (step.rows, step.columns),
                    self._slot_offset(slot),
                ),
            )  # fmt: skip

        first = multiply(first_bias(self.mac.layer))
        return when(step.m + channel, "==", first, multiply(Initialise.KEEP))


def _place(step: Step) -> Step:
    """The place of a step: it is the same for all tiles of the head's filters."""
    return replace(step, m=Expression())
