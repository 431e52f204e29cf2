"""The order of instructions between two branches: avoiding waits for registers.

A register can be read without a wait some instructions after the one that writes it. Vector and
memory instructions and `sync` keep their order; scalar instructions move between them, as far as
what they read and write allows. So addresses lie in registers of their own before a group of
traces begins, and what moves addresses on fills the gaps (the compiler's paper, section 7, figure
4).
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence

import numpy as np

from tvm_npu.codegen.snowflake.code.nodes import Instr, form
from tvm_npu.sim.snowflake import registers
from tvm_npu.sim.snowflake.isa import Finish, MacMode

NEAR = 3
"""Scalars that one of so many next ordered instructions needs come first."""
WINDOW = 10
"""How many ordered instructions ahead a scalar may be computed."""
_NEVER = 1 << 30

_READERS = {
    "max": registers.STREAM, "vmov": registers.VMOV, "ld": registers.LD, "tmov": registers.TMOV,
}  # fmt: skip


def _read_by(*readers: int) -> tuple[int, ...]:
    return tuple(np.flatnonzero(registers.READERS[:, readers].any(axis=1)).tolist())


_TRACES = _read_by(registers.SUM, registers.FINISH, registers.STREAM)
READS = {
    "mac": _TRACES, "max": _TRACES, "vmov": _read_by(registers.VMOV),
    "ld": _read_by(registers.LD), "tmov": _read_by(registers.TMOV),
}  # fmt: skip
"""The special registers in front of which instructions keep their place. What any trace reads stays
in front of all, so that what moves the results' address fills the gaps behind them."""
ORDERED = frozenset({"mac", "max", "vmov", "ld", "tmov", "sync"})


def special_reader(op: Instr) -> int:
    """Which reader of special registers (`registers`) an instruction is; -1: none."""
    if op.mnemonic != "mac":
        return _READERS.get(op.mnemonic, -1)
    fields = form("mac").others
    if fields["mode"].decode(op.fixed) > MacMode.LANE:
        return registers.STREAM
    is_kept = fields["finish"].decode(op.fixed) == Finish.KEEP
    return registers.SUM if is_kept else registers.FINISH


def scheduled(
    ops: Sequence[Instr], raw_cycles: int, near: int = NEAR, window: int = WINDOW,
    counter: int = -1,
) -> list[int]:  # fmt: skip
    """The order in which ``ops`` are issued, as indices. Smaller windows need fewer registers. A
    branch behind them reads register ``counter``."""
    count = len(ops)
    if count < 3:
        return list(range(count))
    distance = raw_cycles + 1
    before: list[list[tuple[int, int]]] = [[] for _ in range(count)]
    after: list[list[tuple[int, int]]] = [[] for _ in range(count)]
    _dependences(ops, distance, before, after)
    chain = [i for i in range(count) if ops[i].mnemonic in ORDERED]
    deadline = _deadlines(ops, chain, after)
    for i, op in enumerate(ops):
        if op.dest == counter:
            deadline[i] = min(deadline[i], max(0, len(chain) - distance))

    left = [len(preds) for preds in before]
    ready_at = [0] * count
    ready: list[tuple[int, int]] = []
    order: list[int] = []
    time, position = 0, 0
    is_ordered = [op.mnemonic in ORDERED for op in ops]
    for i in range(count):
        if left[i] == 0 and not is_ordered[i]:
            heapq.heappush(ready, (deadline[i], i))

    def issue(i: int) -> None:
        nonlocal time
        time = max(time, ready_at[i])
        order.append(i)
        for j, latency in after[i]:
            ready_at[j] = max(ready_at[j], time + latency)
            left[j] -= 1
            if left[j] == 0 and not is_ordered[j]:
                heapq.heappush(ready, (deadline[j], j))
        time += 1

    def scalar(latest: int) -> bool:
        """Issues a scalar that an ordered instruction up to ``latest`` needs; one that would not
        wait, if there is one."""
        skipped = []
        found = None
        while ready and ready[0][0] <= latest:
            entry = heapq.heappop(ready)
            if ready_at[entry[1]] <= time:
                found = entry
                break
            skipped.append(entry)
        for entry in skipped:
            heapq.heappush(ready, entry)
        if found is None:
            return False
        issue(found[1])
        return True

    while len(order) < count:
        if position < len(chain):
            following = chain[position]
            if scalar(position + near):
                continue
            if left[following] == 0 and ready_at[following] <= time:
                issue(following)
                position += 1
            elif scalar(position + window) or (window > near and scalar(_NEVER)):
                continue
            elif left[following] == 0:
                issue(following)
                position += 1
            else:
                issue(heapq.heappop(ready)[1])
        elif not scalar(_NEVER):
            issue(heapq.heappop(ready)[1])
    return order


def _dependences(
    ops: Sequence[Instr],
    distance: int,
    before: list[list[tuple[int, int]]],
    after: list[list[tuple[int, int]]],
) -> None:
    writer: dict[int, int] = {}
    readers: dict[int, list[int]] = {}
    last = -1

    def edge(first: int, second: int, latency: int) -> None:
        before[second].append((first, latency))
        after[first].append((second, latency))

    for i, op in enumerate(ops):
        for register in (*op.sources, *READS.get(op.mnemonic, ())):
            if register in writer:
                edge(writer[register], i, distance)
            readers.setdefault(register, []).append(i)
        if op.dest >= 0:
            for reader in readers.pop(op.dest, ()):
                if reader != i:
                    edge(reader, i, 1)
            if op.dest in writer:
                edge(writer[op.dest], i, 1)
            writer[op.dest] = i
        if op.mnemonic in ORDERED:
            if last >= 0:
                edge(last, i, 1)
            last = i


def _deadlines(
    ops: Sequence[Instr], chain: Sequence[int], after: list[list[tuple[int, int]]]
) -> list[int]:
    """The position in the chain of the first ordered instruction that hangs on each one's value."""
    place = {i: position for position, i in enumerate(chain)}
    found = [_NEVER] * len(ops)
    for i in reversed(range(len(ops))):
        if i in place:
            found[i] = place[i]
            continue
        for j, latency in after[i]:
            if latency > 1:
                found[i] = min(found[i], found[j])
    return found
