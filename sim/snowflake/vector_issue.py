"""A vector instruction when it issues: operands are latched and checked, and its times are known,
because vector instructions wait for nothing but each other."""

from __future__ import annotations

from tvm_npu.sim.compiled import device
from tvm_npu.sim.compiled.spans import reach
from tvm_npu.sim.snowflake.checks import (
    GO,
    STOP,
    aligned,
    allowed,
    inside,
    lines,
    lowest,
    spend,
    within,
)
from tvm_npu.sim.snowflake.columns import (
    CAUSE,
    CLOCK,
    CORE,
    ISSUED,
    MAC_LANE,
    MAX_LANE,
    QUEUE,
    VECTOR,
    VMOV_LANE,
    V,
)
from tvm_npu.sim.snowflake.isa import (
    COLUMN,
    LANES,
    MOST_CUS,
    SNOWFLAKE_ISA,
    SUM_WORDS,
    VMACS,
    Finish,
    MacMode,
    Preload,
)
from tvm_npu.sim.snowflake.isa import Special as S
from tvm_npu.sim.snowflake.recording import note_vector, note_wait
from tvm_npu.sim.snowflake.registers import HIGHEST
from tvm_npu.sim.snowflake.state import Array, Costs, State
from tvm_npu.sim.snowflake.traps import TrapMemory, TrapOperand

MAC, MAX, VMOV = (SNOWFLAKE_ISA.index[name] for name in ("mac", "max", "vmov"))

_MODE, _FINISH, _RS1, _RS2, _IMM = (
    COLUMN["mode"], COLUMN["finish"], COLUMN["rs1"], COLUMN["rs2"], COLUMN["imm"]
)  # fmt: skip
_LATCHED = V.TABLE_BITS - V.OUT + 1
_RESULT_WORK = 8
"""Of a sum that is rounded, divided or looked up: some ns."""


@device
def issue_vector(s: State, m: Costs, c: int, row: int, now: float) -> int:
    """Puts the instruction into the queue, where the caller has made sure of a place."""
    slot = s.counts[c, VECTOR, ISSUED] % QUEUE
    r = s.vector[c, slot]
    r[:] = 0
    _latch(s, c, row, r)
    outcome = _vmov(s, m, c, r) if r[V.KIND] == VMOV else _trace(s, m, c, r)
    if outcome == STOP:
        return STOP
    if r[V.KIND] == VMOV:
        _time_vmov(s, m, c, slot, now)
    else:
        _time_trace(s, m, c, slot, now)
        if r[V.WRITE_END]:
            s.registers[c, S.OUT] = _wrapped(s.registers[c, S.OUT] + s.registers[c, S.OUT_STEP])
    s.counts[c, VECTOR, ISSUED] += 1
    return GO


@device
def _wrapped(value: int) -> int:
    """The low 32 bits, signed."""
    return ((value + (1 << 31)) & 0xFFFFFFFF) - (1 << 31)


@device
def _latch(s: State, c: int, row: int, r: Array) -> None:
    decoded, registers = s.decoded[row], s.registers[c]
    r[V.ROW] = row
    r[V.KIND] = decoded[0]
    r[V.MODE] = decoded[_MODE]
    r[V.FINISH] = decoded[_FINISH]
    r[V.A] = registers[decoded[_RS1]]
    r[V.B] = registers[decoded[_RS2]]
    r[V.LENGTH] = decoded[_IMM]
    for k in range(_LATCHED):
        r[V.OUT + k] = registers[S.OUT + k]


