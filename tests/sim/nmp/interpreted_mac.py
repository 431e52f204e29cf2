"""The NMP's MAC unit, in plain Python integers: written from docs/isa-nmp.md."""

from __future__ import annotations

from tests.sim.nmp.interpreted_core import MAC_NAMES, MB2, Core, Fault, Unit, places
from tests.sim.nmp.rv32im_model import signed

EXTENTS = (
    "IN_CHANNELS IN_ROWS IN_COLUMNS OUT_CHANNELS OUT_ROWS OUT_COLUMNS KERNEL_ROWS KERNEL_COLUMNS "
    "STRIDE_ROWS STRIDE_COLUMNS DILATION_ROWS DILATION_COLUMNS"
).split()
OUT = EXTENTS[3:6]


class MacUnit(Unit):
    def nmp_mcfg(self, core: Core, creg: int, rs1: int) -> None:
        core.mac[MAC_NAMES[creg]] = signed(core.x[rs1])

    def nmp_mcfgi(self, core: Core, creg: int, imm: int) -> None:
        core.mac[MAC_NAMES[creg]] = imm

    def _ranges(self, r: dict[str, int], names: list[str], low: int, high: int) -> None:
        if any(not low <= r[name] <= high for name in names):
            raise Fault("BAD_CONFIGURATION", "TILE_TOO_LARGE", "ILLEGAL_INSTRUCTION")

    def _operands(self, core: Core, spans: list[tuple[int, int, int]], faults: set[str]) -> None:
        """(memory, first element, elements) of the MAC unit; raises all faults."""
        r, m = core.mac, self.machine.memories
        sizes = {0: m.mb0_bytes, 1: m.mb1_bytes, 2: m.mb2_bytes, 3: m.bias_bytes}
        for memory, at, count in spans:
            width = r["ELEMENT_BYTES"] if memory < 3 else 4
            begin = at if memory < 2 else at * width
            if memory < 2 and at % width:
                faults.add("BAD_CONFIGURATION")
            if begin < 0 or begin + count * width > sizes[memory]:
                faults.add("TILE_TOO_LARGE")
            self.touched.append(
                (MB2, at, at + count) if memory == MB2 else (memory, begin, begin + count * width)
            )
        if faults:
            raise Fault(*faults)

    def _element(self, core: Core, memory: int, index: int) -> int:
        """Element ``index`` behind the operand's address in MB0 or MB1."""
        r, size = core.mac, core.mac["ELEMENT_BYTES"]
        at = r["W_ADDRESS" if memory else "IN_ADDRESS"] + index * size
        return int.from_bytes(core.memory[memory][at : at + size], "little", signed=True)

    def _word(self, core: Core, at: int, size: int = 4) -> int:
        return int.from_bytes(core.memory[3][at : at + size], "little", signed=True)

    def _filter_words(self, faults: set[str]) -> None:
        if self.machine.mac.requantization == "tensor":
            faults.add("ILLEGAL_INSTRUCTION")

    def _put(self, core: Core, index: int, value: int) -> None:
        bound = 1 << (self.machine.mac.accumulator_bits - 1)
        if not -bound <= value < bound:
            raise Fault("ACCUMULATOR_OVERFLOW")
        core.sums[core.mac["OUT_ADDRESS"] + index] = value

    def _window(self, core: Core, faults: set[str]) -> None:
        r = core.mac
        self._ranges(r, EXTENTS, 1, 1 << 20)
        self._ranges(r, ["ELEMENT_BYTES"], 1, 2)
        for axis in ("ROWS", "COLUMNS"):
            reach = (r[f"OUT_{axis}"] - 1) * r[f"STRIDE_{axis}"] + 1
            reach += (r[f"KERNEL_{axis}"] - 1) * r[f"DILATION_{axis}"]
            if reach > r[f"IN_{axis}"]:
                faults.add("BAD_CONFIGURATION")

    def _multiplies(self, core: Core) -> None:
        """What instructions for quantized models ask of the machine and of elements."""
        if self.machine.mac.requantization != "scale":
            raise Fault("ILLEGAL_INSTRUCTION")
        self._ranges(core.mac, ["ELEMENT_BYTES"], 1, 1)

    def _zero_point(self, core: Core) -> int:
        self._multiplies(core)
        self._ranges(core.mac, ["SHIFT_B"], -128, 127)
        return core.mac["SHIFT_B"]

    def nmp_conv2dz(self, core: Core, sem: int, sub: int) -> None:
        self.nmp_conv2d(core, sem, sub, self._zero_point(core))

    def nmp_perceptz(self, core: Core, sem: int, sub: int) -> None:
        self.nmp_percept(core, sem, sub, self._zero_point(core))

    def nmp_conv2d(self, core: Core, sem: int, sub: int, zero: int = 0) -> None:
        r, faults = core.mac, set[str]()
        self._window(core, faults)
        self._ranges(r, ["GROUPS"], 1, 1 << 20)
        groups, channels, filters = r["GROUPS"], r["IN_CHANNELS"], r["OUT_CHANNELS"]
        rows, columns = r["IN_ROWS"], r["IN_COLUMNS"]
        kernel = r["KERNEL_ROWS"], r["KERNEL_COLUMNS"]
        if filters % groups:
            faults.add("BAD_CONFIGURATION")
        self._sums(
            core, sem, sub, filters, r["OUT_ROWS"] * r["OUT_COLUMNS"],
            channels * kernel[0] * kernel[1], groups * channels * rows * columns, faults,
        )  # fmt: skip
        taps = [(c, i, j) for c in range(channels) for i in range(kernel[0])
                for j in range(kernel[1])]  # fmt: skip
        for f in range(filters):
            first = f // (filters // groups) * channels
            for p in range(r["OUT_ROWS"]):
                for q in range(r["OUT_COLUMNS"]):
                    total = 0
                    for t, (c, i, j) in enumerate(taps):
                        y = p * r["STRIDE_ROWS"] + i * r["DILATION_ROWS"]
                        z = q * r["STRIDE_COLUMNS"] + j * r["DILATION_COLUMNS"]
                        x = self._element(core, 0, ((first + c) * rows + y) * columns + z)
                        total += x * (self._element(core, 1, f * r["W_PITCH"] + t) - zero)
                    self._add(core, sub, f, (f * r["OUT_ROWS"] + p) * r["OUT_COLUMNS"] + q, total)
        self.signal(core, sem)

    def _sums(
        self, core: Core, sem: int, sub: int, filters: int, positions: int, depth: int,
        elements: int, faults: set[str],
    ) -> None:  # fmt: skip
        """Checks what both operations that multiply filters have in common."""
        r = core.mac
        if r["W_PITCH"] < 0 or (filters > 1 and r["W_PITCH"] < depth):
            faults.add("BAD_CONFIGURATION")
        spans = [
            (MB2, r["OUT_ADDRESS"], filters * positions), (0, r["IN_ADDRESS"], elements),
            (1, r["W_ADDRESS"], (filters - 1) * r["W_PITCH"] + depth),
        ]  # fmt: skip
        if sub >= 2:
            spans.append((3, r["BIAS_ADDRESS"], filters))
        if sub == 3:
            self._filter_words(faults)
        self._operands(core, spans, faults)

    def _add(self, core: Core, sub: int, f: int, index: int, total: int) -> None:
        r = core.mac
        if sub == 0:
            total += core.sums[r["OUT_ADDRESS"] + index]
        elif sub >= 2:
            word = self._word(core, 4 * (r["BIAS_ADDRESS"] + f))
            if sub == 3:
                word = (word & 0x3FF_FFFF) - ((word & 0x200_0000) << 1)
            total += word
        self._put(core, index, total)

    def nmp_percept(self, core: Core, sem: int, sub: int, zero: int = 0) -> None:
        r = core.mac
        self._ranges(r, ["ELEMENT_BYTES"], 1, 2)
        self._ranges(r, ["IN_CHANNELS", "OUT_CHANNELS"], 1, 1 << 20)
        filters, depth = r["OUT_CHANNELS"], r["IN_CHANNELS"]
        self._sums(core, sem, sub, filters, 1, depth, depth, set())
        for f in range(filters):
            base = f * r["W_PITCH"]
            total = sum(
                self._element(core, 0, n) * (self._element(core, 1, base + n) - zero)
                for n in range(depth)
            )
            self._add(core, sub, f, f, total)
        self.signal(core, sem)

    def nmp_pool(self, core: Core, sem: int, sub: int) -> None:
        r, faults = core.mac, set[str]()
        self._ranges(r, ["DILATION_ROWS", "DILATION_COLUMNS"], 1, 1)
        self._window(core, faults)
        if sub == 2:
            self._multiplies(core)
        if sub > 2:
            faults.add("ILLEGAL_INSTRUCTION")
        channels, rows, columns = (r[name] for name in OUT)
        spans = [(MB2, r["OUT_ADDRESS"], channels * rows * columns)]
        spans += [(0, r["IN_ADDRESS"], channels * r["IN_ROWS"] * r["IN_COLUMNS"])]
        self._operands(core, spans, faults)
        for k, (c, p, q) in enumerate(places(channels, rows, columns)):
            y, z = p * r["STRIDE_ROWS"], q * r["STRIDE_COLUMNS"]
            window = [
                self._element(core, 0, (c * r["IN_ROWS"] + y + i) * r["IN_COLUMNS"] + z + j)
                for i in range(r["KERNEL_ROWS"]) for j in range(r["KERNEL_COLUMNS"])
            ]  # fmt: skip
            value = max(window)
            if sub:
                n = self._counted(r, "ROW", y) * self._counted(r, "COLUMN", z)
                if n < 1:
                    raise Fault("BAD_CONFIGURATION")
                total = sum(window)
                value = (2 * total + n) // (2 * n)
                if sub == 2 and total < 0:
                    value = -((n - 2 * total) // (2 * n))
            core.sums[r["OUT_ADDRESS"] + k] = value
        self.signal(core, sem)

    def _counted(self, r: dict[str, int], axis: str, at: int) -> int:
        begin = r[f"ORIGIN_{axis}"] + at
        end = min(begin + r[f"KERNEL_{axis}S"], r[f"COUNT_{axis}_END"])
        return max(0, end - max(begin, r[f"COUNT_{axis}_BEGIN"]))

    def nmp_veop(self, core: Core, sem: int, sub: int) -> None:
        self._vector(core, sem, sub, by_channel=False, by_filter=False)

    def nmp_veopc(self, core: Core, sem: int, sub: int) -> None:
        self._vector(core, sem, sub, by_channel=True, by_filter=False)

    def nmp_veopf(self, core: Core, sem: int) -> None:
        self._vector(core, sem, 3, by_channel=False, by_filter=True)

    def _vector(
        self, core: Core, sem: int, sub: int, *, by_channel: bool, by_filter: bool
    ) -> None:
        if sub > 5 and not by_channel:
            self._weigh(core, sem, two=sub == 6)
            return
        r, faults, two = core.mac, set[str](), sub in (1, 2, 4, 5)
        if sub > 5 or (by_channel and not two):
            raise Fault("ILLEGAL_INSTRUCTION")
        self._ranges(r, ["ELEMENT_BYTES"], 1, 2)
        self._ranges(r, OUT, 1, 1 << 20)
        self._ranges(r, ["SHIFT_A", "SHIFT_B"], 0, 47)
        channels, rows, columns = (r[name] for name in OUT)
        plane = rows * columns
        spans = [(0, r["IN_ADDRESS"], channels * plane), (2, r["OUT_ADDRESS"], channels * plane)]
        if two:
            spans.append((1, r["W_ADDRESS"], channels if by_channel else channels * plane))
        if by_filter:
            self._filter_words(faults)
            spans.append((3, r["BIAS_ADDRESS"], channels))
        self._operands(core, spans, faults)
        for k in range(channels * plane):
            shift_b = r["SHIFT_B"] + (self._filter_shift(core, k // plane) if by_filter else 0)
            if shift_b > 47:
                raise Fault("BAD_CONFIGURATION")
            a = self._element(core, 0, k)
            b = self._element(core, 1, k // plane if by_channel else k) if two else 0
            left, right = a << r["SHIFT_A"], b << shift_b
            if sub == 3:
                left, right = core.sums[r["OUT_ADDRESS"] + k] << r["SHIFT_A"], a << shift_b
                if not -(1 << 62) < left < 1 << 62:
                    raise Fault("ACCUMULATOR_OVERFLOW")
            value = (left, left + right, a * b, left + right, left - right, max(left, right))[sub]
            self._put(core, k, value)
        self.signal(core, sem)

    def _weigh(self, core: Core, sem: int, *, two: bool) -> None:
        r = core.mac
        self._multiplies(core)
        self._ranges(r, OUT, 1, 1 << 20)
        self._ranges(r, ["SHIFT_A", *(["SHIFT_B"] if two else [])], 1 - (1 << 24), (1 << 24) - 1)
        count = r["OUT_CHANNELS"] * r["OUT_ROWS"] * r["OUT_COLUMNS"]
        spans = [(0, r["IN_ADDRESS"], count), (2, r["OUT_ADDRESS"], count)]
        self._operands(core, spans + ([(1, r["W_ADDRESS"], count)] if two else []), set())
        for k in range(count):
            value = self._element(core, 0, k) * r["SHIFT_A"] + r["FACTOR"]
            if two:
                value += self._element(core, 1, k) * r["SHIFT_B"]
            self._put(core, k, value)
        self.signal(core, sem)

    def nmp_rescale(self, core: Core, sem: int, sub: int) -> None:
        r, faults = core.mac, set[str]()
        by_channel, to_even = sub in (1, 3), sub in (2, 3)
        self._multiplies(core)
        self._ranges(r, OUT, 1, 1 << 20)
        self._ranges(r, ["SHIFT"], -128, 127)
        channels, rows, columns = (r[name] for name in OUT)
        if by_channel and r["TABLE_ADDRESS"] % 4:
            faults.add("BAD_CONFIGURATION")
        end = r["TABLE_ADDRESS"] + 4 * channels
        if by_channel and not 0 <= r["TABLE_ADDRESS"] <= end <= self.machine.memories.bias_bytes:
            faults.add("TILE_TOO_LARGE")
        if by_channel:
            self.touched.append((3, r["TABLE_ADDRESS"], end))
        self._operands(core, [(MB2, r["OUT_ADDRESS"], channels * rows * columns)], faults)
        for k in range(channels * rows * columns):
            channel, at = k // (rows * columns), r["OUT_ADDRESS"] + k
            word = r["FACTOR"]
            if by_channel:
                word = self._word(core, r["TABLE_ADDRESS"] + 4 * channel)
            shift, multiplier, acc = word & 255, word >> 8 & 0xFF_FFFF, core.sums[at]
            if shift > 61:
                raise Fault("BAD_CONFIGURATION")
            if not -(1 << 37) <= acc < 1 << 37:
                raise Fault("ACCUMULATOR_OVERFLOW")
            whole, rest = divmod(acc * multiplier + (1 << shift >> 1), 1 << shift)
            if to_even and shift and not rest:
                whole -= whole % 2
            value = whole + r["SHIFT"]
            low, high = (min(max(r[name], -128), 127) for name in ("LOW", "HIGH"))
            core.sums[at] = min(max(min(max(value, -128), 127), low), high)
        self.signal(core, sem)

    def _filter_shift(self, core: Core, channel: int) -> int:
        return self._word(core, 4 * (core.mac["BIAS_ADDRESS"] + channel)) >> 26 & 63

    def nmp_activation(self, core: Core, sem: int) -> None:
        self._activation(core, sem, None, by_filter=False)

    def nmp_activationf(self, core: Core, sem: int) -> None:
        self._activation(core, sem, None, by_filter=True)

    def nmp_activationx(self, core: Core, sem: int, sub: int) -> None:
        self._activation(core, sem, sub, by_filter=False)

    def nmp_activationxf(self, core: Core, sem: int, sub: int) -> None:
        self._activation(core, sem, sub, by_filter=True)

    def _activation(self, core: Core, sem: int, sub: int | None, *, by_filter: bool) -> None:
        r, faults = core.mac, set[str]()
        if sub == 3:
            raise Fault("ILLEGAL_INSTRUCTION")
        self._ranges(r, ["ELEMENT_BYTES"], 1, 2)
        self._ranges(r, OUT, 1, 1 << 20)
        self._ranges(r, ["SHIFT"], -47, 62)
        channels, rows, columns = (r[name] for name in OUT)
        plane, size, table = rows * columns, r["ELEMENT_BYTES"], r["TABLE_ADDRESS"]
        spans = [(MB2, r["OUT_ADDRESS"], channels * plane)]
        if by_filter:
            self._filter_words(faults)
            spans.append((3, r["BIAS_ADDRESS"], channels))
        width, values = (size, 257 if size == 1 else 1025) if sub == 0 else (4, channels)
        if sub in (0, 2):
            if table % width:
                faults.add("BAD_CONFIGURATION")
            if table < 0 or table + width * values > self.machine.memories.bias_bytes:
                faults.add("TILE_TOO_LARGE")
            self.touched.append((3, table, table + width * values))
        if sub == 0 and not 0 <= r["FACTOR"] <= 15:
            faults.add("BAD_CONFIGURATION")
        self._operands(core, spans, faults)
        for k in range(channels * plane):
            at = r["OUT_ADDRESS"] + k
            shift = r["SHIFT"] + (self._filter_shift(core, k // plane) if by_filter else 0)
            acc, slope = core.sums[at], r["FACTOR"]
            if sub == 2:
                slope = self._word(core, table + 4 * (k // plane))
            if sub in (1, 2) and abs(slope) > 32767:
                raise Fault("BAD_CONFIGURATION")
            if sub in (1, 2) and acc < 0:
                acc, shift = acc * slope, shift + 14
            value = self._requantized(r, acc, shift)
            core.sums[at] = self._looked_up(core, value) if sub == 0 else value
        self.signal(core, sem)

    def _requantized(self, r: dict[str, int], acc: int, shift: int) -> int:
        top = (1 << (8 * r["ELEMENT_BYTES"] - 1)) - 1

        def clip(value: int, low: int, high: int) -> int:
            return min(max(value, low), high)

        value = acc + (1 << shift >> 1) >> shift if shift > 0 else acc << -shift
        low, high = (clip(r[name], -top - 1, top) for name in ("LOW", "HIGH"))
        return clip(clip(value, -top - 1, top), low, high)

    def _looked_up(self, core: Core, value: int) -> int:
        r, size = core.mac, core.mac["ELEMENT_BYTES"]
        top = 1 << (8 * size - 1)
        x = min(max(value << r["FACTOR"], -top), top - 1) + top

        def entry(j: int) -> int:
            return self._word(core, r["TABLE_ADDRESS"] + size * j, size)

        if size == 1:
            return entry(x)
        j, f = x >> 6, x & 63
        return entry(j) + ((entry(j + 1) - entry(j)) * f + 32 >> 6)
