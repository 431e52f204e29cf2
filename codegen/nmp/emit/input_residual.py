"""What a TLT of a block adds, from the IN tile that has it to its place in MB0
(`plan.input_residual`)."""

from __future__ import annotations

from dataclasses import dataclass

from tvm_npu.codegen.nmp.emit.commands import (
    Assign,
    Compute,
    Minimum,
    Nodes,
    Transfer,
    at_least_one,
    dma_registers,
    loop,
    product,
    registers,
    when,
)
from tvm_npu.codegen.nmp.emit.conv_tiles import ConvTiles
from tvm_npu.codegen.nmp.emit.conv_transfers import OfmBox
from tvm_npu.codegen.nmp.emit.conventions import MAC_DONE, POINT_RESIDUAL_ARRIVED, wait
from tvm_npu.codegen.nmp.emit.expressions import Expression, Variable
from tvm_npu.codegen.nmp.emit.mac import out_tile
from tvm_npu.codegen.nmp.emit.steps import Step, Steps
from tvm_npu.codegen.nmp.emit.transfers import START
from tvm_npu.sim.nmp.xnmp import DmaRegister, MacRegister, Memory, VectorOp
from tvm_npu.sim.streams import Stream


@dataclass(frozen=True)
class InputResidual:
    """``filters`` channels of the step that begins at ``step_channel`` (both of this TLT), from
    ``first`` of its tile on. They go to ``element`` of MB2, with the last ``carried`` rows of a
    tile for the next one, and from there to byte ``offset`` of MB0. Windows see ``border`` rows
    above their own. IN tiles are ``half_bytes`` apart. ``waits``: nothing may run beside the way to
    MB0."""

    steps: Steps
    step_channel: Expression
    first: Expression
    filters: Expression
    element: int
    offset: int
    half_bytes: int
    carried: int
    border: int
    waits: bool

    @property
    def _tiles(self) -> ConvTiles:
        return self.steps.tiles

    @property
    def _width(self) -> int:
        """Columns: tiles have whole rows."""
        return self._tiles.problem.in_columns

    @property
    def _rows(self) -> int:
        """Of the largest tile."""
        return self._tiles.largest[2]

    @property
    def _pitch(self) -> int:
        """Elements from one channel to the next in MB2."""
        return self._rows * self._width

    def take(self, step: Step, at: OfmBox) -> Nodes:
        """Behind the products of ``step``, whose IN tile is under ``at``."""
        nodes = when(self.filters, ">", self._take(step, at))
        return when(step.m, "==", when(step.n - self.step_channel, "==", nodes))

    def await_arrival(self) -> Nodes:
        """In front of the addition."""
        return () if self._waits_at_once else (wait(POINT_RESIDUAL_ARRIVED),)

    @property
    def _waits_at_once(self) -> bool:
        """What is carried overwrites what was on its way."""
        return self.waits or self.carried > 0

    def _take(self, step: Step, at: OfmBox) -> Nodes:
        row_bytes = self._width * self._tiles.size
        base = step.in_half * self.half_bytes
        skipped, have, make_rows = self._skipped_and_there(step, at)
        if skipped == Expression() and at.rows == step.rows == Expression.of(self._rows):
            copy = self._copy(
                self.filters, step.rows, base + self.first * (self._rows * row_bytes), Expression()
            )
            return (*copy, *self._forward(step))
        offset, make_offset = product("taken_offset", self.first, at.rows * row_bytes)
        count, make_count = at_least_one("some_filters", self.filters)
        begin, fresh = Variable("taken_begin", 0, 1 << 20), Variable("fresh_rows", 0, self._rows)
        source, target = Variable("taken_from", 0, 1 << 20), Variable("taken_to", 0, 1 << 20)

        def of_all_channels(rows: Expression, first: Expression, to: Expression) -> Nodes:
            """``rows`` of each channel, from byte ``first`` on, to row ``to``."""

            def turn(_: Expression, __: Expression) -> Nodes:
                here, there = Expression.of(source), Expression.of(target)
                return (
                    *self._copy(Expression.of(1), rows, here, there),
                    Assign(source, here + at.rows * row_bytes),
                    Assign(target, there + self._pitch),
                )

            return (
                Assign(source, first), Assign(target, to * self._width),
                *loop("taken", count, 1, turn),
            )  # fmt: skip

        own, start = Expression.of(fresh), Expression.of(begin)
        nodes: Nodes = (
            *make_rows, *make_offset, Assign(begin, base + offset + skipped * row_bytes),
            *make_count, Minimum(fresh, self._rows, step.rows - have),
            *when(own, ">", of_all_channels(own, start, have)), *self._forward(step),
        )  # fmt: skip
        if not self.carried:
            return nodes
        is_last = self.steps.words.rows - step.r - self._rows
        carry = of_all_channels(
            Expression.of(self.carried), start + own * row_bytes, Expression()
        )
        return (*nodes, *when(is_last, ">", carry))

    def _skipped_and_there(self, step: Step, at: OfmBox) -> tuple[Expression, Expression, Nodes]:
        """Rows of the IN tile in front of what is copied, and rows of the residual that came with
        the tile above."""
        lag = self.steps.out_box(step).row - at.row
        if not self.carried:
            return lag, Expression(), ()
        skipped = Variable("skipped_rows", 0, self.border)
        have = Variable("carried_rows", 0, self.carried)
        begin: Nodes = (Assign(have, Expression()), Minimum(skipped, self.border, lag))
        go_on: Nodes = (
            Assign(have, Expression.of(self.carried)), Assign(skipped, Expression()),
        )  # fmt: skip
        make = when(step.r, "==", begin, go_on)
        return Expression.of(skipped), Expression.of(have), make

    def _copy(
        self, channels: Expression, rows: Expression, source: Expression, target: Expression
    ) -> Nodes:
        """From byte ``source`` of MB0 to ``target`` behind the place in MB2."""
        out = out_tile(channels, rows, self._width, self._tiles.size, target + self.element)
        values = {**out, MacRegister.IN_ADDRESS: source, MacRegister.SHIFT_A: 0}
        copy = Compute("nmp_veop", int(VectorOp.COPY), MAC_DONE, registers(values))
        return (copy, wait(MAC_DONE))

    def _forward(self, step: Step) -> Nodes:
        size = self._tiles.size
        values = {
            DmaRegister.ELEMENT_BYTES: size,
            DmaRegister.SEGMENTS: self.filters,
            DmaRegister.SEGMENT_BYTES: step.rows * (self._width * size),
            DmaRegister.SEGMENT_STRIDE: self._pitch * size,
            **START.registers("nmp_forward"),
        }
        forward = Transfer(
            "nmp_forward", Stream.OTHER, Memory.MB0, Expression.of(self.offset),
            Expression.of(self.element), POINT_RESIDUAL_ARRIVED, dma_registers(values),
        )  # fmt: skip
        pause: Nodes = (wait(POINT_RESIDUAL_ARRIVED),) if self._waits_at_once else ()
        return (forward, *pause)
