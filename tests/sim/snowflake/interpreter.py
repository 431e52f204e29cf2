"""What Snowflake programs mean, in plain Python integers: written from docs/isa-snowflake.md and
docs/snowflake.md alone.

Every vector instruction and transfer is complete before the next instruction of its cluster
begins; clusters take turns where they wait. A program that waits as it must computes the same on
the simulator. `Order` says which instructions do not wait as they must. Of an instruction that
cannot be executed all faults are named: the document does not say which one the machine finds
first. Nor does it say when a sum that overflows is found out: no later than when the core knows
that its instruction is complete.
"""

from __future__ import annotations

from collections.abc import Sequence

from tests.sim.snowflake.interpreted_cluster import (
    BANK,
    DOCUMENT,
    PLACES,
    Cluster,
    Fault,
    Stop,
    decode,
)
from tests.sim.snowflake.interpreted_order import Operation, Race, between_clusters
from tests.sim.snowflake.interpreted_transfers import Memory, Segment, Transfers
from tests.sim.snowflake.interpreted_vector import Vectors
from tvm_npu.sim.snowflake.machine import SnowflakeMachine

_WAITS = DOCUMENT.names("`what` of sync")
_UNITS = {"mac": "vector", "max": "vector", "vmov": "vector", "ld": "load", "tmov": "store"}
_SLOTS = 4


