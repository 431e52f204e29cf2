"""The event loop: always the actor with the least time goes next.

Actors are the cores and the DMA engines. A core runs ahead alone until it meets a shared
instruction (one that others can see); it executes that only while it is the earliest, and then
looks anew who is. Ties go to the lower actor number, so a run is deterministic.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np

from tvm_npu.sim.compiled.slices import INSTRUCTIONS, next_slice, slice_ends
from tvm_npu.sim.nmp import dispatch, dma
from tvm_npu.sim.nmp.core import STOP
from tvm_npu.sim.nmp.scalar import LOW32
from tvm_npu.sim.nmp.state import (
    HALTED,
    QUEUE_FULL,
    RUNNING,
    Costs,
    SharedState,
    State,
    TrapSlot,
)
from tvm_npu.sim.nmp.traps import TrapCode as Code

_SOURCE = '''
def run_events(state, m, kinds, shared, budget):
    """Runs until all cores have exited or one traps, or a slice is over; at most ``budget``
    instructions in the run. Whether it is over comes first of what it returns."""
    s = SharedState(*state)
    decoded, regs, pcs, status = state.decoded, state.regs, state.pc, state.status
    time, queued, last_line = state.time, state.queue_count, state.last_line
    cache_tags, layer_of, layer_end = state.cache_tags, state.layer_of, state.layer_end
    layer_instructions, trapped, last_pc = state.layer_instructions, state.trap, state.last_pc
    rows = len(decoded)
    code_base = state.code_base[0]
    work, paused = state.work, state.paused
    executed = 0
    most = min(budget - state.counters[0], work[SLICE_INSTRUCTIONS])
    over = True
    while True:
        if executed >= most or slice_ends(work):
            if executed < budget - state.counters[0]:
                over = False
                break
        actor, earliest, second = -1, INF, INF
        alive = False
        for k in range(m.cores):
            if status[k] == RUNNING:
                alive = True
                if time[k] < earliest:
                    second = earliest
                    earliest, actor = time[k], k
                elif time[k] < second:
                    second = time[k]
            elif status[k] != HALTED:
                alive = True
        for t in range(m.tles):
            if queued[t] > 0:
                k = m.cores + t
                if time[k] < earliest:
                    second = earliest
                    earliest, actor = time[k], k
                elif time[k] < second:
                    second = time[k]
        if paused[0] >= 0:  # a slice has ended in the middle of this core's turn
            actor, second = paused[0], INF
            for k in range(m.cores + m.tles):
                waits = status[k] == RUNNING if k < m.cores else queued[k - m.cores] > 0
                if waits and k != actor and time[k] < second:
                    second = time[k]
        if actor < 0:
            if alive:
                trapped[CODE] = DEADLOCK
            break
        if actor >= m.cores:
            advance(s, m, actor - m.cores)
            work[0] += 1
            continue
        core = actor
        if executed >= budget - state.counters[0]:
            trapped[CODE], trapped[CORE], trapped[PC] = RUNAWAY, core, pcs[core]
            trapped[A] = executed + state.counters[0]
            break
        tle = core // m.tlts
        first = paused[0] < 0
        paused[0] = -1
        came_from = last_pc[core]
        while True:
            pc = pcs[core]
            row = (pc - code_base) >> 2
            if row < 0 or row >= rows or pc & 3:
                trapped[CODE], trapped[CORE], trapped[PC] = PC_OUTSIDE, core, pc
                trapped[A], trapped[B], trapped[C] = came_from, code_base, code_base + 4 * rows
                break
            op = decoded[row, 0]
            if not first and op >= 0 and shared[op] and time[core] >= second:
                break
            first = False
            line = pc // m.line_bytes
            if line != last_line[core]:
                last_line[core] = line
                slot = line % m.lines
                if cache_tags[tle, slot] != line:
                    cache_tags[tle, slot] = line
                    time[core] += m.miss
                    state.counters[1] += 1
            pcs[core] = pc + 4
            time[core] += m.instruction
            executed += 1
            came_from = pc
            layer = layer_of[row]
            layer_instructions[layer, core] += 1
            stop = 0
            kind = kinds[op] if op >= 0 else STATE
            if kind == STATE:
                stop = execute(op, s, m, core, row)
                if stop == STOP and status[core] == QUEUE_FULL:  # executes when there is room
                    time[core] -= m.instruction
                    executed -= 1
                    layer_instructions[layer, core] -= 1
            else:
                a = np.int64(regs[core, decoded[row, 2]])
                b = np.int64(regs[core, decoded[row, 3]])
                imm = np.int64(decoded[row, 4])
                if kind == BRANCH:
                    if taken(op, a, b, imm, pc):
                        pcs[core] = (pc + imm) & LOW32
                else:
                    value = value_of(op, a, b, imm, pc)
                    if kind == JUMP:
                        pcs[core] = value
                        value = pc + 4
                    rd = decoded[row, 1]
                    if rd != 0:
                        regs[core, rd] = np.int32(value & LOW32)
            if time[core] > layer_end[layer]:
                layer_end[layer] = time[core]
            if stop == STOP or (op >= 0 and shared[op]):
                break
            if executed >= most or (kind == STATE and slice_ends(work)):
                paused[0] = core
                break
        last_pc[core] = came_from
        if trapped[CODE] != 0:
            break
    state.counters[0] += executed
    return over, s.events, s.event_times
'''

run_events = dispatch.compile_text(
    "run_events",
    _SOURCE,
    {
        "np": np, "SharedState": SharedState, "LOW32": LOW32, "value_of": dispatch.value_of,
        "taken": dispatch.taken, "BRANCH": dispatch.BRANCH, "JUMP": dispatch.JUMP,
        "STATE": dispatch.STATE, "INF": np.inf, "RUNNING": RUNNING, "HALTED": HALTED, "STOP": STOP,
        "QUEUE_FULL": QUEUE_FULL,
        "CODE": TrapSlot.CODE, "CORE": TrapSlot.CORE, "PC": TrapSlot.PC, "A": TrapSlot.A,
        "B": TrapSlot.B, "C": TrapSlot.C, "DEADLOCK": Code.DEADLOCK,
        "PC_OUTSIDE": Code.PC_OUTSIDE_CODE, "RUNAWAY": Code.RUNAWAY, "advance": dma.advance,
        "execute": dispatch.execute, "slice_ends": slice_ends,
        "SLICE_INSTRUCTIONS": INSTRUCTIONS,
    },
)  # fmt: skip


class Watch(Protocol):
    """What looks at the state between slices; `before` may say how long the next one is."""

    def before(self, state: State) -> None: ...

    def after(self, state: State) -> None: ...


def run(state: State, costs: Costs, budget: int, watch: Watch | None = None) -> State:
    """Until all cores have exited or one traps; returns the state with the table of events, which
    may have grown."""
    while True:
        if watch is not None:
            watch.before(state)
        over, events, times = run_events(state, costs, dispatch.KIND_OF, dispatch.SHARED, budget)
        state = state._replace(events=events, event_times=times)
        if watch is not None:
            watch.after(state)
        if over:
            return state
        next_slice(state.work)
