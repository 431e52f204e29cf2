"""The event loop: always the actor with the least time goes next.

Actors are the cores and the DMA engines. A core runs ahead alone until it meets a shared
instruction (one that others can see); it executes that only while it is the earliest, and then
looks anew who is. Ties go to the lower actor number, so a run is deterministic.
"""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np

from tvm_npu.sim.compiled.slices import DONE, INSTRUCTIONS, next_slice, slice_ends
from tvm_npu.sim.compiled.views import view_of
from tvm_npu.sim.event_table import grown_events
from tvm_npu.sim.nmp import dispatch, dma
from tvm_npu.sim.nmp.columns import HALTED, QUEUE_FULL, RUNNING, TrapSlot
from tvm_npu.sim.nmp.core import STOP
from tvm_npu.sim.nmp.decorators import device, entry
from tvm_npu.sim.nmp.dispatch import BRANCH, JUMP, STATE
from tvm_npu.sim.nmp.recording import event_room, events_fit
from tvm_npu.sim.nmp.scalar import LOW32
from tvm_npu.sim.nmp.state import Array, Costs, State
from tvm_npu.sim.nmp.traps import TrapCode as Code

CODE, CORE, PC, A, B, C = (
    TrapSlot.CODE, TrapSlot.CORE, TrapSlot.PC, TrapSlot.A, TrapSlot.B, TrapSlot.C
)  # fmt: skip


LOOKS = 32
"""At actors, in about the time of an instruction: where a machine has many, turns are fewer in a
slice."""
FEWEST = 1 << 10
"""Instructions whose time a slice has for turns, also where it has fewer of them: a trace has one a
slice, and transfers that go on meanwhile."""


@entry
def run_events(state: Any, costs: Any, kinds: Array, shared: Array, budget: int) -> bool:
    """Runs until all cores have exited or one traps, or a slice is over, or the table of events is
    full; at most ``budget`` instructions in the run. Whether the run is over."""
    s, m = view_of(state), view_of(costs)  # type: ignore[call-arg, var-annotated]
    return loop(s, m, kinds, shared, budget)


@device
def loop(s: State, m: Costs, kinds: Array, shared: Array, budget: int) -> bool:
    executed = s.counters[0]
    most = min(budget, executed + s.work[INSTRUCTIONS])
    turns = 1 + LOOKS * max(s.work[INSTRUCTIONS], FEWEST) // (m.cores + m.tles)
    while True:
        executed = s.counters[0]
        if most <= executed < budget or turns <= 0 or slice_ends(s.work):
            return False
        turns -= 1
        if not events_fit(s, m):
            return False
        actor, second = next_actor(s, m)
        if s.paused[0] >= 0:  # a slice has ended in the middle of this core's turn
            actor = s.paused[0]
            second = next_but(s, m, actor)
        if actor < 0:
            if blocked(s, m):
                s.trap[CODE] = Code.DEADLOCK
            return True
        if actor >= m.cores:
            dma.advance(s, m, actor - m.cores)
            s.work[DONE] += m.cores + m.tles  # were looked at
            continue
        if executed >= budget:
            s.trap[CODE], s.trap[CORE], s.trap[PC] = Code.RUNAWAY, actor, s.pc[actor]
            s.trap[A] = executed
            return True
        turn(s, m, actor, second, most, kinds, shared)
        if s.trap[CODE] != 0:
            return True


@device
def acts(s: State, m: Costs, actor: int) -> bool:
    """Whether a core can go on, or a DMA engine has something to do."""
    return s.status[actor] == RUNNING if actor < m.cores else s.queue_count[actor - m.cores] > 0


@device
def next_actor(s: State, m: Costs) -> tuple[int, float]:
    """(who goes next; -1: nobody, when another would)."""
    actor, earliest, second = -1, np.inf, np.inf
    for k in range(m.cores + m.tles):
        if acts(s, m, k):
            if s.time[k] < earliest:
                second = earliest
                earliest, actor = s.time[k], k
            elif s.time[k] < second:
                second = s.time[k]
    return actor, second


@device
def next_but(s: State, m: Costs, actor: int) -> float:
    """When the first of all others would go."""
    earliest = np.inf
    for k in range(m.cores + m.tles):
        if k != actor and acts(s, m, k) and s.time[k] < earliest:
            earliest = s.time[k]
    return earliest


