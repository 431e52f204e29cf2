"""Snowflake's vector instructions, in plain Python integers: written from docs/isa-snowflake.md and
docs/snowflake.md."""

from __future__ import annotations

from operator import mul

from tests.sim.snowflake.interpreted_cluster import (
    DOCUMENT,
    LANES,
    SPECIAL,
    VMACS,
    Cluster,
    Fault,
    Stop,
    signed,
)
from tests.sim.snowflake.interpreted_order import Operation, span

_MODES = DOCUMENT.names("`mode` of mac")
_FINISHES = DOCUMENT.names("`finish` of mac")
_PRELOADS = DOCUMENT.names("`what` of vmov")
_WORDS = (-32768, 32767)


def clip(value: int, low: int, high: int) -> int:
    return max(low, min(high, value))


def requantize(value: int, shift: int, low: int, high: int) -> int:
    value = (value + (1 << (shift - 1))) >> shift if shift > 0 else value << -shift
    return clip(clip(value, *_WORDS), low, high)


def fits(value: int, bits: int) -> bool:
    return -(1 << (bits - 1)) <= value < 1 << (bits - 1)


class Vectors:
    """What vector instructions of a cluster do; each is complete at once. A sum that overflows is
    found out later: ``Cluster.late`` says where."""

    def vmov(self, k: Cluster, row: int, what: int, layout: int, a: int) -> Operation:
        kind, at, coop = _PRELOADS.get(what), k.r[a], layout == 0
        if kind is None:
            raise Fault("BAD_OPERAND")
        active, outputs = self._active(k, coop), k.special("OUTPUTS")
        found = Operation("vector", row)
        lowest = next(u for u in range(k.cus) if not coop or k.special("TARGET") >> u & 1)
        if kind == "BIAS":
            words = 2 if coop else 2 * min(LANES, outputs)
        else:
            words = outputs * (3 if kind == "SUMS" else 1)
        buffers = k.wbuf if kind == "BIAS" else k.mbuf
        if at < 0 or at + words > len(buffers[0]):
            raise Fault("OUTSIDE_BUFFER")
        for u in active:
            source = lowest if coop else u
            for i in self._numbers(k, coop, u):
                key = (coop, u, i)
                if kind == "BIAS":
                    vmac = VMACS * u + (i % VMACS if coop else i // LANES)
                    found.read("WBuf", vmac, span(at, words))
                    place = at if coop else at + 2 * (i % LANES)
                    low, high = k.wbuf[vmac][place : place + 2]
                    self._preload(k, row, key, signed((low & 0xFFFF) + (high << 16), 32))
                elif kind == "SUMS":
                    place = at + 3 * i
                    found.read("MBuf", source, span(place, 3))
                    parts = [word & 0xFFFF for word in k.mbuf[source][place : place + 3]]
                    value = parts[0] + (parts[1] << 16) + (parts[2] << 32)
                    self._preload(k, row, key, signed(value, 48))
                else:
                    found.read("MBuf", source, span(at + i, 1))
                    k.next_residual[key] = k.mbuf[source][at + i]
        return found

    def _preload(self, k: Cluster, row: int, key: tuple[bool, int, int], value: int) -> None:
        k.initial[key] = k.initial.get(key, 0) + value
        if not fits(k.initial[key], 48):
            self._overflow(k, row)

    def _overflow(self, k: Cluster, row: int) -> None:
        if k.late is None:
            stop = Stop(k.number, row, frozenset({"SUM_OVERFLOW"}))
            k.late = len(k.order.issued["vector"]), stop

    def _active(self, k: Cluster, coop: bool) -> list[int]:
        """CUs that take part in an instruction with sums; in coop mode those with a result."""
        k.ranges(CUS=(1, k.every_cu), OUTPUTS=(1, VMACS * k.cus if coop else VMACS * LANES))
        if coop:
            k.ranges(TARGET=(1, k.every_cu))
        every = [u for u in range(k.cus) if k.special("CUS") >> u & 1]
        return [u for u in every if len(self._numbers(k, coop, u))]

    def _numbers(self, k: Cluster, coop: bool, u: int) -> range:
        """Numbers of the results that CU u makes."""
        outputs = k.special("OUTPUTS")
        return range(VMACS * u, min(VMACS * (u + 1), outputs)) if coop else range(outputs)

    def mac(
        self, k: Cluster, row: int, mode: int, finish: int, a: int, b: int, length: int
    ) -> Operation:
        name, end = _MODES.get(mode), _FINISHES.get(finish)
        if name is None or end is None:
            raise Fault("BAD_OPERAND")
        if name in ("COOP", "INDP", "LANE"):
            return self._sums(k, row, name, end, k.r[a], k.r[b], length)
        if end != "RESULT":
            raise Fault("BAD_OPERAND")
        return self._stream(k, row, name, k.r[a], k.r[b], length)

    def max(self, k: Cluster, row: int, a: int, b: int, length: int) -> Operation:
        return self._stream(k, row, "MAX", k.r[a], k.r[b], length)

    def _sums(
        self, k: Cluster, row: int, mode: str, finish: str, a: int, b: int, length: int
    ) -> Operation:
        coop, step = mode == "COOP", k.special("LANE_STEP")
        active, outputs = self._active(k, coop), k.special("OUTPUTS")
        if mode == "LANE":
            k.ranges(LANE_STEP=(0, 1 << 20))
        faults = set[str]()
        end = a + (length - 1) * step + outputs if mode == "LANE" else a + length
        self._inside(a, end, len(k.mbuf[0]), faults)
        weights = length if coop else LANES * length
        self._inside(b, b + weights, len(k.wbuf[0]), faults)
        if not coop and b % LANES:
            faults.add("UNALIGNED")
        width = 3 if finish == "SUMS" else 1
        if finish != "KEEP":
            self._result_place(k, outputs * width, faults)
        if faults:
            raise Fault(*faults)
        found = Operation("vector", row)
        lanes = mode == "LANE"
        maps = span(a, outputs, length, step) if lanes else span(a, length)
        for u in active:
            found.read("MBuf", u, maps)
            for i in self._numbers(k, coop, u):
                vmac = VMACS * u + (i % VMACS if coop else i // LANES)
                found.read("WBuf", vmac, span(b, weights))
            self._open(k, coop, u)
            self._add(k, row, mode, u, a, b, length)
        if finish != "KEEP":
            for u in active:
                self._finish(k, found, row, coop, u, finish)
                k.open.discard((coop, u))
            self._move_out(k)
        return found

    def _inside(self, begin: int, end: int, size: int, faults: set[str]) -> None:
        if begin < 0 or end > size:
            faults.add("OUTSIDE_BUFFER")

    def _result_place(self, k: Cluster, words: int, faults: set[str]) -> None:
        faults |= k.faults(
            SHIFT=(-46, 63), DIVISOR=(1, 1 << 24), SUM_SHIFT=(0, 15), RESIDUAL_SHIFT=(0, 46),
            LOW=_WORDS, HIGH=(k.special("LOW"), 32767),
        )  # fmt: skip
        self._inside(k.special("OUT"), k.special("OUT") + words, len(k.mbuf[0]), faults)

    def _move_out(self, k: Cluster) -> None:
        k.set(SPECIAL["OUT"], k.special("OUT") + k.special("OUT_STEP"))

    def _open(self, k: Cluster, coop: bool, u: int) -> None:
        if (coop, u) in k.open:
            return
        k.open.add((coop, u))
        for i in range(VMACS * u, VMACS * (u + 1)) if coop else range(VMACS * LANES):
            k.sums[coop, u, i] = k.initial.pop((coop, u, i), 0)
            k.residual[coop, u, i] = k.next_residual.pop((coop, u, i), 0)

    def _add(
        self, k: Cluster, row: int, mode: str, u: int, a: int, b: int, length: int
    ) -> None:
        coop, maps, step = mode == "COOP", k.mbuf[u], k.special("LANE_STEP")
        for i in self._numbers(k, coop, u):
            if coop:
                words = maps[a : a + length]
                weights = k.wbuf[VMACS * u + i % VMACS][b : b + length]
            else:
                words = maps[a : a + length]
                if mode == "LANE":
                    words = [maps[a + t * step + i] for t in range(length)]
                lane = k.wbuf[VMACS * u + i // LANES]
                weights = lane[b + i % LANES : b + LANES * length : LANES]
            k.sums[coop, u, i] += sum(map(mul, words, weights))
            if not fits(k.sums[coop, u, i], 48):
                self._overflow(k, row)

    def _finish(
        self, k: Cluster, found: Operation, row: int, coop: bool, u: int, finish: str
    ) -> None:
        numbers = self._numbers(k, coop, u)
        made = []
        for i in numbers:
            value = k.sums[coop, u, i]
            if finish == "SUMS":
                made += [signed(value >> 16 * part, 16) for part in range(3)]
            else:
                made.append(self._result(k, row, value, k.residual[coop, u, i]))
        at = k.special("OUT") + numbers.start * (3 if finish == "SUMS" else 1)
        for target in range(k.cus):
            if target == u if not coop else k.special("TARGET") >> target & 1:
                k.mbuf[target][at : at + len(made)] = made
                found.write("MBuf", target, span(at, len(made)))

    def _result(self, k: Cluster, row: int, value: int, residual: int) -> int:
        value = (value << k.special("SUM_SHIFT")) + (residual << k.special("RESIDUAL_SHIFT"))
        n = k.special("DIVISOR")
        if n > 1:
            if not fits(value, 62):
                self._overflow(k, row)
            value = (2 * value + n) // (2 * n)
        return requantize(value, k.special("SHIFT"), k.special("LOW"), k.special("HIGH"))

    def _stream(
        self, k: Cluster, row: int, mode: str, a: int, b: int, length: int
    ) -> Operation:
        k.ranges(CUS=(1, k.every_cu))
        faults, two = set[str](), mode in ("MAX", "MULTIPLY", "ADD")
        self._result_place(k, length, faults)
        self._inside(a, a + length, len(k.mbuf[0]), faults)
        if two:
            self._inside(b, b + length, len(k.mbuf[0]), faults)
        if mode == "ADD":
            faults |= k.faults(SHIFT_A=(0, 46), SHIFT_B=(0, 46))
        table = 0
        if mode == "TABLE":
            bad = k.faults(TABLE_SHIFT=(-15, 15), TABLE_BITS=(0, 15))
            if bad:
                raise Fault(*faults, *bad)
            table = (1 << (16 - k.special("TABLE_BITS"))) + 1
            self._inside(b, b + table, len(k.wbuf[0]), faults)
        if faults:
            raise Fault(*faults)
        found = Operation("vector", row)
        for u in range(k.cus):
            if k.special("CUS") >> u & 1:
                found.read("MBuf", u, span(a, length) | (span(b, length) if two else 0))
                if table:
                    for v in range(min(VMACS, length)):
                        found.read("WBuf", VMACS * u + v, span(b, table))
                out = k.special("OUT")
                found.write("MBuf", u, span(out, length))
                k.mbuf[u][out : out + length] = [
                    self._element(k, mode, u, i, a, b) for i in range(length)
                ]
        self._move_out(k)
        return found

    def _element(self, k: Cluster, mode: str, u: int, i: int, a: int, b: int) -> int:
        value, low, high = k.mbuf[u][a + i], k.special("LOW"), k.special("HIGH")
        if mode == "TABLE":
            return clip(self._looked_up(k, k.wbuf[VMACS * u + i % VMACS], b, value), low, high)
        if mode == "MAX":
            return clip(max(value, k.mbuf[u][b + i]), low, high)
        if mode == "MULTIPLY":
            value *= k.mbuf[u][b + i]
        elif mode == "ADD":
            value <<= k.special("SHIFT_A")
            value += k.mbuf[u][b + i] << k.special("SHIFT_B")
        return requantize(value, k.special("SHIFT"), low, high)

    def _looked_up(self, k: Cluster, table: list[int], b: int, value: int) -> int:
        bits = k.special("TABLE_BITS")
        x = requantize(value, k.special("TABLE_SHIFT"), *_WORDS) + 32768
        at, rest = b + (x >> bits), x & ((1 << bits) - 1)
        if not bits:
            return table[at]
        return table[at] + ((table[at + 1] - table[at]) * rest + (1 << (bits - 1)) >> bits)


