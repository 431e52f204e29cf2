"""Tile programs at random: tiles come on chip, are worked on, and go out; registers that nobody
would set now and then."""

from __future__ import annotations

import random
from functools import lru_cache

from tests.sim.tiles import programs
from tests.sim.tiles.programs import sets
from tvm_npu.sim.machine_file import load_machine
from tvm_npu.sim.tiles.machine import TileMachine

CHIP_BYTES, BIAS_BYTES, SEGMENT_BYTES = 1024, 64, 4096
MEMORIES = ("input", "weight", "output", "bias", "constants", "activations")
_TAPS = (0, 1, 2, 1, 0, 1, 1, 3, 1)
"""Drawn by no generator, so that programs are else the ones that they were."""
_EDGES = (-1, 0, 1, 2, 5, 48, 1023, 1024, 1 << 20, (1 << 31) - 1, -(1 << 31))


@lru_cache(maxsize=1)
def machines() -> tuple[TileMachine, ...]:
    """Arrays with split memories, and a core with a shared one; words as wide as numbers or not."""
    split = {"input_bytes": CHIP_BYTES, "weight_bytes": CHIP_BYTES, "output_bytes": CHIP_BYTES,
             "bias_bytes": BIAS_BYTES}  # fmt: skip
    narrow = {"int8_bytes": 1, "int16_bytes": 2, "int8_accumulator_bytes": 4,
              "int16_accumulator_bytes": 8}  # fmt: skip
    array = programs.machine(memories=split)
    packed = programs.machine(memories=split, words=narrow, array={"taps_at_once": 4})
    values = array.model_dump(exclude_none=True)
    del values["array"]
    core = load_machine("zynq-7020").model_dump(exclude_none=True)["core"]
    shared = {"shared_bytes": CHIP_BYTES, "bias_bytes": BIAS_BYTES}
    alone = TileMachine.model_validate(
        values | {"core": core, "memories": shared, "words": narrow}
    )
    return array, packed, alone