@device
def blocked(s: State, m: Costs) -> bool:
    """Whether a core has not exited."""
    for core in range(m.cores):
        if s.status[core] != HALTED:
            return True
    return False


@device
def fetch(s: State, m: Costs, core: int, pc: int) -> None:
    """The line of ``pc`` from the instruction cache."""
    line = pc // m.line_bytes
    s.last_line[core] = line
    tags = s.cache_tags[core // m.tlts]
    if tags[line % m.lines] != line:
        tags[line % m.lines] = line
        s.time[core] += m.miss
        s.counters[1] += 1


@device
def turn(
    s: State, m: Costs, core: int, second: float, most: int, kinds: Array, shared: Array
) -> None:
    """The core executes instructions until it stops, is no longer first where it shares something
    (``second`` is when another actor goes), has changed when others go, or the slice is over."""
    decoded, regs, time = s.decoded, s.regs[core], s.time
    executed, came_from = s.counters[0], s.last_pc[core]
    first = s.paused[0] < 0
    s.paused[0], s.woken[0] = -1, 0
    while True:
        pc = s.pc[core]
        row = (pc - s.code_base[0]) >> 2
        if row < 0 or row >= len(decoded) or pc & 3:
            s.trap[CODE], s.trap[CORE], s.trap[PC] = Code.PC_OUTSIDE_CODE, core, pc
            s.trap[A], s.trap[B] = came_from, s.code_base[0]
            s.trap[C] = s.code_base[0] + 4 * len(decoded)
            break
        op = decoded[row, 0]
        if not first and op >= 0 and shared[op] and time[core] >= second:
            break
        first = False
        begin = s.last_line[core] * m.line_bytes
        if pc < begin or pc >= begin + m.line_bytes:
            fetch(s, m, core, pc)
        s.pc[core] = pc + 4
        time[core] += m.instruction
        executed += 1
        came_from = pc
        layer = s.layer_of[row]
        s.layer_instructions[layer, core] += 1
        kind = kinds[op] if op >= 0 else STATE
        stop = 0
        if kind == STATE:
            stop = dispatch.execute(op, s, m, core, row)
            if stop == STOP and s.status[core] == QUEUE_FULL:  # executes when there is room
                time[core] -= m.instruction
                executed -= 1
                s.layer_instructions[layer, core] -= 1
        else:
            a, b = np.int64(regs[decoded[row, 2]]), np.int64(regs[decoded[row, 3]])
            imm = np.int64(decoded[row, 4])
            if kind == BRANCH:
                if dispatch.taken(op, a, b, imm, pc):
                    s.pc[core] = (pc + imm) & LOW32
            else:
                value = dispatch.value_of(op, a, b, imm, pc)
                if kind == JUMP:
                    s.pc[core] = value
                    value = pc + 4
                if decoded[row, 1] != 0:
                    regs[decoded[row, 1]] = np.int32(value & LOW32)
        if time[core] > s.layer_end[layer]:
            s.layer_end[layer] = time[core]
        if stop == STOP or s.woken[0] != 0 or (op >= 0 and shared[op] and time[core] >= second):
            break
        if executed >= most or (kind == STATE and (slice_ends(s.work) or not events_fit(s, m))):
            s.paused[0] = core
            break
    s.last_pc[core] = came_from
    s.counters[0] = executed


class Watch(Protocol):
    """What looks at the state between slices; `before` may say how long the next one is."""

    def before(self, state: State) -> None: ...

    def after(self, state: State) -> None: ...


def run(state: State, costs: Costs, budget: int, watch: Watch | None = None) -> State:
    """Until all cores have exited or one traps; returns the state with the table of events, which
    may have grown: between slices, when it might not hold all that one step can bring."""
    while True:
        if watch is not None:
            watch.before(state)
        if costs.records and state.event_count[0] + event_room(costs) > len(state.events):
            more = grown_events(state.events, state.event_times, event_room(costs))
            state = state._replace(**more)
        over = run_events(state, costs, dispatch.KIND_OF, dispatch.SHARED, budget)
        if watch is not None:
            watch.after(state)
        if over:
            return state
        next_slice(state.work)