@device
def _cus(s: State, m: Costs, c: int, r: Array, coop: bool) -> int:
    """Checks the masks and OUTPUTS; in coop mode only vMACs that have an output take part."""
    row, every = r[V.ROW], (1 << m.cus) - 1
    if within(s, c, row, S.CUS, r[V.CUS], 1, every) == STOP:
        return STOP
    most = VMACS * m.cus if coop else VMACS * LANES
    if within(s, c, row, S.OUTPUTS, r[V.OUTPUTS], 1, most) == STOP:
        return STOP
    if coop:
        if within(s, c, row, S.TARGET, r[V.TARGET], 1, every) == STOP:
            return STOP
        r[V.CUS] &= (1 << ((r[V.OUTPUTS] + VMACS - 1) // VMACS)) - 1
    return GO


@device
def _wbufs(r: Array, coop: bool) -> int:
    """vMACs that have an output."""
    if not coop:
        return _of_all_cus(r[V.CUS], (1 << ((r[V.OUTPUTS] + LANES - 1) // LANES)) - 1)
    return _of_all_cus(r[V.CUS], (1 << VMACS) - 1) & ((1 << r[V.OUTPUTS]) - 1)


@device
def _of_all_cus(cus: int, vmacs: int) -> int:
    """The same vMACs of each CU."""
    mask = 0
    for u in range(MOST_CUS):
        if cus >> u & 1:
            mask |= vmacs << VMACS * u
    return mask


@device
def _vmov(s: State, m: Costs, c: int, r: Array) -> int:
    row, a, coop = r[V.ROW], r[V.A], r[V.FINISH] == 0
    if within(s, c, row, TrapOperand.WHAT, r[V.MODE], Preload.BIAS, Preload.RESIDUAL) == STOP:
        return STOP
    if _cus(s, m, c, r, coop) == STOP:
        return STOP
    r[V.READ_MASK] = r[V.CUS]
    if r[V.MODE] == Preload.BIAS:
        r[V.READ_W], r[V.READ_WBUFS] = a, _wbufs(r, coop)
        r[V.READ_W_END] = a + (2 if coop else 2 * min(LANES, r[V.OUTPUTS]))
        if inside(s, c, row, TrapMemory.WBUF, a, r[V.READ_W_END], m.wbuf_words) == STOP:
            return STOP
        return spend(s, c, row, r[V.OUTPUTS] * m.cus)
    if coop:
        r[V.READ_MASK] = 1 << lowest(r[V.TARGET])
    r[V.READ_A] = a
    r[V.READ_A_END] = a + r[V.OUTPUTS] * (SUM_WORDS if r[V.MODE] == Preload.SUMS else 1)
    if inside(s, c, row, TrapMemory.MBUF, a, r[V.READ_A_END], m.mbuf_words) == STOP:
        return STOP
    return spend(s, c, row, r[V.OUTPUTS] * m.cus)


@device
def _trace(s: State, m: Costs, c: int, r: Array) -> int:
    """Operands of mac and max."""
    if r[V.KIND] == MAX:
        r[V.FINISH] = Finish.RESULT
    elif r[V.MODE] > MacMode.TABLE:
        return within(s, c, r[V.ROW], TrapOperand.MODE, r[V.MODE], MacMode.COOP, MacMode.TABLE)
    elif r[V.MODE] <= MacMode.LANE:
        return _sum(s, m, c, r)
    return _stream(s, m, c, r)


@device
def _sum(s: State, m: Costs, c: int, r: Array) -> int:
    row, a, b, length = r[V.ROW], r[V.A], r[V.B], r[V.LENGTH]
    coop = r[V.MODE] == MacMode.COOP
    if within(s, c, row, TrapOperand.FINISH, r[V.FINISH], Finish.KEEP, Finish.SUMS) == STOP:
        return STOP
    if _cus(s, m, c, r, coop) == STOP:
        return STOP
    end = a + length
    if r[V.MODE] == MacMode.LANE:
        step = r[V.LANE_STEP]
        if allowed(s, c, row, S.LANE_STEP, step) == STOP:
            return STOP
        end = a + reach(r[V.OUTPUTS], length, step)
    r[V.READ_A], r[V.READ_A_END], r[V.READ_MASK] = a, end, r[V.CUS]
    r[V.READ_W], r[V.READ_W_END] = b, b + (length if coop else LANES * length)
    r[V.READ_WBUFS] = _wbufs(r, coop)
    if inside(s, c, row, TrapMemory.MBUF, a, end, m.mbuf_words) == STOP:
        return STOP
    if inside(s, c, row, TrapMemory.WBUF, b, r[V.READ_W_END], m.wbuf_words) == STOP:
        return STOP
    if not coop and aligned(s, c, row, TrapOperand.B, b, LANES) == STOP:
        return STOP
    opened = CORE.OPEN_COOP if coop else CORE.OPEN_INDP
    r[V.OPENS] = r[V.CUS] & ~s.core[c, opened]
    s.core[c, opened] |= r[V.CUS]
    if r[V.FINISH] != Finish.KEEP:
        s.core[c, opened] &= ~r[V.CUS]
        words = SUM_WORDS if r[V.FINISH] == Finish.SUMS else 1
        if _result(s, m, c, r, r[V.OUTPUTS] * words) == STOP:
            return STOP
        r[V.WRITE_MASK] = r[V.TARGET] if coop else r[V.CUS]
        if spend(s, c, row, _RESULT_WORK * r[V.OUTPUTS] * (1 if coop else m.cus)) == STOP:
            return STOP
    lanes = 1 if coop else LANES
    return spend(s, c, row, length * VMACS * m.cus * lanes)


@device
def _result(s: State, m: Costs, c: int, r: Array, words: int) -> int:
    """Checks the registers that results depend on, and their place."""
    row, out = r[V.ROW], r[V.OUT]
    r[V.WRITE], r[V.WRITE_END] = out, out + words
    if allowed(s, c, row, S.SHIFT, r[V.SHIFT]) == STOP:
        return STOP
    if allowed(s, c, row, S.DIVISOR, r[V.DIVISOR]) == STOP:
        return STOP
    if allowed(s, c, row, S.SUM_SHIFT, r[V.SUM_SHIFT]) == STOP:
        return STOP
    if allowed(s, c, row, S.RESIDUAL_SHIFT, r[V.RESIDUAL_SHIFT]) == STOP:
        return STOP
    if allowed(s, c, row, S.LOW, r[V.LOW]) == STOP:
        return STOP
    if within(s, c, row, S.HIGH, r[V.HIGH], r[V.LOW], HIGHEST[S.HIGH]) == STOP:
        return STOP
    return inside(s, c, row, TrapMemory.MBUF, out, out + words, m.mbuf_words)


@device
def _stream(s: State, m: Costs, c: int, r: Array) -> int:
    row, a, b, length, mode = r[V.ROW], r[V.A], r[V.B], r[V.LENGTH], r[V.MODE]
    if within(s, c, row, TrapOperand.FINISH, r[V.FINISH], Finish.RESULT, Finish.RESULT) == STOP:
        return STOP
    if within(s, c, row, S.CUS, r[V.CUS], 1, (1 << m.cus) - 1) == STOP:
        return STOP
    if _result(s, m, c, r, length) == STOP:
        return STOP
    r[V.WRITE_MASK] = r[V.READ_MASK] = r[V.CUS]
    r[V.READ_A], r[V.READ_A_END] = a, a + length
    if inside(s, c, row, TrapMemory.MBUF, a, a + length, m.mbuf_words) == STOP:
        return STOP
    if r[V.KIND] == MAX or mode == MacMode.MULTIPLY or mode == MacMode.ADD:
        r[V.READ_B], r[V.READ_B_END] = b, b + length
        if inside(s, c, row, TrapMemory.MBUF, b, b + length, m.mbuf_words) == STOP:
            return STOP
    if r[V.KIND] == MAC and mode == MacMode.ADD:
        if allowed(s, c, row, S.SHIFT_A, r[V.SHIFT_A]) == STOP:
            return STOP
        if allowed(s, c, row, S.SHIFT_B, r[V.SHIFT_B]) == STOP:
            return STOP
    if r[V.KIND] == MAC and mode == MacMode.TABLE:
        if allowed(s, c, row, S.TABLE_SHIFT, r[V.TABLE_SHIFT]) == STOP:
            return STOP
        if allowed(s, c, row, S.TABLE_BITS, r[V.TABLE_BITS]) == STOP:
            return STOP
        r[V.READ_W], r[V.READ_W_END] = b, b + (1 << (16 - r[V.TABLE_BITS])) + 1
        r[V.READ_WBUFS] = _of_all_cus(r[V.CUS], (1 << min(VMACS, length)) - 1)
        if inside(s, c, row, TrapMemory.WBUF, b, r[V.READ_W_END], m.wbuf_words) == STOP:
            return STOP
    looked_up = r[V.KIND] == MAC and mode == MacMode.TABLE
    return spend(s, c, row, length * m.cus * (_RESULT_WORK if looked_up else 1))


@device
def _time_vmov(s: State, m: Costs, c: int, slot: int, now: float) -> None:
    """Beside the trace that has started before it, into registers that the last sums to open have
    taken over."""
    r, clock = s.vector[c, slot], s.clock[c]
    taken = 1.0
    if r[V.MODE] != Preload.BIAS:
        taken = lines(r[V.READ_A], r[V.READ_A_END])
    elif r[V.FINISH] != 0:
        taken = lines(r[V.READ_W], r[V.READ_W_END])
    start = max(now + 1.0, clock[CLOCK.V_START])
    start = max(start, max(clock[CLOCK.PORT_FREE], clock[CLOCK.OPENED]))
    end = start + taken
    clock[CLOCK.V_START] = start
    clock[CLOCK.PORT_FREE] = clock[CLOCK.PRELOADED] = end
    _complete(s, c, slot, start, end)
    note_vector(s, m, VMOV_LANE, c, r, start, end)


@device
def _complete(s: State, c: int, slot: int, start: float, done: float) -> None:
    """Vector instructions complete in order."""
    s.clock[c, CLOCK.V_DONE] = max(s.clock[c, CLOCK.V_DONE], done)
    s.vector_time[c, slot, 0] = start
    s.vector_time[c, slot, 1] = s.clock[c, CLOCK.V_DONE]
    layer = s.layer_of[s.vector[c, slot, V.ROW]]
    s.layer_end[layer] = max(s.layer_end[layer], s.clock[c, CLOCK.V_DONE])


@device
def _trace_cycles(m: Costs, r: Array) -> float:
    mode, length = r[V.MODE], r[V.LENGTH]
    read_a = lines(r[V.READ_A], r[V.READ_A_END])
    if r[V.KIND] == MAX or mode == MacMode.MULTIPLY or mode == MacMode.ADD:
        return max(read_a, lines(r[V.READ_B], r[V.READ_B_END]))
    if mode == MacMode.SCALE:
        return read_a
    if mode == MacMode.COOP:
        return max(read_a, lines(r[V.READ_W], r[V.READ_W_END]))
    if mode == MacMode.INDP:
        return length
    if mode == MacMode.LANE:
        return length * ((r[V.OUTPUTS] + LANES - 1) // LANES)
    return (length + m.table_words - 1) // m.table_words


@device
def _time_trace(s: State, m: Costs, c: int, slot: int, now: float) -> None:
    r, clock = s.vector[c, slot], s.clock[c]
    lane = MAX_LANE if r[V.KIND] == MAX else MAC_LANE
    start = max(now + 1.0, max(clock[CLOCK.V_START], clock[CLOCK.V_FREE]))
    if r[V.OPENS] != 0:
        note_wait(s, m, lane, c, r[V.ROW], start, clock[CLOCK.PRELOADED], CAUSE.VMOV)
        start = max(start, clock[CLOCK.PRELOADED])
        clock[CLOCK.OPENED] = start
    end = done = start + _trace_cycles(m, r)
    note_vector(s, m, lane, c, r, start, end)
    if r[V.WRITE_END]:
        # Sums leave behind their trace, and the trace of the next ones cannot end before that;
        # the results of a stream leave while it goes on.
        note_wait(s, m, lane, c, r[V.ROW], end, clock[CLOCK.WRITE_FREE], CAUSE.WRITE_PORT)
        end = max(end, clock[CLOCK.WRITE_FREE])
        leaving = 0
        if r[V.KIND] == MAC and r[V.MODE] <= MacMode.LANE:
            leaving = lines(r[V.WRITE], r[V.WRITE_END])
        clock[CLOCK.WRITE_FREE] = end + leaving
        done = end + leaving + m.vector_latency
    clock[CLOCK.V_START] = start
    clock[CLOCK.V_FREE] = end
    _complete(s, c, slot, start, done)
    if r[V.KIND] == MAC:
        layer = s.layer_of[r[V.ROW]]
        s.layer_traces[layer, r[V.MODE], 0] += 1
        s.layer_traces[layer, r[V.MODE], 1] += r[V.LENGTH]
        if r[V.MODE] <= MacMode.MULTIPLY:
            s.layer_macs[layer] += r[V.LENGTH] * _parts(r)


@device
def _parts(r: Array) -> int:
    """MACs a step that belong to an output."""
    total = 0
    for u in range(4):
        if r[V.CUS] >> u & 1:
            if r[V.MODE] == MacMode.COOP:
                total += min(VMACS, r[V.OUTPUTS] - VMACS * u)
            elif r[V.MODE] == MacMode.MULTIPLY:
                total += 1
            else:
                total += r[V.OUTPUTS]
    return total