class Writer:
    """``wrong``: how often a register has a value that nobody would set."""

    def __init__(
        self, rng: random.Random, machine: TileMachine, numeric_bytes: int, wrong: float
    ) -> None:
        precision = "int8" if numeric_bytes == 1 else "int16"
        self.rng, self.machine, self.wrong = rng, machine, wrong
        self.width = machine.element_bytes(precision)
        self.sum_width = machine.accumulator_bytes(precision)
        self.top = (1 << (8 * numeric_bytes - 1)) - 1
        self.lines: list[str] = []

    def any(self, value: int) -> int:
        if self.rng.random() < self.wrong:
            return self.rng.choice((*_EDGES, self.rng.randrange(-(1 << 31), 1 << 31)))
        return value

    def set(self, **registers: int) -> None:
        self.lines.append(sets(**{name: self.any(value) for name, value in registers.items()}))

    def room(self, size: int, memory: int = 0) -> int:
        """Where so many bytes fit."""
        free = (BIAS_BYTES if memory == 3 else SEGMENT_BYTES if memory > 3 else CHIP_BYTES) - size
        return self.rng.randint(0, max(0, free))

    def fill(self) -> None:
        """Something to every memory on chip."""
        for memory in range(4):
            size = BIAS_BYTES if memory == 3 else CHIP_BYTES
            address = self.rng.randrange(0, SEGMENT_BYTES - size, self.width)
            self.lines.append(programs.load(MEMORIES[memory], address, size))

    def operands(self) -> list[int]:
        """The memories of an operation's operands, set."""
        rng, found = self.rng, [0, 1, 2]
        if self.machine.core is not None and rng.random() < 0.5:
            found = [rng.choice((0, 4, 5)), rng.choice((1, 4, 5)), rng.choice((2, 2, 5))]
        elif rng.random() < 0.2:
            found = [rng.randrange(3) for _ in range(3)]
        self.set(OPERANDS=found[0] | found[1] << 3 | found[2] << 6)
        return found

    def result(self, memories: list[int], count: int, width: int, **registers: int) -> None:
        self.set(OUT_OFFSET=self.room(count * width, memories[2]), **registers)
        outside = memories[2] > 3 and self.rng.random() < 0.3
        columns, rows = registers["OUT_COLUMNS"], registers["OUT_ROWS"]
        pitch = columns * self.sum_width + 3 if outside else 0
        self.set(OUT_ROW_BYTES=pitch, OUT_CHANNEL_BYTES=pitch * rows + 5 if outside else 0)

    def first(self, memories: list[int], channels: int, rows: int, columns: int) -> None:
        self.set(IN_OFFSET=self.place(channels * rows * columns, memories[0]))
        pitch = columns * self.width if memories[0] > 3 and self.rng.random() < 0.3 else 0
        self.set(IN_ROW_BYTES=pitch, IN_CHANNEL_BYTES=pitch * rows)

    def place(self, elements: int, memory: int) -> int:
        """Where so many elements fit; mostly where elements lie."""
        at = self.room(elements * self.width, memory)
        return at if self.rng.random() < 0.1 else at // self.width * self.width

    def window(self) -> dict[str, int]:
        rng, found = self.rng, {}
        for axis, side in (("ROWS", "TOP"), ("COLUMNS", "LEFT")):
            out, kernel, stride = rng.randint(1, 4), rng.randint(1, 3), rng.randint(1, 2)
            pad = rng.choice((0, 0, 1, kernel - 1))
            size = (out - 1) * stride + kernel - pad - rng.choice((0, 0, 0, 0, pad))
            found |= {f"OUT_{axis}": out, f"KERNEL_{axis}": kernel, f"STRIDE_{axis}": stride}
            found |= {f"IN_{axis}": max(0, size), f"PAD_{side}": pad}
        return found

    def convolution(self) -> None:
        rng, found, memories = self.rng, self.window(), self.operands()
        groups, channels = rng.choice((1, 1, 2, 3)), rng.randint(1, 3)
        filters = groups * rng.randint(1, 3)
        found |= {"GROUPS": groups, "IN_CHANNELS": channels, "OUT_CHANNELS": filters}
        found |= {"DILATION_ROWS": rng.choice((1, 1, 2)), "DILATION_COLUMNS": rng.choice((1, 1, 2))}
        if self.machine.array is not None:
            self.lines.append(sets(TAPS_AT_ONCE=_TAPS[len(self.lines) % len(_TAPS)]))
        depth = channels * found["KERNEL_ROWS"] * found["KERNEL_COLUMNS"]
        pitch = rng.choice((0, 0, depth * self.width + 2 * self.width))
        out = filters * found["OUT_ROWS"] * found["OUT_COLUMNS"]
        self.first(memories, groups * channels, found["IN_ROWS"], found["IN_COLUMNS"])
        self.set(W_OFFSET=self.place(filters * (pitch // self.width or depth), memories[1]),
                 W_FILTER_BYTES=pitch)  # fmt: skip
        self.result(memories, out, self.sum_width, **found)
        self.lines.append(f"tconv {rng.choice(('keep', 'zero', 'zero'))}\n")
        if rng.random() < 0.6:
            self.finish(memories, {name: found[name] for name in _OUT})

    def extents(self) -> dict[str, int]:
        rng = self.rng
        return {name: rng.randint(1, 4) for name in _OUT}

    def requantize(self) -> None:
        rng = self.rng
        low, high = rng.choice(((-32768, 32767), (-128, 127), (0, 90), (200, 999), (-999, -200)))
        self.set(SHIFT=rng.choice((-4, 0, 1, 7, 20, 62)), LOW=low, HIGH=high,
                 SHIFT_A=rng.choice((0, 0, 1, 9)), SHIFT_B=rng.choice((0, 1, 20)))  # fmt: skip

    def finish(self, memories: list[int], found: dict[str, int] | None = None) -> None:
        rng = self.rng
        self.requantize()
        known = found is not None
        found = found or self.extents()
        count = found["OUT_CHANNELS"] * found["OUT_ROWS"] * found["OUT_COLUMNS"]
        if not known:
            self.result(memories, count, self.sum_width, **found)
        self.first(memories, *(found[name] for name in _OUT))
        self.set(BIAS_OFFSET=self.room(4 * found["OUT_CHANNELS"], 3))
        sub = rng.choice(("plain", "bias", "residual", "bias_residual"))
        self.lines.append(f"tfinish {sub}\n")

    def vector(self) -> None:
        found, memories = self.extents(), self.operands()
        count = found["OUT_CHANNELS"] * found["OUT_ROWS"] * found["OUT_COLUMNS"]
        self.requantize()
        self.first(memories, *(found[name] for name in _OUT))
        self.set(W_OFFSET=self.place(count, memories[1]))
        self.result(memories, count, self.width, **found)
        self.lines.append(f"tvec {self.rng.choice(('copy', 'add', 'multiply'))}\n")

    def pool(self) -> None:
        rng, found, memories = self.rng, self.window(), self.operands()
        channels = rng.randint(1, 3)
        found |= {"IN_CHANNELS": channels, "OUT_CHANNELS": channels}
        for axis in ("ROW", "COLUMN"):
            found |= {f"ORIGIN_{axis}": rng.choice((0, 0, 2)), f"COUNT_{axis}_BEGIN": -9,
                      f"COUNT_{axis}_END": rng.choice((99,) * 9 + (4,))}  # fmt: skip
        self.requantize()
        self.first(memories, channels, found["IN_ROWS"], found["IN_COLUMNS"])
        count = channels * found["OUT_ROWS"] * found["OUT_COLUMNS"]
        self.result(memories, count, self.width, **found)
        self.lines.append(f"tpool {rng.choice(('max', 'average'))}\n")

    def constant(self) -> None:
        found, memories = self.extents(), self.operands()
        count = found["OUT_CHANNELS"] * found["OUT_ROWS"] * found["OUT_COLUMNS"]
        self.result(memories, count, self.width, **found)
        self.set(FILL=self.rng.randint(-self.top - 1, self.top))
        self.lines.append("tfill\n")

    def move(self) -> None:
        rng, loads = self.rng, self.rng.random() < 0.5
        size, inner, outer = rng.randint(1, 40), rng.randint(1, 3), rng.randint(1, 3)
        size = size * self.width if rng.random() < 0.8 else size
        memory = rng.randrange(4 if loads else 3)
        row, rows = rng.randint(0, 90), rng.randint(0, 300)
        chip = self.room(size * inner * outer, memory)
        self.set(RUN_BYTES=size, COUNT_INNER=inner, COUNT_OUTER=outer, STRIDE_INNER=row,
                 STRIDE_OUTER=rows, ADDRESS=rng.randrange(0, 2000, self.width),
                 CHIP_OFFSET=chip // self.width * self.width)  # fmt: skip
        base = rng.choice(("constants", "activations")) if loads else "activations"
        self.lines.append(f"t{'load' if loads else 'store'} {MEMORIES[memory]}, {base}, other\n")


_OUT = ("OUT_CHANNELS", "OUT_ROWS", "OUT_COLUMNS")


def elements(rng: random.Random, count: int, width: int, numeric_bytes: int) -> bytes:
    """Numbers of the element type; now and then large words of other sizes instead."""
    if rng.random() < 0.15:
        return rng.randbytes(count * width)
    bits = rng.choice((3, 8 * numeric_bytes))
    half = 1 << (bits - 1)
    values = (rng.randrange(-half, half) for _ in range(count))
    return b"".join(value.to_bytes(width, "little", signed=True) for value in values)


def program(rng: random.Random) -> tuple[TileMachine, int, str, bytes, bytes]:
    """A machine, bytes of a number, assembly, and both segments."""
    machine, numeric = rng.choice(machines()), rng.choice((1, 2))
    writer = Writer(rng, machine, numeric, rng.choice((0, 0, 0.004, 0.02)))
    writer.fill()
    choices = [writer.convolution, writer.convolution, writer.vector, writer.pool, writer.move,
               writer.constant, lambda: writer.finish(writer.operands())]  # fmt: skip
    for _ in range(rng.randint(1, 7)):
        rng.choice(choices)()
    if rng.random() < 8 * writer.wrong:
        wrong = ("twait 3\n", "tvec 3\n", "tpool 3\n", "tload weight, bias, other\n")
        writer.lines.append(rng.choice(wrong))
    writer.lines.append("" if rng.random() < writer.wrong else "tend\n")
    count = SEGMENT_BYTES // writer.width
    segments = [elements(rng, count, writer.width, numeric) for _ in range(2)]
    return machine, numeric, "".join(writer.lines), segments[0], segments[1]
