"""Layers that move elements: every core loads tiles, turns them on chip where it must, and stores
them, as `codegen.nmp.plan.move` says."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod

from tvm_npu.codegen.nmp.emit.commands import (
    Assign,
    Compute,
    Nodes,
    Transfer,
    clamped,
    dma_registers,
    loop,
    registers,
    when,
)
from tvm_npu.codegen.nmp.emit.conventions import (
    IN_ARRIVED,
    MAC_DONE,
    PENDING_STORES,
    SECOND_ARRIVED,
    STORE_DONE,
    wait,
    wait_store,
)
from tvm_npu.codegen.nmp.emit.expressions import Expression, Operand
from tvm_npu.codegen.nmp.emit.layer import LayerCode, Operands, require_fit
from tvm_npu.codegen.nmp.emit.mac import out_tile
from tvm_npu.codegen.nmp.emit.parameters import LayerParameters
from tvm_npu.codegen.nmp.emit.transfers import START, OnChip, run_transfer, segments_transfer
from tvm_npu.codegen.nmp.plan.move import MovePlan, MoveProblem, MoveTile, Strided, move_tile
from tvm_npu.codegen.ops.move import FixedMove, Piece
from tvm_npu.codegen.plan.problem import share
from tvm_npu.sim.nmp.machine import NmpMachine
from tvm_npu.sim.nmp.xnmp import DmaRegister, MacRegister, Memory, VectorOp
from tvm_npu.sim.streams import Stream


def move_layer(
    layer: FixedMove,
    problem: MoveProblem,
    plan: MovePlan,
    machine: NmpMachine,
    operands: Operands,
) -> LayerCode:
    """One piece after the other; each has a branch of its own around it, for cores that have none
    of its tiles."""
    size = problem.element_bytes
    deals = [_dealt(one.slices, machine) for one in plan.pieces]
    parameters = LayerParameters([True] * machine.core_count)
    sources = [
        parameters.address(f"in_address_{number}", place)
        for number, place in enumerate(operands.inputs)
    ]
    target = parameters.address("out_address", operands.output)
    nodes: Nodes = ()
    for number, (piece, chosen, deal) in enumerate(
        zip(problem.pieces, plan.pieces, deals, strict=True)
    ):
        tile = move_tile(piece.axes, chosen.tile, chosen.turned)
        for memory in ("mb0", "mb2"):
            most = max(tile.loaded, tile.stored) if chosen.turned else tile.stored
            require_fit(layer.name, "the tile", most * size, machine, memory)
        walk = _Walk(piece, chosen.tile, tile, size, sources[piece.source], target, str(number))
        active = parameters.number(f"active_{number}", [int(one is not None) for one in deal])
        nodes += when(active, "!=", walk.run(parameters, chosen.slices, deal))
    return LayerCode(parameters, nodes)


Deal = list[tuple[int, ...] | None]
"""Of every core: its part along every axis; None when it has nothing to do."""


def _dealt(slices: Sequence[int], machine: NmpMachine) -> Deal:
    """Neighbours in the order of the deal work in different TLEs, which have an engine each."""
    tles, tlts = machine.cores.tles, machine.cores.tlts_per_tle
    deal: Deal = []
    for core in range(machine.core_count):
        rest = core % tlts * tles + core // tlts
        if rest >= prod(slices):
            deal.append(None)
            continue
        parts = []
        for count in slices:
            rest, part = divmod(rest, count)
            parts.append(part)
        deal.append(tuple(parts))
    return deal


@dataclass(frozen=True)
class _Walk:
    """Over the tiles of one piece."""

    piece: Piece
    extents: tuple[int, ...]
    tile: MoveTile
    size: int
    source: Expression
    target: Expression
    name: str

    def run(self, parameters: LayerParameters, slices: Sequence[int], deal: Deal) -> Nodes:
        shares = []
        for axis, (one, part, parts) in enumerate(
            zip(self.piece.axes, self.extents, slices, strict=True)
        ):
            count = -(-one.extent // part)
            own = [(0, 1) if mine is None else share(count, parts, mine[axis]) for mine in deal]
            name = f"{self.name}_{axis}"
            first = parameters.number(f"first_{name}", [begin for begin, _ in own])
            shares.append((first, parameters.number(f"count_{name}", [n for _, n in own])))
        return self._axis(0, shares, self.piece.source_offset, self.piece.target_offset)

    def _axis(
        self,
        axis: int,
        shares: Sequence[tuple[Expression, Expression]],
        source: Operand,
        target: Operand,
    ) -> Nodes:
        """Loops over the tiles along ``axis`` and those behind it; ``source`` and ``target`` are
        the elements where they begin so far."""
        if axis == len(self.piece.axes):
            return self._move(Expression.of(source), Expression.of(target))
        one, part = self.piece.axes[axis], self.extents[axis]
        first, count = shares[axis]

        def body(index: Expression, _: Expression) -> Nodes:
            name = f"start_{self.name}_{axis}"
            start, make = clamped(name, one.extent - part, (first + index) * part)
            inner = self._axis(
                axis + 1, shares, Expression.of(source) + start * one.source,
                Expression.of(target) + start * one.target,
            )  # fmt: skip
            return (*make, *inner)

        return loop(f"tile_{self.name}_{axis}", count, 1, body)

    def _move(self, source: Expression, target: Expression) -> Nodes:
        size, tile = self.size, self.tile
        loads = self._transfers("nmp_load", tile.load, self.source + source * size)
        nodes: Nodes = (*loads, wait(IN_ARRIVED, tile.load.transfers), *wait_store())
        if tile.turn is None:
            nodes += _copy(tile.stored, size)
        else:
            turn = _with_box(tile.turn)
            nodes += (
                *_copy(tile.loaded, size),
                *_nest(
                    turn.loops, turn.elements, lambda there, here: self._turn(turn, there, here)
                ),
                wait(SECOND_ARRIVED, turn.transfers),
                *_copy(tile.stored, size),
            )
        stores = _nest(
            tile.again, 0,
            lambda there, _: self._transfers(
                "nmp_store", tile.store, self.target + (target + there) * size
            ),
        )  # fmt: skip
        pending = tile.store.transfers * prod(count for count, _ in tile.again)
        return (*nodes, *stores, Assign(PENDING_STORES, Expression(constant=pending)))

    def _transfers(self, mnemonic: str, shape: Strided, address: Expression) -> Nodes:
        size = self.size
        is_load = mnemonic == "nmp_load"
        memory, stream = (Memory.MB0, Stream.IN) if is_load else (Memory.MB2, Stream.OUT)
        semaphore = IN_ARRIVED if is_load else STORE_DONE

        def one(there: Expression, here: Expression) -> Nodes:
            at = OnChip(here * size if is_load else here)
            if shape.segments == 1 or shape.stride == shape.run:
                moved = shape.elements * size
                return (
                    run_transfer(
                        mnemonic, stream, memory, address + there * size, semaphore, moved, size, at
                    ),
                )
            segments = (shape.segments, shape.run * size, shape.stride * size)
            return (
                segments_transfer(
                    mnemonic, stream, memory, address + there * size, semaphore, segments, size, at
                ),
            )

        return _nest(shape.loops, shape.elements, one)

    def _turn(self, turn: _Boxes, there: Expression, here: Expression) -> Nodes:
        """Elements from ``there`` in MB2 on to ``here`` in MB0."""
        size = self.size
        values: dict[DmaRegister, Operand] = {
            DmaRegister.ELEMENT_BYTES: size,
            DmaRegister.CHANNELS: turn.channels,
            DmaRegister.ROWS: turn.segments,
            DmaRegister.COLUMNS: turn.run,
            DmaRegister.CHANNEL_STRIDE: turn.channel_stride * size,
            DmaRegister.ROW_STRIDE: turn.stride * size,
            DmaRegister.START_CHANNEL: 0,
            DmaRegister.START_ROW: 0,
            DmaRegister.START_COLUMN: 0,
            DmaRegister.BOX_CHANNELS: turn.channels,
            DmaRegister.BOX_ROWS: turn.segments,
            DmaRegister.BOX_COLUMNS: turn.run,
            DmaRegister.FILL: 0,
            **START.registers("nmp_forward3d"),
        }
        forward = Transfer(
            "nmp_forward3d", Stream.OTHER, Memory.MB0, here * size, there, SECOND_ARRIVED,
            dma_registers(values),
        )  # fmt: skip
        return (forward,)


@dataclass(frozen=True)
class _Boxes:
    """`Strided` transfers whose innermost loop is part of each."""

    loops: tuple[tuple[int, int], ...]
    channels: int
    channel_stride: int
    segments: int
    stride: int
    run: int

    @property
    def transfers(self) -> int:
        return prod(count for count, _ in self.loops)

    @property
    def elements(self) -> int:
        return self.channels * self.segments * self.run


def _with_box(turn: Strided) -> _Boxes:
    (channels, stride), loops = (
        (turn.loops[-1], turn.loops[:-1]) if turn.loops else ((1, 0), turn.loops)
    )
    return _Boxes(loops, channels, stride, turn.segments, turn.stride, turn.run)


def _nest(
    loops: Sequence[tuple[int, int]],
    elements: int,
    body: Callable[[Expression, Expression], Nodes],
    there: Operand = 0,
    here: Operand = 0,
) -> Nodes:
    """``body`` for every turn of ``loops`` (number, elements further where they are apart), with
    the elements from the first to the turn's: there, and where all that a turn moves, ``elements``,
    lies one behind the other."""
    if not loops:
        return body(Expression.of(there), Expression.of(here))
    (count, stride), inner = loops[0], loops[1:]
    chunk = elements * prod(n for n, _ in inner)
    return loop(
        f"part_{len(loops)}_{stride}", count, 1,
        lambda index, _: _nest(
            inner, elements, body, Expression.of(there) + index * stride,
            Expression.of(here) + index * chunk,
        ),
    )  # fmt: skip


def _copy(elements: int, size: int) -> Nodes:
    """From the start of MB0 to the start of MB2."""
    values: dict[MacRegister, Operand] = {
        **out_tile(elements, 1, 1, size),
        MacRegister.IN_ADDRESS: 0,
        MacRegister.W_ADDRESS: 0,
        MacRegister.SHIFT_A: 0,
        MacRegister.SHIFT_B: 0,
    }
    return (
        Compute("nmp_veop", int(VectorOp.COPY), MAC_DONE, registers(values)), wait(MAC_DONE),
    )  # fmt: skip
