"""What tile programs mean, in plain Python integers: written from docs/isa-tiles.md alone.

Of an instruction that cannot be executed all faults are named: the document does not say which one
the machine finds first. Nor does it say when a DMA program that goes wrong is found out: any word
up to the wait for it may stop.
"""

from __future__ import annotations

from collections.abc import Iterator

from tests.sim.isa_document import IsaDocument
from tests.sim.tiles.dma_flights import Flight, Template, TemplateFault, memory_addresses
from tvm_npu.sim.tiles.machine import SharedMemory, TileMachine

DOCUMENT = IsaDocument("tiles")
REGISTERS = DOCUMENT.names("`creg`: configuration registers")
INPUT, WEIGHT, OUTPUT, BIAS, CONSTANTS, ACTIVATIONS = range(6)
FIRST, SECOND, RESULT = range(3)
EXTENT = 1 << 20
OUT = ("OUT_CHANNELS", "OUT_ROWS", "OUT_COLUMNS")
WINDOW = ("KERNEL_ROWS", "KERNEL_COLUMNS", "STRIDE_ROWS", "STRIDE_COLUMNS")


STALE = frozenset({"RACE", "NOT_WRITTEN", "BAD_ELEMENT", "ACCUMULATOR_OVERFLOW"})
"""What a command stops for whose operands a DMA program may be moving: it may read old bytes."""


class Fault(Exception):
    def __init__(self, *codes: str) -> None:
        self.codes = frozenset(codes)


class Memory:
    """``known``: which bytes hold something; outside of the chip all do."""

    def __init__(self, data: bytes, known: bool) -> None:
        self.data = bytearray(data)
        self.known = bytearray([known]) * len(data)


