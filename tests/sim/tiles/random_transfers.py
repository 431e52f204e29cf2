"""Tile programs at random for a machine with a DMA controller: its programs, and the waits for
them, which now and then are missing."""

from __future__ import annotations

import random
from functools import lru_cache

from tests.sim.tiles.random_programs import (
    BIAS_BYTES,
    CHIP_BYTES,
    MEMORIES,
    SEGMENT_BYTES,
    Writer,
    elements,
)
from tvm_npu.sim.machine_file import load_machine
from tvm_npu.sim.parts.pl330.code import assemble
from tvm_npu.sim.parts.pl330.isa import ChannelControl
from tvm_npu.sim.tiles.machine import TileMachine

EVENTS, CHANNELS, FIFO_BYTES = 6, 3, 64
TEMPLATE_BYTES = 4096
"""Behind the numbers in CONSTANTS."""


@lru_cache(maxsize=1)
def machines() -> tuple[TileMachine, ...]:
    """Words as wide as in the paper, or as numbers; slow and fast memories."""
    values = load_machine("zynq-7020").model_dump(exclude_none=True)
    values["memories"] = {"shared_bytes": CHIP_BYTES, "bias_bytes": BIAS_BYTES}
    values["dmac"] |= {"channels": CHANNELS, "events": EVENTS, "fifo_bytes": FIFO_BYTES,
                       "store_queue": 2}  # fmt: skip
    narrow = {"int8_bytes": 1, "int16_bytes": 2, "int8_accumulator_bytes": 4,
              "int16_accumulator_bytes": 8}  # fmt: skip
    slow = values["dmac"] | {"ddr_bytes_per_cycle": 0.25, "start_cycles": 0.0}
    return (
        TileMachine.model_validate(values),
        TileMachine.model_validate(values | {"words": narrow, "dmac": slow}),
    )


