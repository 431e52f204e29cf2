"""Snowflake's loads and stores, in plain Python integers: written from docs/isa-snowflake.md and
docs/snowflake.md."""

from __future__ import annotations

from collections.abc import Sequence

from tests.sim.snowflake.interpreted_cluster import BANK, DOCUMENT, VMACS, Cluster, Fault
from tests.sim.snowflake.interpreted_order import Operation, span

_BUFFERS = DOCUMENT.names("`buffer` of ld")
_VMACS = DOCUMENT.names("`vmac` of ld")
_STREAMS = DOCUMENT.names("`stream`: what a transfer carries")

Segment = tuple[int, int, bool]
"""First byte, byte behind the last, whether it can be stored to."""


class Memory:
    """A device's memory: words of 16 bits, signed."""

    def __init__(self, words: list[int], segments: Sequence[Segment]) -> None:
        self.words, self.segments = words, segments

    def check(self, begin: int, end: int, stores: bool, faults: set[str]) -> None:
        for first, last, writable in self.segments:
            if first <= begin and end <= last:
                if stores and not writable:
                    faults.add("READ_ONLY")
                return
        faults.add("OUTSIDE_MEMORY")


class Transfers:
    """What loads and stores of a cluster do; each is complete at once."""

    memory: Memory

    def ld(
        self, k: Cluster, row: int, buffer: int, shared: int, vmac: int, memory: int, place: int,
        words: int, cus: int, stream: int,
    ) -> Operation:  # fmt: skip
        kind, which = _BUFFERS.get(buffer), _VMACS.get(vmac)
        if kind is None or stream not in _STREAMS:
            raise Fault("BAD_OPERAND")
        if kind == "ICACHE":
            self._load_bank(k, k.r[memory], k.r[place], k.r[words])
            found, what = Operation("load", row), (k.r[memory], k.r[words], 1, 0)
        else:
            if which is None or not 1 <= cus <= k.every_cu:
                raise Fault("BAD_OPERAND")
            places = k.r[memory], k.r[place], k.r[words]
            found, what = self._load(k, row, kind, which, *places, cus)
        if shared:
            k.shared.append((len(k.order.issued["load"]), row, (buffer, *what)))
        return found

    def _load_bank(self, k: Cluster, byte: int, place: int, words: int) -> None:
        faults = set[str]()
        if not 0 <= place <= BANK or not 2 <= words <= 2 * BANK:
            faults.add("BAD_OPERAND")
        if not 0 <= byte <= 4 * len(k.words) - 2 * words:
            faults.add("BAD_OPERAND")
        if place % BANK or words % 2 or byte % 4:
            faults.add("UNALIGNED")
        if place // BANK == k.pc // BANK:
            faults.add("BANK")
        if faults:
            raise Fault(*faults)
        k.banks[place // BANK] = byte // 4, words // 2
        k.bank_load[place // BANK] = len(k.order.issued["load"])

    def _load(
        self, k: Cluster, row: int, kind: str, which: str, byte: int, place: int, words: int,
        cus: int,
    ) -> tuple[Operation, tuple[int, ...]]:  # fmt: skip
        vmacs = range(VMACS) if which == "ALL" else [int(which[1])]
        if kind == "MBUF":
            buffers = [("MBuf", u, k.mbuf[u]) for u in range(k.cus) if cus >> u & 1]
        else:
            buffers = [("WBuf", VMACS * u + v, k.wbuf[VMACS * u + v])
                       for u in range(k.cus) if cus >> u & 1 for v in vmacs]  # fmt: skip
        size = len(buffers[0][2])
        runs, memory_step, step = self._runs(k, "LD", byte, place, words, size, stores=False)
        found = Operation("load", row)
        found.read("memory", 0, span(byte // 2, words, runs, memory_step // 2))
        touched = span(place, words, runs, step)
        for name, number, buffer in buffers:
            found.write(name, number, touched)
            for n in range(runs):
                begin, at = (byte + n * memory_step) // 2, place + n * step
                buffer[at : at + words] = self.memory.words[begin : begin + words]
        return found, (byte, words, runs, memory_step)

    def _runs(
        self, k: Cluster, name: str, byte: int, place: int, words: int, size: int, *, stores: bool
    ) -> tuple[int, int, int]:
        """(runs, bytes from one to the next, words of the buffer); raises all faults."""
        runs = k.special(f"{name}_RUNS")
        memory_step, step = k.special(f"{name}_MEMORY_STEP"), k.special(f"{name}_BUFFER_STEP")
        if not 1 <= words <= size or not 1 <= runs <= 1 << 16:
            raise Fault("BAD_OPERAND")
        if runs == 1:
            memory_step = step = 0
        faults = set[str]()
        if byte % 2 or memory_step % 2:
            faults.add("UNALIGNED")
        last = place + (runs - 1) * step
        if min(place, last) < 0 or max(place, last) + words > size:
            faults.add("OUTSIDE_BUFFER")
        last = byte + (runs - 1) * memory_step
        self.memory.check(min(byte, last), max(byte, last) + 2 * words, stores, faults)
        if faults:
            raise Fault(*faults)
        return runs, memory_step, step

    def tmov(
        self, k: Cluster, row: int, cu: int, memory: int, place: int, words: int, stream: int
    ) -> Operation:
        if cu >= k.cus or stream not in _STREAMS:
            raise Fault("BAD_OPERAND")
        byte, at, count = k.r[memory], k.r[place], k.r[words]
        source = k.mbuf[cu]
        runs, memory_step, step = self._runs(k, "ST", byte, at, count, len(source), stores=True)
        found = Operation("store", row)
        found.read("MBuf", cu, span(at, count, runs, step))
        found.write("memory", 0, span(byte // 2, count, runs, memory_step // 2))
        for n in range(runs):
            begin, first = (byte + n * memory_step) // 2, at + n * step
            self.memory.words[begin : begin + count] = source[first : first + count]
        return found
