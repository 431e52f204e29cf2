"""Words that set registers: as many are counted as are emitted, and each value arrives."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest

from tests.codegen.tiles.tile_cases import tile_machine
from tvm_npu.codegen.program.constants import Constants
from tvm_npu.codegen.program.format import WORD_BYTES
from tvm_npu.codegen.tiles.emit.commands import ChipRange, Command, Runs, Transfer, Work
from tvm_npu.codegen.tiles.emit.emitter import Code, MoverEmitter
from tvm_npu.codegen.tiles.emit.interlock import timed_steps
from tvm_npu.codegen.tiles.emit.pipeline import TileStep, ordered
from tvm_npu.sim.streams import Stream
from tvm_npu.sim.tiles.isa import TILE_ISA, TileMemory, TileRegister

MACHINE = tile_machine()
BITS = 19
"""Of a low half, whose sign fills the upper one."""


def random_number(draw: random.Random) -> int:
    """Few low and few upper halves, so that one, both or none of them change; some negative."""
    low = draw.choice((0, 1, 100, (1 << BITS - 1) - 1, 1 << BITS - 1, (1 << BITS) - 1))
    return draw.choice((-2, -1, 0, 0, 0, 1, 2)) * (1 << BITS) + low


def random_command(draw: random.Random) -> Command:
    if draw.random() < 0.5:
        registers = (TileRegister.SHIFT, TileRegister.LOW, TileRegister.HIGH)
        values = {one: random_number(draw) for one in registers if draw.random() < 0.7}
        return Work("tfinish", 0, values, (), ChipRange(TileMemory.OUTPUT, 0, 4), operations=1)
    address, offset = abs(random_number(draw)), abs(random_number(draw))
    runs = Runs(TileMemory.ACTIVATIONS, address, draw.choice((1, 64)))
    return Transfer(draw.random() < 0.5, TileMemory.INPUT, offset, runs, Stream.IN)


@pytest.mark.parametrize("seed", range(100))
def test_words_that_are_counted_are_emitted(seed: int) -> None:
    draw = random.Random(seed)
    emitter = MoverEmitter(MACHINE, Constants())
    emitter.code = Code()  # nothing is set in front
    commands = [random_command(draw) for _ in range(40)]
    emitted = []
    for command in commands:
        before = emitter.code.position
        emitter.emit((command,))
        emitted.append((emitter.code.position - before) // WORD_BYTES)
    for buffers in (1, 2):
        steps = in_steps(commands, buffers, draw)
        assert list(ordered(steps, buffers)) == commands
        counted = ordered(timed_steps(steps, MACHINE, 1, buffers), buffers)
        assert [one.words for one in counted] == emitted


def in_steps(
    commands: Sequence[Command], buffers: int, draw: random.Random
) -> list[TileStep[Command]]:
    """Steps whose program order is that of ``commands``, with any number in each part."""
    left = list(commands)

    def part() -> tuple[Command, ...]:
        found = tuple(left[: draw.randint(0, 3)])
        del left[: len(found)]
        return found

    made = []
    loads = part()
    while left:
        ahead = part() if buffers == 2 else ()
        made.append(TileStep(loads, part(), part()))
        loads = ahead if buffers == 2 else part()
    return [*made, TileStep(loads, (), ())]


@pytest.mark.parametrize("seed", range(20))
def test_values_arrive(seed: int) -> None:
    """By the semantics of tset and tsetu."""
    draw = random.Random(seed)
    code, held = Code(), 0
    for _ in range(40):
        wanted, begun = random_number(draw), code.position // WORD_BYTES
        code.set({TileRegister.SHIFT: wanted})
        words = code.words()[begun:]
        assert len(words) <= 2
        for word in words:
            instruction, operands = TILE_ISA.decode(int(word))
            assert operands["creg"] == TileRegister.SHIFT
            if instruction.mnemonic == "tset":
                held = operands["imm"]
            else:
                held = held & (1 << BITS) - 1 | operands["upper"] << BITS
        assert (held ^ wanted) & (1 << 32) - 1 == 0
