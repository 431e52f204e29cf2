"""Semaphores of the three levels: signal, wait, release, and who wakes when.

Cores that are looked at count as work.
"""

from __future__ import annotations

from tvm_npu.sim.compiled.slices import DONE
from tvm_npu.sim.nmp.columns import RUNNING, WAITING
from tvm_npu.sim.nmp.core import GO, STOP, rs1, trap
from tvm_npu.sim.nmp.decorators import device
from tvm_npu.sim.nmp.recording import record_wait
from tvm_npu.sim.nmp.state import Costs, State
from tvm_npu.sim.nmp.traps import TrapCode as Code

SEM, SUB = 5, 6
TLT, TLE, GLOBAL = 0, 1, 2


@device
def wake(s: State, m: Costs, core: int, now: float) -> None:
    """Lets a blocked core go on, not before ``now``; the time counts for the layer of the
    instruction that blocked."""
    pc = s.pc[core] - 4 if s.status[core] == WAITING else s.pc[core]
    s.status[core] = RUNNING
    s.woken[0] = 1
    if now > s.time[core]:
        row = (pc - s.code_base[0]) >> 2
        s.layer_wait_cycles[s.layer_of[row], core] += now - s.time[core]
        if m.records:
            record_wait(s, core, row, s.time[core], now)
        s.time[core] = now


@device
def add_tlt(s: State, m: Costs, core: int, sem: int, count: int, now: float) -> None:
    s.sem_tlt[core, sem] += count
    if s.status[core] == WAITING and s.wait_level[core] == TLT and s.wait_sem[core] == sem:
        if s.sem_tlt[core, sem] >= s.wait_count[core]:
            s.sem_tlt[core, sem] -= s.wait_count[core]
            wake(s, m, core, now)


@device
def add_tle(s: State, m: Costs, tle: int, sem: int, count: int, now: float) -> None:
    s.sem_tle[tle, sem] += count
    s.work[DONE] += m.tlts
    for core in range(tle * m.tlts, (tle + 1) * m.tlts):
        if s.status[core] == WAITING and s.wait_level[core] == TLE and s.wait_sem[core] == sem:
            if s.sem_tle[tle, sem] >= s.wait_count[core]:
                s.sem_tle[tle, sem] -= s.wait_count[core]
                wake(s, m, core, now)


@device
def add_global(s: State, m: Costs, sem: int, count: int, now: float) -> None:
    s.sem_global[sem] += count
    s.work[DONE] += m.cores
    for core in range(m.cores):
        if s.status[core] == WAITING and s.wait_level[core] == GLOBAL and s.wait_sem[core] == sem:
            if s.sem_global[sem] >= s.wait_count[core]:
                s.sem_global[sem] -= s.wait_count[core]
                wake(s, m, core, now)


@device
def finish_mac(s: State, core: int) -> None:
    """Takes note that the MAC unit's outstanding operation is complete."""
    if s.mac_sem[core] > 0:
        s.sem_tlt[core, s.mac_sem[core]] += 1
    s.mac_sem[core] = -1


@device
def nmp_signal(s: State, m: Costs, core: int, row: int) -> int:
    level, sem, count = s.decoded[row, SUB], s.decoded[row, SEM], rs1(s, core, row)
    if level > GLOBAL or count < 0 or sem >= m.semaphores:
        return trap(s, core, Code.SEMAPHORE, level, count, sem, 0)
    s.time[core] += m.semaphore
    if level == TLT:
        s.sem_tlt[core, sem] += count
    elif level == TLE:
        add_tle(s, m, core // m.tlts, sem, count, s.time[core])
    else:
        add_global(s, m, sem, count, s.time[core])
    return GO


@device
def nmp_release(s: State, m: Costs, core: int, row: int) -> int:
    level, sem, count = s.decoded[row, SUB], s.decoded[row, SEM], rs1(s, core, row)
    if level not in (TLE, GLOBAL) or count < 0 or sem >= m.semaphores:
        return trap(s, core, Code.SEMAPHORE, level, count, sem, 0)
    s.time[core] += m.semaphore
    first, last = 0, m.cores
    if level == TLE:
        first = core // m.tlts * m.tlts
        last = first + m.tlts
    s.work[DONE] += 2 * (last - first)
    for other in range(first, last):
        add_tlt(s, m, other, sem, count, s.time[core])
    return GO


@device
def nmp_wait(s: State, m: Costs, core: int, row: int) -> int:
    level, sem, count = s.decoded[row, SUB], s.decoded[row, SEM], rs1(s, core, row)
    if level > GLOBAL or count < 0 or sem >= m.semaphores:
        return trap(s, core, Code.SEMAPHORE, level, count, sem, 0)
    s.time[core] += m.semaphore
    if level == TLT:
        if s.mac_sem[core] == sem and sem > 0 and s.sem_tlt[core, sem] < count:
            s.time[core] = max(s.time[core], s.mac_done[core])
        if s.mac_sem[core] >= 0 and s.mac_done[core] <= s.time[core]:
            finish_mac(s, core)
        if s.sem_tlt[core, sem] >= count:
            s.sem_tlt[core, sem] -= count
            return GO
    elif level == TLE:
        if s.sem_tle[core // m.tlts, sem] >= count:
            s.sem_tle[core // m.tlts, sem] -= count
            return GO
    elif s.sem_global[sem] >= count:
        s.sem_global[sem] -= count
        return GO
    s.status[core] = WAITING
    s.wait_level[core] = level
    s.wait_sem[core] = sem
    s.wait_count[core] = count
    return STOP