class TransferWriter(Writer):
    """A writer whose transfers are DMA programs."""

    def __init__(
        self, rng: random.Random, machine: TileMachine, numeric_bytes: int, wrong: float
    ) -> None:
        super().__init__(rng, machine, numeric_bytes, wrong)
        self.templates = b""
        self.flying: dict[int, int] = {}
        self.last = (0, 0)

    def fill(self) -> None:
        for memory, size in ((0, CHIP_BYTES), (3, BIAS_BYTES)):
            address = self.rng.randrange(0, SEGMENT_BYTES - size, 8)
            self.start(memory, 4, True, 8, 1, size, 0, address, 0)
            self.wait_for_all()

    def wait_for_all(self) -> None:
        for channel in list(self.flying):
            self.lines.append(f"twait {self.flying.pop(channel)}\n")

    def some_waits(self) -> None:
        """Between operations: for about every other."""
        for channel in list(self.flying):
            if self.rng.random() < 0.5:
                self.lines.append(f"twait {self.flying.pop(channel)}\n")

    def move(self) -> None:
        rng, loads = self.rng, self.rng.random() < 0.5
        beat = rng.choice((1, 2, 4, 8))
        beat = max(beat, self.width) if rng.random() < 0.9 else beat
        rows, run = rng.randint(1, 4), beat * rng.randint(1, 20)
        memory = rng.choice((0, 1, 2, 3) if loads and rows * run <= BIAS_BYTES else (0, 1, 2))
        stride = run + beat * rng.choice((0, 0, 1, 30))
        size = rows * run
        chip = self.near((BIAS_BYTES if memory == 3 else CHIP_BYTES) - size, beat, self.last[0])
        address = self.near(SEGMENT_BYTES - rows * stride - 1, beat, self.last[1])
        self.last = chip, address
        base = rng.choice((4, 5)) if loads else 5
        self.start(memory, base, loads, beat, rows, run, chip, address, stride)
        if rng.random() < 0.7:
            self.wait_for_all()

    def near(self, most: int, beat: int, last: int) -> int:
        """Anywhere, or where the transfer before was."""
        if self.rng.random() < 0.2:
            return min(last, most) // beat * beat
        return self.rng.randrange(0, most + 1, beat)

    def start(
        self, memory: int, base: int, loads: bool, beat: int, rows: int, run: int, chip: int,
        address: int, stride: int,
    ) -> None:  # fmt: skip
        rng = self.rng
        free = set(range(CHANNELS)) - set(self.flying)
        if not free or rng.random() < self.wrong:
            free = set(range(CHANNELS + 1))
        channel = rng.choice(sorted(free))
        event = rng.choice(sorted(set(range(EVENTS)) - set(self.flying.values())))
        at = SEGMENT_BYTES + len(self.templates)
        self.templates += self.template(loads, beat, rows, run, stride, event)
        self.templates += bytes(-len(self.templates) % 4)
        extent = (rows - 1) * stride + run
        self.set(ADDRESS=address, CHIP_OFFSET=chip, EXTENT_BYTES=extent, MOVED_BYTES=rows * run,
                 PROGRAM=at)  # fmt: skip
        direction = "load" if loads else "store"
        where = f"{MEMORIES[memory]}, {MEMORIES[base]}, other, {channel}, {direction}"
        self.lines.append(f"tgo {where}\n")
        self.flying[channel] = event

    def template(
        self, loads: bool, beat: int, rows: int, run: int, stride: int, event: int
    ) -> bytes:
        """Rows forwards or backwards; the last row may have an address of its own."""
        rng = self.rng
        outside, chip = ("sar", "dar") if loads else ("dar", "sar")
        step = rng.choice((stride, -stride)) if rows > 1 else stride
        addresses = [(8, 0 if step > 0 else (rows - 1) * stride)]
        apart = rows > 1 and rng.random() < 0.3
        move = self.run_of(beat, run)
        text = f"dmamov {chip}, 0\ndmamov {outside}, 0\n"
        between = self.steps(outside, step - run)
        body = (move + between) * (rows - apart)
        if rows - apart > 1 and rng.random() < 0.6 and len(assemble(move + between)) < 250:
            body = f"dmalp lc1, {rows - apart}\n{move}{between}dmalpend lc1\n"
        text += body
        if apart:
            addresses.append((len(assemble(text)) + 2, 0 if step < 0 else (rows - 1) * stride))
            text += f"dmamov {outside}, 0\n" + move
        text += rng.choice(("", "dmarmb\n", "dmanop\ndmalds\n")) + "dmawmb\n"
        code = bytearray(assemble(text + f"dmasev {event}\ndmaend\n"))
        while rng.random() < 3 * self.wrong:
            code[rng.randrange(len(code))] ^= 1 << rng.randrange(8)
        head = [len(code), 2, event, len(addresses), *(part for pair in addresses for part in pair)]
        head = [self.any(value) % (1 << 32) for value in head]
        return b"".join(value.to_bytes(4, "little") for value in head) + bytes(code)

    def run_of(self, beat: int, run: int) -> str:
        """Bursts that move ``run`` bytes; some loads are ahead of their stores."""
        rng, text, left = self.rng, "", run // beat
        while left:
            beats = rng.randint(1, min(left, 16, FIFO_BYTES // beat))
            times = rng.randint(1, min(left // beats, 5))
            text += f"dmamov ccr, {ChannelControl(beat, beats).encode()}\n"
            burst = rng.choice(("dmald\ndmast\n", "dmaldb\ndmastb\ndmasts\n"))
            together = 2 * beats * beat <= FIFO_BYTES and times % 2 == 0
            if together and rng.random() < 0.5:
                text += "dmald\ndmald\ndmast\ndmast\n" * (times // 2)
            elif times > 1 and rng.random() < 0.5:
                text += f"dmalp lc0, {times}\n{burst}dmalpend lc0\n"
            else:
                text += burst * times
            left -= beats * times
        return text

    def steps(self, register: str, distance: int) -> str:
        if distance < 0:
            return f"dmaadnh {register}, {distance + 65536}\n"
        return f"dmaaddh {register}, {distance}\n" if distance else ""


def program(rng: random.Random) -> tuple[TileMachine, int, str, bytes, bytes]:
    """A machine, bytes of a number, assembly, and both segments."""
    machine, numeric = rng.choice(machines()), rng.choice((1, 2))
    writer = TransferWriter(rng, machine, numeric, rng.choice((0, 0, 0.004, 0.02)))
    writer.fill()
    choices = [writer.convolution, writer.vector, writer.pool, writer.move, writer.move,
               writer.move, writer.constant, lambda: writer.finish(writer.operands())]  # fmt: skip
    for _ in range(rng.randint(1, 8)):
        rng.choice(choices)()
        writer.some_waits()
    if rng.random() < 8 * writer.wrong:
        wrong = ("twait 3\n", "twait 31\n", "tload weight, constants, other\n", "tpool 3\n")
        writer.lines.append(rng.choice(wrong))
    writer.lines.append("" if rng.random() < writer.wrong else "tend\n")
    count = SEGMENT_BYTES // writer.width
    constants, activations = (elements(rng, count, writer.width, numeric) for _ in range(2))
    templates = writer.templates.ljust(TEMPLATE_BYTES, b"\0")
    return machine, numeric, "".join(writer.lines), constants + templates, activations