class Interpreter(Vectors, Transfers):
    """``strict``: instructions that are not ordered stop the program."""

    def __init__(
        self, machine: SnowflakeMachine, code: Sequence[list[int]], memory: list[int],
        segments: Sequence[Segment], *, strict: bool,
    ) -> None:  # fmt: skip
        self.clusters = [Cluster(k, machine, words) for k, words in enumerate(code)]
        self.memory, self.strict = Memory(memory, segments), strict
        self.races: set[Race] = set()
        self.stops: list[Stop] = []
        self.budget = 0

    def run(self, budget: int) -> bool:
        """Whether the program may need more than ``budget`` instructions. ``stops``: where it may
        stop; it does at one of them, or ends where there is none."""
        runs_on = self._run(budget)
        self.stops += [k.late[1] for k in self.clusters if k.late]
        waiting = [k for k in self.clusters if not k.ended]
        if not runs_on and not self.stops:
            self.stops = [Stop(k.number, k.row, frozenset({"NO_PARTNER"})) for k in waiting]
        return runs_on

    def _run(self, budget: int) -> bool:
        """A cluster that needs more than the budget alone does not keep others from going on."""
        self.budget = budget
        stopped = set[int]()
        while True:
            before = [k.executed for k in self.clusters]
            for k in self.clusters:
                if k.number not in stopped and self._go(k):
                    stopped.add(k.number)
            self._meet_shared()
            if not stopped and all(k.at_barrier for k in self.clusters):
                if self._order_clusters():
                    break
                for k in self.clusters:
                    k.at_barrier = False
            elif before == [k.executed for k in self.clusters]:
                break
        if all(k.ended for k in self.clusters):
            self._order_clusters()
        return sum(k.executed for k in self.clusters) > budget

    def _order_clusters(self) -> bool:
        """Whether what clusters have moved since the last barrier stops them."""
        found = between_clusters([k.order for k in self.clusters])
        self.races |= found
        if self.strict:
            self.stops += [Stop(*later, frozenset({"HAZARD"})) for _, later, _ in found]
        return self.strict and bool(found)

    def _go(self, k: Cluster) -> bool:
        """Until the cluster waits or ends, or stops: then True."""
        while k.executed <= self.budget and not k.ended and not k.at_barrier:
            try:
                going = self._wait(k) if k.waits else self._step(k)
            except Fault as fault:
                if fault.codes:
                    self.stops.append(Stop(k.number, k.row, fault.codes))
                return True
            finally:
                self.races |= k.order.races
            if not going:
                break
        return False

    # Loads that all clusters issue.

    def _met(self) -> int:
        """Shared loads for which every cluster has come, alike."""
        count = min(len(k.shared) for k in self.clusters)
        first = self.clusters[0].shared
        for n in range(count):
            if any(k.shared[n][2] != first[n][2] for k in self.clusters):
                return n
        return count

    def _meet_shared(self) -> None:
        """Stops where clusters have come to loads that differ."""
        met, first = self._met(), self.clusters[0]
        if all(len(k.shared) > met for k in self.clusters):
            for k in self.clusters:
                if k.shared[met][2] != first.shared[met][2]:
                    stop = Stop(k.number, k.shared[met][1], frozenset({"SHARED_DIFFERS"}))
                    self.stops += [stop] if stop not in self.stops else []

    def _first_held(self, k: Cluster) -> int:
        """Number of the first load that cannot become complete."""
        met = self._met()
        return k.shared[met][0] if len(k.shared) > met else len(k.order.issued["load"])

    # Control.

    def _known(self, k: Cluster) -> None:
        """A sum that has overflowed is found out when its instruction is complete."""
        if k.late and k.order.known["vector"] > k.late[0]:
            raise Fault

    def _wait(self, k: Cluster) -> bool:
        """Whether what a sync waits for has come."""
        assert k.waits is not None
        what, pending = k.waits
        held = len(k.order.issued["load"]) - self._first_held(k)
        if what not in ("VECTOR", "STORE") and held > pending:
            return False
        k.waits = None
        k.at_barrier, k.ended = what == "CLUSTERS", what == "END"
        return True

    def _step(self, k: Cluster) -> bool:
        bank, offset = divmod(k.pc, BANK)
        if k.bank_load[bank] >= self._first_held(k):
            return False
        first, count = k.banks[bank]
        if offset >= count:
            k.row = None
            raise Fault("ILLEGAL_INSTRUCTION")
        row = k.row = first + offset
        found = decode(k.words[row])
        if found is None:
            raise Fault("ILLEGAL_INSTRUCTION")
        mnemonic, operands = found
        unit = _UNITS.get(mnemonic)
        if unit:
            k.order.room(unit)
            self._known(k)
            held = len(k.order.issued["load"]) - self._first_held(k)
            if unit == "load" and held >= k.order.depths["load"]:
                return False
        k.executed += 1
        if k.executed > self.budget:
            return False
        branches = mnemonic in ("ble", "beq")
        if unit:
            operation: Operation = getattr(self, mnemonic)(k, row, **operands)
            if k.order.issue(operation) and self.strict:
                raise Fault("HAZARD")
        else:
            getattr(self, mnemonic)(k, **operands)
        k.pc = (k.pc + 1) % PLACES
        if k.slots and not branches:
            k.slots -= 1
            k.pc = k.pc if k.slots else k.target
        self._known(k)
        return True

    def sync(self, k: Cluster, what: int, pending: int) -> None:
        name = _WAITS.get(what)
        if name is None:
            raise Fault("BAD_OPERAND")
        units = [name.lower()] if name.lower() in k.order.depths else list(k.order.depths)
        pending = pending if len(units) == 1 else 0
        for unit in units:
            k.order.know(unit, pending)
        k.waits = name, pending

    def ble(self, k: Cluster, rs1: int, rs2: int, imm: int) -> None:
        self._branch(k, imm, k.r[rs1] <= k.r[rs2])

    def beq(self, k: Cluster, rs1: int, rs2: int, imm: int) -> None:
        self._branch(k, imm, k.r[rs1] == k.r[rs2])

    def _branch(self, k: Cluster, imm: int, taken: bool) -> None:
        if k.slots:
            raise Fault("BRANCH_IN_SLOT")
        k.slots = _SLOTS
        k.target = (k.pc + (imm // 4 if taken else 1 + _SLOTS)) % PLACES

    # Scalars.

    def mov(self, k: Cluster, dest: int, rs1: int, shift: int) -> None:
        k.set(dest, k.r[rs1] << shift if shift >= 0 else k.r[rs1] >> -shift)

    def movi(self, k: Cluster, dest: int, value: int) -> None:
        k.set(dest, value)

    def add(self, k: Cluster, dest: int, rs1: int, rs2: int) -> None:
        k.set(dest, k.r[rs1] + k.r[rs2])

    def addi(self, k: Cluster, dest: int, rs1: int, value: int) -> None:
        k.set(dest, k.r[rs1] + value)

    def mul(self, k: Cluster, dest: int, rs1: int, rs2: int) -> None:
        k.set(dest, k.r[rs1] * k.r[rs2])
