"""The control core of a cluster: it runs ahead of the units until it has to wait for one."""

from __future__ import annotations

import numpy as np

from tvm_npu.sim.compiled import device
from tvm_npu.sim.compiled.slices import SLICE, slice_ends
from tvm_npu.sim.snowflake import registers as special
from tvm_npu.sim.snowflake.checks import GO, GROW, STOP, trap, within
from tvm_npu.sim.snowflake.cluster_hazards import has_room, log_transfer
from tvm_npu.sim.snowflake.columns import (
    BARRIER,
    CAUSE,
    CLOCK,
    CORE,
    CORE_LANE,
    DONE,
    ENDED,
    FETCHING,
    ISSUED,
    LOAD,
    QUEUE_FULL,
    RUNNING,
    STORE,
    VECTOR,
    WAITING,
)
from tvm_npu.sim.snowflake.hazards import check_transfer, check_vector, know
from tvm_npu.sim.snowflake.isa import (
    BANK_INSTRUCTIONS,
    BANKS,
    COLUMN,
    DELAY_SLOTS,
    SCALARS,
    SNOWFLAKE_ISA,
    Finish,
    MacMode,
    Wait,
)
from tvm_npu.sim.snowflake.recording import events_fit, note_wait
from tvm_npu.sim.snowflake.registers import READERS
from tvm_npu.sim.snowflake.state import Array, Costs, State
from tvm_npu.sim.snowflake.transfers import issue_transfer
from tvm_npu.sim.snowflake.traps import SnowflakeTrapCode as Code
from tvm_npu.sim.snowflake.traps import TrapOperand
from tvm_npu.sim.snowflake.vector_issue import MAC, MAX, VMOV, issue_vector

MOV, MOVI, ADD, ADDI, MUL, BLE, BEQ, SYNC, LD, TMOV = (
    SNOWFLAKE_ISA.index[name]
    for name in ("mov", "movi", "add", "addi", "mul", "ble", "beq", "sync", "ld", "tmov")
)
_RD, _RS1, _RS2, _RS3 = COLUMN["rd"], COLUMN["rs1"], COLUMN["rs2"], COLUMN["rs3"]
_IMM, _MODE, _FINISH = COLUMN["imm"], COLUMN["mode"], COLUMN["finish"]
_PLACES = BANKS * BANK_INSTRUCTIONS


@device
def run_core(s: State, m: Costs, c: int) -> int:
    """Issues instructions until the core waits or ends."""
    # Taking an array out of the state costs as much as several instructions: once is enough.
    core, clock, registers, ready = s.core[c], s.clock[c], s.registers[c], s.ready[c]
    decoded, layer_of, executed, work = s.decoded, s.layer_of, s.executed, s.work
    bank_row, bank_loads, counts = s.bank_row[c], s.bank_loads[c], s.counts[c]
    issued = s.layer_instructions[:, c]
    while core[CORE.STATUS] == RUNNING:
        if not events_fit(s, m) or executed[0] >= executed[SLICE] or slice_ends(work):
            return GROW
        place = core[CORE.PC]
        bank, offset = place // BANK_INSTRUCTIONS, place % BANK_INSTRUCTIONS
        if bank_loads[bank] > 0:
            _wait(core, clock, FETCHING)
            return GO
        row = bank_row[bank, 0] + offset
        if offset >= bank_row[bank, 1] or decoded[row, 0] < 0:
            missing = offset >= bank_row[bank, 1]
            return trap(s, c, -1 if missing else row, Code.ILLEGAL_INSTRUCTION, place, 0, 0)
        d = decoded[row]
        op, unit = d[0], _unit_of(d[0])
        if unit >= 0:
            if counts[unit, ISSUED] - counts[unit, DONE] >= _depth(m, unit):
                core[CORE.UNIT], core[CORE.ROW] = unit, row
                _wait(core, clock, QUEUE_FULL)
                return GO
            if unit != VECTOR and not has_room(s, m, c):
                return GROW
        executed[0] += 1
        if executed[0] > executed[1]:
            return trap(s, c, row, Code.RUNAWAY, executed[1], 0, 0)
        core[CORE.ROW] = row
        now = _operands_ready(d, ready, clock, op)
        if now > clock[CLOCK.ISSUE]:
            note_wait(s, m, CORE_LANE, c, row, clock[CLOCK.ISSUE], now, CAUSE.REGISTER)
        issued[layer_of[row]] += 1
        clock[CLOCK.ISSUE] = now + 1.0
        if unit >= 0:
            outcome = _issue(s, m, c, unit, row, now)
        elif op == SYNC:
            outcome = _sync(s, m, c, row)
        elif op == BLE or op == BEQ:
            outcome = _branch(s, c, row, d, registers, core)
        else:
            outcome = GO
            _scalar(d, registers, ready, now + 1.0 + m.raw)
        if outcome == STOP:
            return STOP
        core[CORE.PC] = (core[CORE.PC] + 1) % _PLACES
        if core[CORE.SLOTS] > 0:
            core[CORE.SLOTS] -= 1
            if core[CORE.SLOTS] == 0:
                core[CORE.PC] = core[CORE.TARGET]
    return GO


