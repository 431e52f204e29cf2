"""The state of an NMP's cores for `interpreter`, and what stops them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from tests.sim.isa_document import IsaDocument
from tests.sim.nmp.interpreted_order import Order, Span
from tvm_npu.sim.nmp.machine import NmpMachine

DOCUMENT = IsaDocument("nmp")
MAC_NAMES = DOCUMENT.names("MAC configuration registers")
DMA_NAMES = DOCUMENT.names("DMA configuration registers")
MB2 = 2


class Stop(NamedTuple):
    """Where a core stops, and every reason for it."""

    core: int
    pc: int
    codes: frozenset[str]


class Fault(Exception):
    def __init__(self, *codes: str) -> None:
        self.codes = frozenset(codes)


class Core:
    def __init__(self, number: int, machine: NmpMachine, pc: int) -> None:
        self.number, self.pc = number, pc
        self.tle, self.tlt = divmod(number, machine.cores.tlts_per_tle)
        self.x = [0] * 32
        self.x[10] = number
        self.mac = dict.fromkeys(MAC_NAMES.values(), 0)
        self.dma = dict.fromkeys(DMA_NAMES.values(), 0)
        sizes = machine.memories
        self.memory = {
            0: bytearray(sizes.mb0_bytes), 1: bytearray(sizes.mb1_bytes),
            3: bytearray(sizes.bias_bytes),
        }  # fmt: skip
        self.sums = [0] * sizes.mb2_bytes
        self.semaphores = [0] * machine.dme.semaphores
        self.done = False


def places(*extents: int) -> Iterator[tuple[int, ...]]:
    """All indices, the last one fastest."""
    if not extents:
        yield ()
        return
    for first in range(extents[0]):
        for rest in places(*extents[1:]):
            yield first, *rest


class Unit:
    """What all parts of the interpreter see; ``shared`` and ``everyone`` are semaphores of the TLEs
    and of the machine."""

    def __init__(self, machine: NmpMachine, words: list[int], base: int, dram: bytearray) -> None:
        self.machine, self.words, self.base, self.dram = machine, words, base, dram
        self.cores = [Core(k, machine, base) for k in range(machine.core_count)]
        self.shared = [[0] * machine.dme.semaphores for _ in range(machine.cores.tles)]
        self.everyone = [0] * machine.dme.semaphores
        self.order = Order(machine)  # of a machine with one core
        self.touched: list[Span] = []  # what the operation or transfer that issues touches

    def meets_code(self, begin: int, end: int) -> bool:
        """Whether bytes of DRAM, counted from its begin, are the program's code."""
        code = self.base - self.machine.dram.base_address
        return begin < code + 4 * len(self.words) and code < end

    def signal(self, core: Core, sem: int) -> None:
        if sem:
            core.semaphores[sem] += 1
