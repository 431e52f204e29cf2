"""A pointwise convolution behind a convolution or a cascade: rounds in which the TLTs that share a
place pass on what they made, and the end of its OUT tiles (`plan.block.BlockPlan`).

In front of a round every TLT of the crew says that its MAC unit rests and that it no longer needs
what lies in the place of the passed tile in MB0; when all have, they pass on.
"""

from __future__ import annotations

from dataclasses import dataclass

from tvm_npu.codegen.nmp.emit.commands import Nodes, Transfer, loop, product, when
from tvm_npu.codegen.nmp.emit.conv_mac import ConvMac, WTile
from tvm_npu.codegen.nmp.emit.conv_transfers import ConvTransfers
from tvm_npu.codegen.nmp.emit.conventions import (
    MAC_DONE,
    POINT_W_ARRIVED,
    SECOND_ARRIVED,
    stored,
    wait,
    wait_store,
)
from tvm_npu.codegen.nmp.emit.expressions import Expression
from tvm_npu.codegen.nmp.emit.mac import OutTile, first_bias, out_tile
from tvm_npu.codegen.nmp.emit.shared_buffer import SharedBuffer
from tvm_npu.codegen.nmp.emit.steps import Step, Steps, when_has_place
from tvm_npu.codegen.nmp.emit.transfers import OnChip, run_transfer
from tvm_npu.sim.machine_parts import BIAS_BYTES
from tvm_npu.sim.nmp.xnmp import Initialise, Memory
from tvm_npu.sim.streams import Stream


@dataclass(frozen=True)
class PointLayout:
    """Where things of the pointwise convolution lie: what is passed on, from element
    ``from_element`` of MB2 to byte ``passed_offset`` of MB0; its OUT tile at ``out_element`` of
    MB2; its weights at byte ``w_offset`` of MB1; and its biases, behind ``first_bias`` others."""

    from_element: int
    out_element: int
    passed_offset: int
    w_offset: int
    first_bias: int


@dataclass(frozen=True)
class Crew:
    """The TLTs that share a place: how many, the channels that each passes on in a round, those of
    a TLT in a tile of the head's filters, the masks of them all, this one's ``slot`` (its number
    among them, times the bytes of what it passes on at one position), and what keeps them in
    step."""

    size: int
    passed: int
    tile_filters: int
    tlts: Expression
    tles: Expression
    slot: Expression
    buffer: SharedBuffer


@dataclass(frozen=True)
class ThroughPoint:
    """``filters`` are this TLT's of the pointwise convolution, from ``first_filter`` on, and
    ``most_filters`` the most that one has. ``weight`` and ``bias`` are where its own begin in
    DRAM."""

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

    @property
    def _size(self) -> int:
        return self.transfers.tiles.size

    @property
    def _channel_bytes(self) -> int:
        """Of the weights, for one channel of every TLT of the crew."""
        return self.most_filters * self.crew.size * self._size

    def constants(self) -> Nodes:
        """In front of the layer: biases, and the weights where they stay."""
        behind = OnChip(Expression(constant=self.layout.first_bias * BIAS_BYTES))
        nodes = self.transfers.load_biases(self.bias, self.filters, behind)
        if self.keeps_weights:
            nodes += (self._load_weights(Expression()), wait(POINT_W_ARRIVED))
        return when(self.filters, ">", nodes)

    def begin(self, step: Step) -> Nodes:
        """In the first step of a tile of the head's filters, in front of its MACs."""
        nodes: Nodes = ()
        if not self.keeps_weights:
            nodes = when(self.filters, ">", (self._load_weights(step.m), *self._weights_in_time))
        if not self.has_two_ports:  # the head's MACs may not touch MB2 under a store
            nodes += when(step.m, "==", wait_store())
        return when(step.n, "==", nodes)

    def rounds(self, step: Step) -> Nodes:
        """From the head's tile to the OUT tile; for TLTs without a place, too, which only keep in
        step."""
        buffer, start = self.crew.buffer, Expression()

        def turn(channel: Expression, _: Expression) -> Nodes:
            passed = when_has_place(step, self._pass_on(step, channel))
            products = (
                *buffer.await_content(start),
                *when(self.filters, ">", self._multiply(step, channel)),
            )
            return (
                *buffer.release(start),
                *buffer.acquire(start, passed),
                *when_has_place(step, products),
            )

        early: Nodes = ()
        if self.has_two_ports:
            if not self.keeps_weights:
                early = when(self.filters, ">", (wait(POINT_W_ARRIVED),))
            early += when(step.m, "==", wait_store())
        return (
            *when_has_place(step, early),
            *loop("passed", self.crew.tile_filters, self.crew.passed, turn),
        )

    def end(self, step: Step) -> Nodes:
        """The end of an OUT tile, behind the last of the head's filters."""
        out, bias = self._out(step), self._bias
        nodes: Nodes = ()
        if self.transfers.tiles.problem.has_residual:
            place = Expression(constant=self.layout.passed_offset)
            load = self.transfers.load_residual(
                self.first_filter, self.filters, self.steps.out_box(step), OnChip(place)
            )
            nodes = (load, *self.mac.add_residual(out, bias, place))
        store = self.transfers.store_out(
            self.first_filter, self.filters, self.steps.out_box(step),
            OnChip(Expression(constant=self.layout.out_element)),
        )  # fmt: skip
        nodes += (*self.mac.requantize(out, bias, self.first_filter), store, *stored())
        last = self.steps.turns.items - step.m - self.crew.tile_filters
        work = when_has_place(step, when(self.filters, ">", nodes))
        return when(last, ">", (), work)

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
            "nmp_load", Stream.WEIGHT, Memory.MB1, self.weight + first * self._channel_bytes,
            POINT_W_ARRIVED, self.crew.tile_filters * self._channel_bytes, self._size,
            OnChip(Expression(constant=self.layout.w_offset)),
        )  # fmt: skip

    def _pass_on(self, step: Step, channel: Expression) -> Nodes:
        """The own channels of the round to all of the crew."""
        crew = self.crew
        area, make_area = product("passed_area", step.rows, step.columns)
        source, make_source = product("passed_from", channel, area)
        target, make_target = product("passed_to", crew.slot, area)
        forward = run_transfer(
            "nmp_forward", Stream.OTHER, Memory.MB0, target + self.layout.passed_offset,
            SECOND_ARRIVED, area * (crew.passed * self._size), self._size,
            OnChip(source + self.layout.from_element, crew.tlts, crew.tles),
        )  # fmt: skip
        return (*make_area, *make_source, *make_target, forward)

    def _multiply(self, step: Step, channel: Expression) -> Nodes:
        """The products of a round, added to the OUT tile."""
        crew = self.crew
        channels = Expression(constant=crew.size * crew.passed)
        offset = channel * self._channel_bytes + self.layout.w_offset

        def multiply(initialise: Initialise) -> Nodes:
            return (
                self.mac.multiply(
                    self._out(step), initialise, WTile(offset, channels, self._bias), channels,
                    Expression.of(1), (step.rows, step.columns),
                    Expression(constant=self.layout.passed_offset),
                ),
            )  # fmt: skip

        first = multiply(first_bias(self.mac.layer))
        nodes = when(step.m + channel, "==", first, multiply(Initialise.KEEP))
        return (*nodes, wait(MAC_DONE))