@device
def _unit_of(op: int) -> int:
    if op == MAC or op == MAX or op == VMOV:
        return VECTOR
    if op == LD:
        return LOAD
    return STORE if op == TMOV else -1


@device
def _depth(m: Costs, unit: int) -> int:
    if unit == VECTOR:
        return m.vector_depth
    return m.load_depth if unit == LOAD else m.store_depth


@device
def _wait(core: Array, clock: Array, status: int) -> None:
    core[CORE.STATUS] = status
    clock[CLOCK.WAIT_BEGIN] = clock[CLOCK.ISSUE]


@device
def _operands_ready(d: Array, ready: Array, clock: Array, op: int) -> float:
    """When the instruction issues: a register that was just written stalls it."""
    now = clock[CLOCK.ISSUE]
    if op != MOVI and op != SYNC:
        now = max(now, ready[d[_RS1]])
        if op != MOV and op != ADDI and op != VMOV:
            now = max(now, ready[d[_RS2]])
        if op == LD or op == TMOV:
            now = max(now, ready[d[_RS3]])
    reader = _reader(op, d[_MODE], d[_FINISH])
    return now if reader < 0 else max(now, ready[SCALARS + reader])


@device
def _reader(op: int, mode: int, finish: int) -> int:
    """Which of the readers of special registers an instruction is; -1: none."""
    if op == MAC:
        if mode > MacMode.LANE:
            return special.STREAM
        return special.SUM if finish == Finish.KEEP else special.FINISH
    if op == MAX:
        return special.STREAM
    if op == VMOV:
        return special.VMOV
    if op == LD:
        return special.LD
    return special.TMOV if op == TMOV else -1


@device
def _issue(s: State, m: Costs, c: int, unit: int, row: int, now: float) -> int:
    """To a unit whose queue has a place: one that is full says what is complete."""
    know(s, c, unit, _depth(m, unit) - 1)
    if unit == VECTOR:
        if issue_vector(s, m, c, row, now) == STOP:
            return STOP
        return check_vector(s, m, c)
    if issue_transfer(s, m, c, unit, row, now) == STOP:
        return STOP
    if m.clusters > 1 and log_transfer(s, c, unit) == STOP:
        return STOP
    return check_transfer(s, m, c, unit)


@device
def _scalar(d: Array, registers: Array, ready: Array, there: float) -> None:
    """The register that it writes can be read without a wait at time ``there``."""
    op, a, b, imm = d[0], registers[d[_RS1]], registers[d[_RS2]], np.int64(d[_IMM])
    value = a
    if op == MOVI:
        value = imm
    elif op == MOV:
        value = a << imm if imm >= 0 else a >> -imm
    elif op == ADD:
        value = a + b
    elif op == ADDI:
        value = a + imm
    else:
        value = a * b
    destination = d[_RD]
    registers[destination] = ((value + (1 << 31)) & 0xFFFFFFFF) - (1 << 31)
    if destination < SCALARS:
        ready[destination] = there
        return
    for reader in range(len(READERS[0])):
        if READERS[destination, reader]:
            ready[SCALARS + reader] = there


