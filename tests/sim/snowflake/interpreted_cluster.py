"""The state of a cluster for `interpreter`, and what stops it."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

from tests.sim.isa_document import IsaDocument
from tests.sim.snowflake.interpreted_order import Order
from tvm_npu.sim.snowflake.machine import SnowflakeMachine

DOCUMENT = IsaDocument("snowflake")
SPECIAL = {name: k for k, name in DOCUMENT.names("`dest`: special registers").items()}
NOTHING_WRITTEN = 0x5A5A
VMACS, LANES = 4, 16
BANK, PLACES = 512, 1024

Sums = dict[tuple[bool, int, int], int]
"""By whether they are coop's, CU, and number of the vMAC or MAC."""


class Stop(NamedTuple):
    """Where a cluster may stop (None: at a place without an instruction), every reason for it."""

    cluster: int
    row: int | None
    codes: frozenset[str]


class Fault(Exception):
    def __init__(self, *codes: str) -> None:
        self.codes = frozenset(codes)


@lru_cache(maxsize=4096)
def decode(word: int) -> tuple[str, dict[str, int]] | None:
    return DOCUMENT.decode(word)


def signed(value: int, bits: int) -> int:
    value &= (1 << bits) - 1
    return value - (1 << bits) if value >> (bits - 1) else value


class Cluster:
    def __init__(self, number: int, machine: SnowflakeMachine, words: list[int]) -> None:
        self.number, self.words = number, words
        self.cus, sizes = machine.clusters.cus, machine.clusters
        self.mbuf = [[NOTHING_WRITTEN] * (sizes.mbuf_bytes // 2) for _ in range(self.cus)]
        self.wbuf = [[NOTHING_WRITTEN] * (sizes.wbuf_bytes // 2)
                     for _ in range(VMACS * self.cus)]  # fmt: skip
        self.r = [0] * 64
        for name, value in {
            "OUTPUTS": 64, "TARGET": 1, "CUS": self.every_cu, "LOW": -32768, "HIGH": 32767,
            "DIVISOR": 1, "LD_RUNS": 1, "ST_RUNS": 1,
        }.items():  # fmt: skip
            self.r[SPECIAL[name]] = value
        depths = {"vector": machine.vector, "load": machine.load, "store": machine.store}
        self.order = Order(number, {unit: part.queue_depth for unit, part in depths.items()})
        # Sums that are open, what the next ones start with, residuals of both.
        self.sums: Sums = {}
        self.open: set[tuple[bool, int]] = set()
        self.initial: Sums = {}
        self.residual: Sums = {}
        self.next_residual: Sums = {}
        self.late: tuple[int, Stop] | None = None  # a vector instruction whose sum overflows
        # Control.
        self.pc = self.slots = self.target = self.executed = 0
        self.row: int | None = None  # of the last instruction
        self.banks = [(0, min(len(words), BANK)), (0, 0)]
        self.bank_load = [-1, -1]  # number of the last load of each
        self.shared: list[tuple[int, int, tuple[int, ...]]] = []  # number, row, what it loads
        self.waits: tuple[str, int] | None = None
        self.at_barrier = self.ended = False

    @property
    def every_cu(self) -> int:
        return (1 << self.cus) - 1

    def special(self, name: str) -> int:
        return self.r[SPECIAL[name]]

    def set(self, number: int, value: int) -> None:
        self.r[number] = signed(value, 32)

    def faults(self, **allowed: tuple[int, int]) -> set[str]:
        """What is wrong unless special registers have values from the first to the last."""
        bad = any(not low <= self.special(name) <= high for name, (low, high) in allowed.items())
        return {"BAD_OPERAND"} if bad else set()

    def ranges(self, **allowed: tuple[int, int]) -> None:
        """Raises unless special registers have values from the first to the last."""
        if self.faults(**allowed):
            raise Fault("BAD_OPERAND")