class Interpreter:
    def __init__(
        self, machine: TileMachine, numeric_bytes: int, constants: bytes, activations: bytes
    ) -> None:
        precision = "int8" if numeric_bytes == 1 else "int16"
        self.width = machine.element_bytes(precision)
        self.sum_width = machine.accumulator_bytes(precision)
        self.has_core, self.has_mover = machine.core is not None, machine.mover is not None
        self.dmac = machine.dmac
        array = machine.array
        self.taps_at_once = 1 if array is None else array.taps_at_once
        self.pes = 1 if array is None else array.pes_over("IC")
        self.top = (1 << (8 * numeric_bytes - 1)) - 1
        sizes = machine.memories
        if isinstance(sizes, SharedMemory):
            chip = [Memory(bytes(sizes.shared_bytes), False)] * 3
        else:
            every = (sizes.input_bytes, sizes.weight_bytes, sizes.output_bytes)
            chip = [Memory(bytes(size), False) for size in every]
        self.memories = [*chip, Memory(bytes(sizes.bias_bytes), False),
                         Memory(constants, True), Memory(activations, True)]  # fmt: skip
        self.addresses = memory_addresses(self.memories, machine.dram.base_address)
        self.r = dict.fromkeys(REGISTERS.values(), 0)
        self.flights: dict[int, Flight] = {}  # by channel
        self.broken: set[int] = set()  # channels whose programs go wrong
        self.races = False

    def run(self, words: list[int]) -> list[tuple[int, frozenset[str]]]:
        """Where the program may stop and every reason for it, the last at the latest; none: it
        ends."""
        stops: list[tuple[int, frozenset[str]]] = []
        for row, word in enumerate(words):
            name, operands = DOCUMENT.decode(word) or ("", {})
            if self.broken and name in ("tgo", "twait"):
                stops.append((row, frozenset({"DMA"})))
            self.races = False
            try:
                if not name:
                    raise Fault("ILLEGAL_INSTRUCTION")
                if name == "tend":
                    self._finish_flights()
                    return []
                getattr(self, name)(**operands)
                if self.races:
                    raise Fault("RACE")
            except Fault as fault:
                codes = fault.codes | (STALE if self.races else frozenset())
                return [*stops, (row, codes)]
        return [*stops, (len(words), frozenset({"NO_END"}))]

    def tset(self, creg: int, imm: int) -> None:
        self.r[self._register(creg)] = imm

    def tsetu(self, creg: int, upper: int) -> None:
        value = self.r[self._register(creg)] & 0x7FFFF | upper << 19
        self.r[self._register(creg)] = value - (value >> 31 << 32)

    def _register(self, number: int) -> str:
        if number not in REGISTERS:
            raise Fault("ILLEGAL_INSTRUCTION")
        return REGISTERS[number]

    # Programs of the DMA controller.

    def tgo(self, mem: int, base: int, stream: int, channel: int, direction: int) -> None:
        if self.dmac is None:
            raise Fault("NO_UNIT")
        if stream > 6 or direction > 1:
            raise Fault("ILLEGAL_INSTRUCTION")
        loads = direction == 0
        if mem > BIAS or base not in ((CONSTANTS, ACTIVATIONS) if loads else (ACTIVATIONS,)):
            raise Fault("WRONG_MEMORY")
        r, faults = self.r, set[str]()
        chip, begin, moved = self.memories[mem], r["CHIP_OFFSET"], r["MOVED_BYTES"]
        at, extent = r["ADDRESS"], r["EXTENT_BYTES"]
        if begin < 0 or moved < 1 or begin + moved > len(chip.data):
            faults.add("TILE_OUTSIDE")
        if at < 0 or extent < 1 or at + extent > len(self.memories[base].data):
            faults.add("TRANSFER_OUTSIDE")
        if faults:
            raise Fault(*faults)
        self._touch(mem, begin, begin + moved, loads)
        self._touch(base, at, at + extent, not loads)
        if not loads and not all(chip.known[begin : begin + moved]):
            faults.add("NOT_WRITTEN")
        chip_address = self.addresses[mem] + begin
        address = self.addresses[base] + at
        try:
            template = Template(self.memories[CONSTANTS].data, r["PROGRAM"], self.dmac.events)
        except TemplateFault:
            raise Fault("BAD_TEMPLATE", *faults) from None
        events = {one.event for one in self.flights.values()}
        size = len(template.program)
        if (channel in self.flights or channel in self.broken or template.event in events
                or channel >= self.dmac.channels or size > self.dmac.program_bytes):  # fmt: skip
            faults.add("DMA")
        if faults or self.races:
            raise Fault(*faults)
        flight = Flight(chip, begin, chip_address, moved, self.memories[base], at, address,
                        extent, loads, template.event)  # fmt: skip
        self.flights[channel] = flight
        if not flight.run(template.with_addresses(chip_address, address), self.dmac):
            self.broken.add(channel)
        if loads:
            chip.known[begin : begin + moved] = bytes([1]) * moved

    def twait(self, event: int) -> None:
        if self.dmac is None:
            raise Fault("NO_UNIT")
        for channel, flight in list(self.flights.items()):
            if flight.event == event and flight.sent and flight.whole:
                del self.flights[channel]
                return
        raise Fault("DMA")

    def _finish_flights(self) -> None:
        if self.broken or not all(one.whole for one in self.flights.values()):
            raise Fault("DMA")

    def _touch(self, mem: int, begin: int, end: int, writes: bool) -> None:
        """These bytes of a memory are touched; whether that is a race."""
        memory = self.memories[mem]
        self.races |= any(one.meets(memory, begin, end, writes) for one in self.flights.values())

    # Transfers.

    def _runs(self, mem: int, base: int, stream: int, *, loads: bool) -> tuple[list[int], int]:
        """Where runs begin outside of the chip, and bytes of each, after all checks."""
        if not self.has_mover:
            raise Fault("NO_UNIT")
        r, faults = self.r, set[str]()
        if stream > 6:
            faults.add("ILLEGAL_INSTRUCTION")
        if mem > BIAS or base not in ((CONSTANTS, ACTIVATIONS) if loads else (ACTIVATIONS,)):
            raise Fault("WRONG_MEMORY", *faults)
        size, inner, outer = r["RUN_BYTES"], r["COUNT_INNER"], r["COUNT_OUTER"]
        bad = not 1 <= size <= 1 << 24 or not 1 <= inner <= EXTENT or not 1 <= outer <= EXTENT
        bad |= (inner > 1 and r["STRIDE_INNER"] < 0) or (outer > 1 and r["STRIDE_OUTER"] < 0)
        if bad:
            raise Fault("BAD_REGISTER", *faults)
        chip = self.memories[mem]
        at = r["CHIP_OFFSET"]
        if at < 0 or at + size * inner * outer > len(chip.data):
            faults.add("TILE_OUTSIDE")
        rows, columns = r["STRIDE_OUTER"] if outer > 1 else 0, r["STRIDE_INNER"]
        end = r["ADDRESS"] + (outer - 1) * rows + (inner - 1) * columns + size
        if r["ADDRESS"] < 0 or end > len(self.memories[base].data):
            faults.add("TRANSFER_OUTSIDE")
        if not faults and not loads and not all(chip.known[at : at + size * inner * outer]):
            faults.add("NOT_WRITTEN")
        if faults:
            raise Fault(*faults)
        return [r["ADDRESS"] + i * rows + j * columns for i in range(outer)
                for j in range(inner)], size  # fmt: skip

    def tload(self, mem: int, base: int, stream: int) -> None:
        begins, size = self._runs(mem, base, stream, loads=True)
        source = self.memories[base].data
        data = b"".join(source[begin : begin + size] for begin in begins)
        self._write(mem, self.r["CHIP_OFFSET"], data)

    def tstore(self, mem: int, base: int, stream: int) -> None:
        begins, size = self._runs(mem, base, stream, loads=False)
        source, target = self.memories[mem].data, self.memories[base].data
        for k, begin in enumerate(begins):
            at = self.r["CHIP_OFFSET"] + k * size
            target[begin : begin + size] = source[at : at + size]

    def _write(self, mem: int, at: int, data: bytes) -> None:
        memory = self.memories[mem]
        memory.data[at : at + len(data)] = data
        memory.known[at : at + len(data)] = bytes([1]) * len(data)

    # Operands.

    def _between(self, low: int, high: int, *names: str) -> None:
        if any(not low <= self.r[name] <= high for name in names):
            raise Fault("BAD_REGISTER")

    def _places(
        self, operand: int, channels: int, rows: int, columns: int, width: int
    ) -> tuple[int, list[int]]:
        """The operand's memory and where each of its elements begins, after all checks."""
        mem = self.r["OPERANDS"] >> 3 * operand & 7
        outside = self.has_core and mem in (CONSTANTS, ACTIVATIONS)
        if not (mem < BIAS or outside) or (operand == RESULT and mem == CONSTANTS):
            raise Fault("WRONG_MEMORY")
        offset = self.r[("IN_OFFSET", "W_OFFSET", "OUT_OFFSET")[operand]]
        row, channel = columns * width, 0
        if outside and operand != SECOND:
            name = "OUT" if operand == RESULT else "IN"
            row = self.r[f"{name}_ROW_BYTES"] or row
            channel = self.r[f"{name}_CHANNEL_BYTES"]
        channel = channel or row * rows
        places: list[int] = []
        if channels and rows and columns:
            if row < columns * width and rows > 1:
                raise Fault("BAD_REGISTER", "TILE_OUTSIDE")
            if channels > 1 and channel < (rows - 1) * row + columns * width:
                raise Fault("BAD_REGISTER", "TILE_OUTSIDE")
            end = offset + (channels - 1) * channel + (rows - 1) * row + columns * width
            if offset < 0 or end > len(self.memories[mem].data):
                raise Fault("TILE_OUTSIDE")
            self._touch(mem, offset, end, operand == RESULT)
            places = [offset + c * channel + y * row + x * width
                      for c, y, x in _indices(channels, rows, columns)]  # fmt: skip
        elif not 0 <= offset <= len(self.memories[mem].data):
            raise Fault("TILE_OUTSIDE")
        return mem, places

    def _numbers(self, mem: int, places: list[int], width: int) -> list[int]:
        memory = self.memories[mem]
        if not all(all(memory.known[at : at + width]) for at in places):
            raise Fault("NOT_WRITTEN")
        return [int.from_bytes(memory.data[at : at + width], "little", signed=True)
                for at in places]  # fmt: skip

    def _elements(self, mem: int, places: list[int]) -> list[int]:
        found = self._numbers(mem, places, self.width)
        if any(not -self.top - 1 <= value <= self.top for value in found):
            raise Fault("BAD_ELEMENT")
        return found

    def _put(self, mem: int, places: list[int], values: list[int], width: int) -> None:
        for at, value in zip(places, values, strict=True):
            self._write(mem, at, value.to_bytes(width, "little", signed=True))

    def _all(self, *steps: object) -> None:
        """Runs checks, and raises the faults of all."""
        faults = set[str]()
        for step in steps:
            try:
                step()  # type: ignore[operator]
            except Fault as fault:
                faults |= fault.codes
        if faults:
            raise Fault(*faults)

    # Commands.

    def _window(self, *more: str) -> None:
        self._between(1, EXTENT, "IN_CHANNELS", *OUT, *WINDOW, *more)
        self._between(0, EXTENT, "IN_ROWS", "IN_COLUMNS", "PAD_TOP", "PAD_LEFT")

    def tconv(self, sub: int) -> None:
        r = self.r
        self._window("DILATION_ROWS", "DILATION_COLUMNS", "GROUPS")
        groups, channels, filters = r["GROUPS"], r["IN_CHANNELS"], r["OUT_CHANNELS"]
        if filters % groups:
            raise Fault("BAD_REGISTER")
        self._between(0, max(1, min(self.taps_at_once, self.pes // channels)), "TAPS_AT_ONCE")
        kernel = r["KERNEL_ROWS"], r["KERNEL_COLUMNS"]
        x: list[int] = []
        w: list[int] = []
        sums: list[int] = []
        tile = groups * channels, r["IN_ROWS"], r["IN_COLUMNS"]
        out = filters, r["OUT_ROWS"], r["OUT_COLUMNS"]
        self._all(
            lambda: x.extend(self._elements(*self._places(FIRST, *tile, self.width))),
            lambda: w.extend(self._filters(filters, channels * kernel[0] * kernel[1])),
            lambda: sums.extend(self._sums(*self._places(RESULT, *out, self.sum_width), sub)),
        )
        mem, places = self._places(RESULT, *out, self.sum_width)
        for index, (f, p, q) in enumerate(_indices(*out)):
            first = f // (filters // groups) * channels
            for tap, (c, i, j) in enumerate(_indices(channels, *kernel)):
                y = p * r["STRIDE_ROWS"] + i * r["DILATION_ROWS"] - r["PAD_TOP"]
                z = q * r["STRIDE_COLUMNS"] + j * r["DILATION_COLUMNS"] - r["PAD_LEFT"]
                if 0 <= y < tile[1] and 0 <= z < tile[2]:
                    element = x[((first + c) * tile[1] + y) * tile[2] + z]
                    sums[index] += element * w[f * channels * kernel[0] * kernel[1] + tap]
        bound = 1 << (8 * self.sum_width - 1)
        if any(not -bound <= value < bound for value in sums):
            raise Fault("ACCUMULATOR_OVERFLOW")
        self._put(mem, places, sums, self.sum_width)

    def _sums(self, mem: int, places: list[int], sub: int) -> list[int]:
        if sub > 1:
            raise Fault("ILLEGAL_INSTRUCTION")
        return [0] * len(places) if sub else self._numbers(mem, places, self.sum_width)

    def _filters(self, filters: int, depth: int) -> list[int]:
        pitch = self.r["W_FILTER_BYTES"]
        if pitch and pitch < depth * self.width:
            raise Fault("BAD_REGISTER")
        mem = self.r["OPERANDS"] >> 3 & 7
        offset, pitch = self.r["W_OFFSET"], pitch or depth * self.width
        if not (mem < BIAS or (self.has_core and mem in (CONSTANTS, ACTIVATIONS))):
            raise Fault("WRONG_MEMORY")
        end = offset + (filters - 1) * pitch + depth * self.width
        if offset < 0 or end > len(self.memories[mem].data):
            raise Fault("TILE_OUTSIDE")
        self._touch(mem, offset, end, False)
        places = [offset + f * pitch + k * self.width for f, k in _indices(filters, depth)]
        return self._elements(mem, places)

    def _requantized(self, value: int) -> int:
        shift = self.r["SHIFT"]
        value = value + (1 << shift >> 1) >> shift if shift > 0 else value << -shift
        return self._clipped(value)

    def _clipped(self, value: int) -> int:
        low, high = (min(max(self.r[name], -self.top - 1), self.top) for name in ("LOW", "HIGH"))
        return min(max(min(max(value, -self.top - 1), self.top), low), high)

    def _result(self) -> None:
        """Registers that requantizing commands read."""
        self._between(1, EXTENT, *OUT)
        self._between(-47, 62, "SHIFT")
        self._between(0, 47, "SHIFT_A", "SHIFT_B")
        self._between(-(1 << 31), self.r["HIGH"], "LOW")

    def tfinish(self, sub: int) -> None:
        self._result()
        r = self.r
        channels, rows, columns = out = tuple(r[name] for name in OUT)
        sums: list[int] = []
        biases = [0] * channels
        residual: list[int] = []
        steps = [
            lambda: sums.extend(
                self._numbers(*self._places(RESULT, *out, self.sum_width), self.sum_width)
            )
        ]
        if sub & 1:
            steps.append(lambda: biases.__setitem__(slice(None), self._biases(channels)))
        if sub & 2:
            steps.append(
                lambda: residual.extend(self._elements(*self._places(FIRST, *out, self.width)))
            )
        self._all(*steps)
        values = [value + biases[k // (rows * columns)] for k, value in enumerate(sums)]
        if sub & 2:
            limit = 1 << (62 - r["SHIFT_A"])
            if any(not -limit <= value < limit for value in values):
                raise Fault("ACCUMULATOR_OVERFLOW")
            values = [(value << r["SHIFT_A"]) + (other << r["SHIFT_B"])
                      for value, other in zip(values, residual, strict=True)]  # fmt: skip
        mem, places = self._places(RESULT, *out, self.sum_width)
        if mem < BIAS:  # what is left of the sums is nothing that can be read
            end = places[-1] + self.sum_width
            self.memories[mem].known[places[0] : end] = bytes(end - places[0])
        self._finish(values)

    def _biases(self, channels: int) -> list[int]:
        at = self.r["BIAS_OFFSET"]
        if at < 0 or at + 4 * channels > len(self.memories[BIAS].data):
            raise Fault("TILE_OUTSIDE")
        self._touch(BIAS, at, at + 4 * channels, False)
        return self._numbers(BIAS, [at + 4 * k for k in range(channels)], 4)

    def _finish(self, values: list[int]) -> None:
        mem, places = self._places(RESULT, *(self.r[name] for name in OUT), self.width)
        self._put(mem, places, [self._requantized(value) for value in values], self.width)

    def tvec(self, sub: int) -> None:
        if sub > 2:
            raise Fault("ILLEGAL_INSTRUCTION")
        self._result()
        r, out = self.r, tuple(self.r[name] for name in OUT)
        a: list[int] = []
        b: list[int] = []
        self._all(
            lambda: a.extend(self._elements(*self._places(FIRST, *out, self.width))),
            lambda: b.extend(
                self._elements(*self._places(SECOND, *out, self.width)) if sub else []
            ),
            lambda: self._places(RESULT, *out, self.width),
        )
        if sub == 0:
            self._finish([one << r["SHIFT_A"] for one in a])
        elif sub == 1:
            self._finish([(one << r["SHIFT_A"]) + (two << r["SHIFT_B"])
                          for one, two in zip(a, b, strict=True)])  # fmt: skip
        else:
            self._finish([one * two for one, two in zip(a, b, strict=True)])

    def tpool(self, sub: int) -> None:
        if sub > 1:
            raise Fault("ILLEGAL_INSTRUCTION")
        r = self.r
        self._window()
        self._between(-(1 << 31), r["HIGH"], "LOW")
        self._between(r["OUT_CHANNELS"], r["OUT_CHANNELS"], "IN_CHANNELS")
        tile = r["OUT_CHANNELS"], r["IN_ROWS"], r["IN_COLUMNS"]
        x: list[int] = []
        out = tuple(r[name] for name in OUT)
        self._all(
            lambda: x.extend(self._elements(*self._places(FIRST, *tile, self.width))),
            lambda: self._places(RESULT, *out, self.width),
        )
        values = []
        for c, p, q in _indices(*out):
            top = p * r["STRIDE_ROWS"] - r["PAD_TOP"]
            left = q * r["STRIDE_COLUMNS"] - r["PAD_LEFT"]
            window = [
                x[(c * tile[1] + y) * tile[2] + z]
                for y in range(max(top, 0), min(top + r["KERNEL_ROWS"], tile[1]))
                for z in range(max(left, 0), min(left + r["KERNEL_COLUMNS"], tile[2]))
            ]
            n = self._counted("ROW", top) * self._counted("COLUMN", left)
            if (sub and n < 1) or (not sub and not window):
                raise Fault("EMPTY_WINDOW")
            values.append(self._clipped((2 * sum(window) + n) // (2 * n) if sub else max(window)))
        self._put(*self._places(RESULT, *out, self.width), values, self.width)

    def _counted(self, axis: str, at: int) -> int:
        r, begin = self.r, self.r[f"ORIGIN_{axis}"] + at
        end = min(begin + r[f"KERNEL_{axis}S"], r[f"COUNT_{axis}_END"])
        return max(0, end - max(begin, r[f"COUNT_{axis}_BEGIN"]))

    def tfill(self) -> None:
        self._between(1, EXTENT, *OUT)
        self._between(-self.top - 1, self.top, "FILL")
        mem, places = self._places(RESULT, *(self.r[name] for name in OUT), self.width)
        self._put(mem, places, [self.r["FILL"]] * len(places), self.width)


def _indices(*extents: int) -> Iterator[tuple[int, ...]]:
    """All indices, the last one fastest."""
    if not extents:
        yield ()
        return
    for first in range(extents[0]):
        for rest in _indices(*extents[1:]):
            yield first, *rest