@device
def _branch(s: State, c: int, row: int, d: Array, registers: Array, core: Array) -> int:
    if core[CORE.SLOTS] > 0:
        return trap(s, c, row, Code.BRANCH_IN_SLOT, 0, 0, 0)
    a, b = registers[d[_RS1]], registers[d[_RS2]]
    taken = a == b or (d[0] == BLE and a < b)
    distance = d[_IMM] // 4 if taken else 1 + DELAY_SLOTS
    core[CORE.TARGET] = (core[CORE.PC] + distance) % _PLACES
    core[CORE.SLOTS] = DELAY_SLOTS + 1
    return GO


@device
def _sync(s: State, m: Costs, c: int, row: int) -> int:
    what, pending = s.decoded[row, _MODE], s.decoded[row, _IMM]
    if within(s, c, row, TrapOperand.WHAT, what, VECTOR, Wait.END) == STOP:
        return STOP
    if what <= STORE:
        know(s, c, what, pending)
        s.core[c, CORE.UNIT] = what
    else:
        for unit in range(STORE + 1):
            know(s, c, unit, 0)
        s.core[c, CORE.UNIT] = what
        pending = 0
    s.core[c, CORE.PENDING] = pending
    _wait(s.core[c], s.clock[c], WAITING)
    resume(s, m, c, VECTOR, 0.0)
    return GO


@device
def _waited_for(s: State, c: int) -> bool:
    """Whether what a `sync` waits for has come."""
    unit, pending = s.core[c, CORE.UNIT], s.core[c, CORE.PENDING]
    for k in range(STORE + 1):
        if unit > STORE or unit == k:
            if s.counts[c, k, ISSUED] - s.counts[c, k, DONE] > pending:
                return False
    return True


@device
def resume(s: State, m: Costs, c: int, unit: int, now: float) -> None:
    """Lets the core go on if what it waits for has come with an operation of ``unit`` that is
    complete ``now``."""
    core, status = s.core[c], s.core[c, CORE.STATUS]
    cause = CAUSE.VECTOR + unit
    if status == FETCHING:
        if s.bank_loads[c, core[CORE.PC] // BANK_INSTRUCTIONS] > 0:
            return
        cause = CAUSE.INSTRUCTIONS
    elif status == QUEUE_FULL:
        if core[CORE.UNIT] != unit:
            return
        cause = CAUSE.VECTOR_QUEUE + unit
    elif status != WAITING or not _waited_for(s, c):
        return
    go_on(s, m, c, now, cause)
    if status == WAITING and (core[CORE.UNIT] == Wait.CLUSTERS or core[CORE.UNIT] == Wait.END):
        core[CORE.STATUS] = BARRIER if core[CORE.UNIT] == Wait.CLUSTERS else ENDED


@device
def go_on(s: State, m: Costs, c: int, now: float, cause: int) -> None:
    """The core issues its next instruction no earlier than ``now``; it has waited for ``cause``."""
    clock, row = s.clock[c], s.core[c, CORE.ROW]
    clock[CLOCK.ISSUE] = max(clock[CLOCK.ISSUE], now)
    s.core[c, CORE.STATUS] = RUNNING
    note_wait(s, m, CORE_LANE, c, row, clock[CLOCK.WAIT_BEGIN], clock[CLOCK.ISSUE], cause)
    clock[CLOCK.WAIT_BEGIN] = clock[CLOCK.ISSUE]
    layer = s.layer_of[row]
    s.layer_end[layer] = max(s.layer_end[layer], clock[CLOCK.ISSUE])
