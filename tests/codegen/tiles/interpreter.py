"""What tile programs compute, instruction by instruction, without time: a second opinion on code.

Written from the ISA table's meanings alone, in plain NumPy, and strict: memories begin with a
pattern, bytes that nothing wrote are not read, nothing may leave a memory or a segment.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

import numpy as np

from tests.codegen.tiles.late_dma import LateDma
from tvm_npu.codegen.fixed_point import requantize
from tvm_npu.codegen.ops.arithmetic import convolve, pad_spatial, windows
from tvm_npu.codegen.program.format import Program, Segment
from tvm_npu.sim.streams import Stream
from tvm_npu.sim.tiles.isa import (
    TILE_ISA,
    Accumulate,
    Direction,
    Finish,
    TileMemory,
    TilePool,
    TileRegister,
    TileVector,
)
from tvm_npu.sim.tiles.machine import SharedMemory, TileMachine

NUMBERS = {1: np.int8, 2: np.int16, 4: np.int32, 8: np.int64}
R = TileRegister


class Memory:
    def __init__(self, size: int) -> None:
        self.bytes = np.full(size, 0xA5, np.uint8)
        self.known = np.zeros(size, bool)

    def read(self, begin: int, size: int) -> np.ndarray:
        assert 0 <= begin and begin + size <= len(self.bytes), (begin, size, len(self.bytes))
        assert self.known[begin : begin + size].all(), f"{begin}+{size} was never written"
        return self.bytes[begin : begin + size].copy()

    def write(self, begin: int, values: np.ndarray) -> None:
        data = np.frombuffer(np.ascontiguousarray(values).tobytes(), np.uint8)
        assert 0 <= begin and begin + len(data) <= len(self.bytes), (begin, len(data))
        self.bytes[begin : begin + len(data)] = data
        self.known[begin : begin + len(data)] = True


class Interpreter:
    """Runs one program. ``traffic`` counts bytes by (stream, to chip), ``transfers`` likewise."""

    def __init__(self, program: Program) -> None:
        self.program = program
        machine = program.machine_description()
        assert isinstance(machine, TileMachine)
        self.numeric = 2 if program.precision == "int16" else 1
        precision = "int16" if self.numeric == 2 else "int8"
        self.stored = machine.element_bytes(precision)
        self.sum_bytes = machine.accumulator_bytes(precision)
        memories = machine.memories
        if isinstance(memories, SharedMemory):
            shared = Memory(memories.shared_bytes)
            chip = {m: shared for m in (TileMemory.INPUT, TileMemory.WEIGHT, TileMemory.OUTPUT)}
        else:
            chip = {
                TileMemory.INPUT: Memory(memories.input_bytes),
                TileMemory.WEIGHT: Memory(memories.weight_bytes),
                TileMemory.OUTPUT: Memory(memories.output_bytes),
            }
        sizes = {segment: size.size_bytes for segment, size in program.segments.items()}
        self.memories = {
            **chip,
            TileMemory.BIAS: Memory(memories.bias_bytes),
            TileMemory.CONSTANTS: Memory(sizes[Segment.CONSTANTS]),
            TileMemory.ACTIVATIONS: Memory(sizes[Segment.ACTIVATIONS]),
        }
        self.memories[TileMemory.CONSTANTS].write(0, np.frombuffer(program.constants, np.uint8))
        self.registers: dict[int, int] = {}
        self.dma = LateDma(self.memories)
        self.traffic: Counter[tuple[str, bool]] = Counter()
        self.transfers: Counter[tuple[str, bool]] = Counter()
        self.runs: Counter[tuple[str, bool]] = Counter()
        self.macs = 0

    def run(self, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        activations = self.memories[TileMemory.ACTIVATIONS]
        for slot in self.program.inputs:
            activations.write(slot.offset, inputs[slot.name].astype(NUMBERS[slot.stored_bytes]))
        for word in self.program.code:
            decoded = TILE_ISA.decode(int(word))
            assert decoded is not None
            instruction, operands = decoded
            getattr(self, instruction.mnemonic)(**operands)
        results = {}
        for slot in self.program.outputs:
            flat = activations.read(slot.offset, slot.size_bytes).view(NUMBERS[slot.stored_bytes])
            narrow = flat.astype(NUMBERS[slot.element_bytes])
            assert np.array_equal(narrow, flat)
            results[slot.name] = narrow.reshape(slot.shape)
        for slot in self.program.inputs:  # nothing may write them
            flat = activations.read(slot.offset, slot.size_bytes).view(NUMBERS[slot.stored_bytes])
            assert np.array_equal(flat.reshape(slot.shape), inputs[slot.name])
        return results

    def tset(self, creg: int, imm: int) -> None:
        self.registers[creg] = imm

    def tsetu(self, creg: int, upper: int) -> None:
        value = (self.registers[creg] & 0x7FFFF) | upper << 19
        self.registers[creg] = value - (1 << 32) if value >> 31 else value

    def _runs(self) -> np.ndarray:
        r = self.registers
        inner, outer = r[R.COUNT_INNER], r[R.COUNT_OUTER]
        assert inner > 0 and outer > 0 and r[R.RUN_BYTES] > 0
        begins = np.full((outer, inner), r[R.ADDRESS], np.int64)
        if inner > 1:
            begins += r[R.STRIDE_INNER] * np.arange(inner)
        if outer > 1:
            begins += r[R.STRIDE_OUTER] * np.arange(outer)[:, None]
        return begins.reshape(-1)

    def _count(self, stream: int, to_chip: bool, runs: int) -> None:
        self._moved(stream, to_chip, runs * self.registers[R.RUN_BYTES])
        self.runs[Stream(stream).name.lower(), to_chip] += runs

    def _moved(self, stream: int, to_chip: bool, size_bytes: int) -> None:
        key = (Stream(stream).name.lower(), to_chip)
        self.traffic[key] += size_bytes
        self.transfers[key] += 1

    def tload(self, mem: int, base: int, stream: int) -> None:
        source = self.memories[TileMemory(base)]
        size = self.registers[R.RUN_BYTES]
        begins = self._runs()
        data = np.concatenate([source.read(int(begin), size) for begin in begins])
        self.memories[TileMemory(mem)].write(self.registers[R.CHIP_OFFSET], data)
        self._count(stream, True, len(begins))

    def tstore(self, mem: int, base: int, stream: int) -> None:
        target = self.memories[TileMemory(base)]
        size = self.registers[R.RUN_BYTES]
        begins = self._runs()
        at = self.registers[R.CHIP_OFFSET]
        data = self.memories[TileMemory(mem)].read(at, size * len(begins))
        for number, begin in enumerate(begins):
            target.write(int(begin), data[number * size : (number + 1) * size])
        self._count(stream, False, len(begins))

    def _memory(self, which: int) -> Memory:
        return self.memories[TileMemory(self.registers[R.OPERANDS] >> 3 * which & 7)]

    def _take(self, which: int, offset: int, shape: tuple[int, ...], width: int) -> np.ndarray:
        size = int(np.prod(shape)) * width
        return self._memory(which).read(offset, size).view(NUMBERS[width]).reshape(shape)

    @property
    def _out(self) -> tuple[int, int, int]:
        r = self.registers
        return r[R.OUT_CHANNELS], r[R.OUT_ROWS], r[R.OUT_COLUMNS]

    def _put(self, values: np.ndarray, width: int) -> None:
        wide = values.astype(NUMBERS[width])
        assert np.array_equal(wide, values)
        self._memory(2).write(self.registers[R.OUT_OFFSET], wide)

    def _in_tile(self, channels: int, fill: int) -> np.ndarray:
        """The first operand in its padding, as int64 [1, channels, rows, columns]."""
        r = self.registers
        rows, columns = r[R.IN_ROWS], r[R.IN_COLUMNS]
        tile = self._take(0, r[R.IN_OFFSET], (channels, rows, columns), self.stored)
        return self._pad(tile.astype(np.int64), fill)

    def _pad(self, tile: np.ndarray, fill: int, dilation: tuple[int, int] = (1, 1)) -> np.ndarray:
        r = self.registers
        _, rows, columns = self._out
        need_rows = (rows - 1) * r[R.STRIDE_ROWS] + (r[R.KERNEL_ROWS] - 1) * dilation[0] + 1
        need_columns = (
            (columns - 1) * r[R.STRIDE_COLUMNS] + (r[R.KERNEL_COLUMNS] - 1) * dilation[1] + 1
        )
        behind = (
            need_rows - r[R.PAD_TOP] - tile.shape[1],
            need_columns - r[R.PAD_LEFT] - tile.shape[2],
        )
        return pad_spatial(tile[None], (r[R.PAD_TOP], r[R.PAD_LEFT], *behind), fill)

    def tconv(self, sub: int) -> None:
        r = self.registers
        groups, channels = r[R.GROUPS], r[R.IN_CHANNELS]
        filters, rows, columns = self._out
        kernel = (r[R.KERNEL_ROWS], r[R.KERNEL_COLUMNS])
        dilation = (r[R.DILATION_ROWS], r[R.DILATION_COLUMNS])
        shape = (groups * channels, r[R.IN_ROWS], r[R.IN_COLUMNS])
        tile = self._take(0, r[R.IN_OFFSET], shape, self.stored).astype(np.int64)
        weight = self._take(1, r[R.W_OFFSET], (filters, channels, *kernel), self.stored)
        stride = (r[R.STRIDE_ROWS], r[R.STRIDE_COLUMNS])
        padded = self._pad(tile, 0, dilation)
        acc = convolve(
            padded, weight, stride, (0, 0, 0, 0), dilation, groups, np.float64
        )[0].astype(np.int64)  # fmt: skip
        assert acc.shape == (filters, rows, columns)
        if sub == Accumulate.KEEP:
            acc += self._take(2, r[R.OUT_OFFSET], acc.shape, self.sum_bytes)
        self._put(acc, self.sum_bytes)
        self.macs += acc.size * channels * kernel[0] * kernel[1]

    def tfinish(self, sub: int) -> None:
        r = self.registers
        acc = self._take(2, r[R.OUT_OFFSET], self._out, self.sum_bytes).astype(np.int64)
        if sub in (Finish.BIAS, Finish.BIAS_RESIDUAL):
            bias = self.memories[TileMemory.BIAS].read(r[R.BIAS_OFFSET], 4 * len(acc))
            acc += bias.view(np.int32)[:, None, None]
        if sub in (Finish.RESIDUAL, Finish.BIAS_RESIDUAL):
            residual = self._take(0, r[R.IN_OFFSET], self._out, self.stored).astype(np.int64)
            acc = (acc << r[R.SHIFT_A]) + (residual << r[R.SHIFT_B])
        self._requantized(acc)

    def _requantized(self, acc: np.ndarray) -> None:
        r = self.registers
        self._put(requantize(acc, r[R.SHIFT], r[R.LOW], r[R.HIGH], self.numeric), self.stored)

    def tpool(self, sub: int) -> None:
        r = self.registers
        channels, rows, columns = self._out
        kernel = (r[R.KERNEL_ROWS], r[R.KERNEL_COLUMNS])
        stride = (r[R.STRIDE_ROWS], r[R.STRIDE_COLUMNS])
        fill = -(1 << 40) if sub == TilePool.MAX else 0
        assert r[R.IN_CHANNELS] == channels
        view = windows(self._in_tile(channels, fill), kernel, stride)
        if sub == TilePool.MAX:
            result = view.max(axis=(2, 3))[0]
        else:
            counts = np.zeros((rows, columns), np.int64)
            for row in range(rows):
                for column in range(columns):
                    top = r[R.ORIGIN_ROW] - r[R.PAD_TOP] + row * stride[0]
                    left = r[R.ORIGIN_COLUMN] - r[R.PAD_LEFT] + column * stride[1]
                    high = min(top + kernel[0], r[R.COUNT_ROW_END]) - max(top, r[R.COUNT_ROW_BEGIN])
                    wide = min(left + kernel[1], r[R.COUNT_COLUMN_END]) - max(
                        left, r[R.COUNT_COLUMN_BEGIN]
                    )
                    counts[row, column] = max(high, 0) * max(wide, 0)
            assert counts.min() > 0
            result = (2 * view.sum(axis=(2, 3))[0] + counts) // (2 * counts)
        self._put(np.clip(result, r[R.LOW], r[R.HIGH]), self.stored)

    def tvec(self, sub: int) -> None:
        r = self.registers
        a = self._take(0, r[R.IN_OFFSET], self._out, self.stored).astype(np.int64)
        if sub == TileVector.COPY:
            self._requantized(a << r[R.SHIFT_A])
            return
        b = self._take(1, r[R.W_OFFSET], self._out, self.stored).astype(np.int64)
        if sub == TileVector.MULTIPLY:
            self._requantized(a * b)
        else:
            self._requantized((a << r[R.SHIFT_A]) + (b << r[R.SHIFT_B]))

    def tfill(self) -> None:
        self._put(np.full(self._out, self.registers[R.FILL]), self.stored)

    def tgo(self, **operands: int) -> None:
        r = self.registers
        self.dma.go(
            r[R.PROGRAM], r[R.ADDRESS], r[R.CHIP_OFFSET], r[R.MOVED_BYTES], r[R.EXTENT_BYTES],
            operands,
        )  # fmt: skip
        self._moved(operands["stream"], operands["direction"] == Direction.LOAD, r[R.MOVED_BYTES])

    def twait(self, event: int) -> None:
        self.dma.wait(event)

    def tend(self) -> None:
        assert not self.dma.started
