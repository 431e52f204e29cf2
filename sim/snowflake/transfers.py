"""Loads and stores: checked when they issue, served by the memory one at a time, done at once when
they are complete."""

from __future__ import annotations

import numpy as np

from tvm_npu.sim.compiled import device
from tvm_npu.sim.compiled.spans import extent, volume
from tvm_npu.sim.snowflake.checks import (
    GO,
    GROW,
    STOP,
    aligned,
    allowed,
    inside,
    spend,
    trap,
    within,
)
from tvm_npu.sim.snowflake.columns import (
    CAUSE,
    CLOCK,
    CORE,
    ISSUED,
    KNOWN_NEXT,
    LOAD,
    LOAD_LANE,
    MOVED,
    QUEUE,
    STARTED,
    STORE,
    STORE_LANE,
    T,
)
from tvm_npu.sim.snowflake.isa import (
    BANK_INSTRUCTIONS,
    BANKS,
    COLUMN,
    MEMORY_UNIT_BYTES,
    VMACS,
    WORD_BYTES,
    Buffer,
    SnowflakeStream,
    VmacSelect,
)
from tvm_npu.sim.snowflake.isa import Special as S
from tvm_npu.sim.snowflake.recording import note_transfer, note_wait
from tvm_npu.sim.snowflake.state import Array, Costs, State
from tvm_npu.sim.snowflake.traps import SnowflakeTrapCode as Code
from tvm_npu.sim.snowflake.traps import TrapOperand

NOBODY = -1

_MODE, _RS1, _RS2, _RS3 = COLUMN["mode"], COLUMN["rs1"], COLUMN["rs2"], COLUMN["rs3"]
_VMAC, _CUS, _STREAM, _SHARED = (
    COLUMN["vmac"], COLUMN["cus"], COLUMN["stream"], COLUMN["shared"]
)  # fmt: skip
_STREAMS = len(SnowflakeStream)
_INSTRUCTION_BYTES = 4


@device
def issue_transfer(s: State, m: Costs, c: int, unit: int, row: int, now: float) -> int:
    """Puts ld (unit LOAD) or tmov (STORE) into its queue, where there is a place."""
    slot = s.counts[c, unit, ISSUED] % QUEUE
    r, decoded, registers = s.transfer[c, unit - LOAD, slot], s.decoded[row], s.registers[c]
    r[T.ROW] = row
    r[T.STREAM] = decoded[_STREAM]
    r[T.MEMORY] = registers[decoded[_RS1]]
    r[T.PLACE] = registers[decoded[_RS2]]
    r[T.WORDS] = registers[decoded[_RS3]]
    r[T.SHARED] = decoded[_SHARED] if unit == LOAD else 0
    if unit == LOAD:
        r[T.BUFFER], r[T.RUNS] = decoded[_MODE], registers[S.LD_RUNS]
        r[T.MEMORY_STEP] = registers[S.LD_MEMORY_STEP]
        r[T.BUFFER_STEP] = registers[S.LD_BUFFER_STEP]
        r[T.CUS] = decoded[_CUS]
        r[T.VMACS] = (1 << VMACS) - 1 if decoded[_VMAC] == VmacSelect.ALL else 1 << decoded[_VMAC]
    else:
        if within(s, c, row, TrapOperand.CU, decoded[_MODE], 0, m.cus - 1) == STOP:
            return STOP
        r[T.BUFFER], r[T.RUNS] = Buffer.MBUF, registers[S.ST_RUNS]
        r[T.MEMORY_STEP] = registers[S.ST_MEMORY_STEP]
        r[T.BUFFER_STEP] = registers[S.ST_BUFFER_STEP]
        r[T.CUS], r[T.VMACS] = 1 << decoded[_MODE], 0
    r[T.WBUFS] = r[T.MOVED_RUNS] = 0
    if within(s, c, row, TrapOperand.STREAM, r[T.STREAM], 0, _STREAMS - 1) == STOP:
        return STOP
    if within(s, c, row, TrapOperand.BUFFER, r[T.BUFFER], Buffer.MBUF, Buffer.ICACHE) == STOP:
        return STOP
    if r[T.BUFFER] == Buffer.ICACHE:
        outcome = _check_bank(s, c, r)
    else:
        outcome = _check_data(s, m, c, unit, decoded[_VMAC], r)
    if outcome == STOP:
        return STOP
    r[T.UNITS] = _units(r)
    s.transfer_time[c, unit - LOAD, slot, 0] = now + 1.0
    s.counts[c, unit, ISSUED] += 1
    s.calendar[KNOWN_NEXT] = 0
    _count(s, c, unit, r)
    return GO


@device
def _count(s: State, c: int, unit: int, r: Array) -> None:
    layer, way = s.layer_of[r[T.ROW]], unit - LOAD
    size = WORD_BYTES * r[T.WORDS] * r[T.RUNS]
    s.layer_transfers[layer, way] += 1
    receivers = 1 if r[T.BUFFER] == Buffer.ICACHE else _bits(r[T.CUS])
    if r[T.BUFFER] == Buffer.WBUF:
        receivers *= _bits(r[T.VMACS])
    s.layer_memory[layer, r[T.BUFFER], 1 if unit == LOAD else 0] += size * receivers
    if r[T.SHARED] and c > 0:
        return  # read once, for all clusters
    s.layer_bytes[layer, way, r[T.STREAM]] += size
    s.layer_units[layer, way] += r[T.UNITS]


@device
def _bits(mask: int) -> int:
    count = 0
    while mask:
        count += mask & 1
        mask >>= 1
    return count


@device
def _check_bank(s: State, c: int, r: Array) -> int:
    """A load of instructions: from the cluster's code, into the bank that does not run."""
    row, place, words = r[T.ROW], r[T.PLACE], r[T.WORDS]
    r[T.RUNS], r[T.MEMORY_STEP], r[T.BUFFER_STEP] = 1, 0, 0
    if within(s, c, row, TrapOperand.PLACE, place, 0, (BANKS - 1) * BANK_INSTRUCTIONS) == STOP:
        return STOP
    if aligned(s, c, row, TrapOperand.PLACE, place, BANK_INSTRUCTIONS) == STOP:
        return STOP
    if within(s, c, row, TrapOperand.WORDS, words, 2, 2 * BANK_INSTRUCTIONS) == STOP:
        return STOP
    if aligned(s, c, row, TrapOperand.WORDS, words, 2) == STOP:
        return STOP
    end = _INSTRUCTION_BYTES * s.code_place[c, 1] - WORD_BYTES * words
    if within(s, c, row, TrapOperand.CODE_BYTE, r[T.MEMORY], 0, end) == STOP:
        return STOP
    if aligned(s, c, row, TrapOperand.CODE_BYTE, r[T.MEMORY], _INSTRUCTION_BYTES) == STOP:
        return STOP
    running = s.core[c, CORE.PC] // BANK_INSTRUCTIONS
    if place // BANK_INSTRUCTIONS == running:
        return trap(s, c, row, Code.BANK, running, running, 0)
    s.bank_loads[c, place // BANK_INSTRUCTIONS] += 1
    return spend(s, c, row, words)


@device
def _check_data(s: State, m: Costs, c: int, unit: int, vmac: int, r: Array) -> int:
    row, words, runs = r[T.ROW], r[T.WORDS], r[T.RUNS]
    if within(s, c, row, TrapOperand.CUS, r[T.CUS], 1, (1 << m.cus) - 1) == STOP:
        return STOP
    if unit == LOAD and within(s, c, row, TrapOperand.VMAC, vmac, 0, VmacSelect.ALL) == STOP:
        return STOP
    to_weights = r[T.BUFFER] == Buffer.WBUF
    if to_weights:
        for u in range(m.cus):
            if r[T.CUS] >> u & 1:
                r[T.WBUFS] |= r[T.VMACS] << VMACS * u
    size = m.wbuf_words if to_weights else m.mbuf_words
    if within(s, c, row, TrapOperand.WORDS, words, 1, size) == STOP:
        return STOP
    register = S.LD_RUNS if unit == LOAD else S.ST_RUNS
    if allowed(s, c, row, register, runs) == STOP:
        return STOP
    if runs == 1:
        r[T.MEMORY_STEP] = r[T.BUFFER_STEP] = 0
    if aligned(s, c, row, TrapOperand.ADDRESS, r[T.MEMORY], WORD_BYTES) == STOP:
        return STOP
    register = S.LD_MEMORY_STEP if unit == LOAD else S.ST_MEMORY_STEP
    if aligned(s, c, row, register, r[T.MEMORY_STEP], WORD_BYTES) == STOP:
        return STOP
    begin, end = extent(r[T.PLACE], words, runs, r[T.BUFFER_STEP])
    if inside(s, c, row, r[T.BUFFER], begin, end, size) == STOP:
        return STOP
    begin, end = extent(r[T.MEMORY], WORD_BYTES * words, runs, r[T.MEMORY_STEP])
    if _in_segment(s, c, row, begin, end, unit == STORE) == STOP:
        return STOP
    return spend(s, c, row, volume(words, runs, m.cus * VMACS if to_weights else m.cus))


@device
def _in_segment(s: State, c: int, row: int, begin: int, end: int, writes: bool) -> int:
    for k in range(len(s.segments)):
        if s.segments[k, 0] <= begin and end <= s.segments[k, 1]:
            if writes and s.segments[k, 2] == 0:
                return trap(s, c, row, Code.READ_ONLY, begin, end - 1, 0)
            return GO
    return trap(s, c, row, Code.OUTSIDE_MEMORY, begin, end - 1, 0)


@device
def _units(r: Array) -> int:
    """64-byte units of memory that the runs touch; runs without a gap between them are one."""
    size = WORD_BYTES * r[T.WORDS]
    if r[T.MEMORY_STEP] == size:
        last = r[T.MEMORY] + size * r[T.RUNS] - 1
        return last // MEMORY_UNIT_BYTES - r[T.MEMORY] // MEMORY_UNIT_BYTES + 1
    total = 0
    for k in range(r[T.RUNS]):
        begin = r[T.MEMORY] + k * r[T.MEMORY_STEP]
        total += (begin + size - 1) // MEMORY_UNIT_BYTES - begin // MEMORY_UNIT_BYTES + 1
    return total


@device
def request_time(s: State, c: int, unit: int) -> float:
    """When the unit asks the memory for its next transfer; infinity without one."""
    number = s.counts[c, unit, STARTED]
    if number == s.counts[c, unit, ISSUED]:
        return np.inf
    free = s.clock[c, CLOCK.L_FREE if unit == LOAD else CLOCK.S_FREE]
    return max(s.transfer_time[c, unit - LOAD, number % QUEUE, 0], free)


@device
def _is_shared(s: State, c: int, unit: int) -> bool:
    number = s.counts[c, unit, STARTED]
    return unit == LOAD and s.transfer[c, 0, number % QUEUE, T.SHARED] != 0


@device
def next_service(s: State, m: Costs) -> tuple[float, int, int]:
    """(time, cluster, unit) of what the memory serves next; a shared load waits for all clusters
    and then counts as the first one's. Cluster NOBODY: nothing can be served."""
    best, cluster, unit = np.inf, NOBODY, LOAD
    shared, comes = 0.0, 0
    for c in range(m.clusters):
        for kind in (LOAD, STORE):
            asked = request_time(s, c, kind)
            if asked == np.inf:
                continue
            if _is_shared(s, c, kind):
                shared, comes = max(shared, asked), comes + 1
            elif asked < best:
                best, cluster, unit = asked, c, kind
    if comes == m.clusters and shared < best:
        best, cluster, unit = shared, 0, LOAD
    return max(best, s.device[0]), cluster, unit


@device
def serve(s: State, m: Costs, c: int, unit: int, begin: float) -> int:
    """The memory's turn of a transfer; a shared load is served for all clusters."""
    first = s.transfer[c, unit - LOAD, s.counts[c, unit, STARTED] % QUEUE]
    end = begin + first[T.UNITS] * MEMORY_UNIT_BYTES / m.memory_rate
    s.device[0] = end
    together = _is_shared(s, c, unit)
    met = 0.0
    if together:
        for other in range(m.clusters):
            met = max(met, request_time(s, other, unit))
    lane = LOAD_LANE if unit == LOAD else STORE_LANE
    for other in range(m.clusters):
        if other != c and not together:
            continue
        slot = s.counts[other, unit, STARTED] % QUEUE
        r = s.transfer[other, unit - LOAD, slot]
        if together:
            same = r[T.MEMORY] == first[T.MEMORY] and r[T.WORDS] == first[T.WORDS]
            same = same and r[T.RUNS] == first[T.RUNS] and r[T.BUFFER] == first[T.BUFFER]
            if not same or r[T.MEMORY_STEP] != first[T.MEMORY_STEP]:
                return trap(s, other, r[T.ROW], Code.SHARED_DIFFERS, c, 0, 0)
        # A store takes its words at the end of its turn, a load brings them when it is complete.
        done = end + (m.load_latency if unit == LOAD else m.store_latency)
        s.transfer_time[other, unit - LOAD, slot, 1] = done if unit == LOAD else end
        s.transfer_time[other, unit - LOAD, slot, 2] = done
        asked = request_time(s, other, unit)
        note_wait(s, m, lane, other, r[T.ROW], asked, met, CAUSE.CLUSTERS)
        note_wait(s, m, lane, other, r[T.ROW], max(asked, met), begin, CAUSE.MEMORY)
        note_transfer(s, m, other, unit, r, begin, end, other == c)
        s.clock[other, CLOCK.L_FREE if unit == LOAD else CLOCK.S_FREE] = end
        s.counts[other, unit, STARTED] += 1
        layer = s.layer_of[r[T.ROW]]
        s.layer_end[layer] = max(s.layer_end[layer], done)
    return GO


@device
def move_words(s: State, m: Costs, c: int, unit: int) -> int:
    """What the next transfer of a unit does. GROW: it goes on in the next slice, for its runs may
    repeat the same words for minutes."""
    number = s.counts[c, unit, MOVED]
    r = s.transfer[c, unit - LOAD, number % QUEUE]
    if r[T.BUFFER] == Buffer.ICACHE:
        bank = r[T.PLACE] // BANK_INSTRUCTIONS
        s.bank_row[c, bank, 0] = s.code_place[c, 0] + r[T.MEMORY] // _INSTRUCTION_BYTES
        s.bank_row[c, bank, 1] = r[T.WORDS] // 2
        s.bank_loads[c, bank] -= 1
        s.counts[c, unit, MOVED] += 1
        return GO
    behind = 0  # runs of the buffers up to this one
    for u in range(m.cus):
        if r[T.CUS] >> u & 1 == 0:
            continue
        cu = c * m.cus + u
        if r[T.BUFFER] == Buffer.MBUF:
            behind += r[T.RUNS]
            if not _move(s, s.mbuf[cu], r, behind, unit == STORE):
                return GROW
        else:
            for v in range(VMACS):
                if r[T.VMACS] >> v & 1:
                    behind += r[T.RUNS]
                    if not _move(s, s.wbuf[cu * VMACS + v], r, behind, False):
                        return GROW
    s.counts[c, unit, MOVED] += 1
    return GO


@device
def _move(s: State, buffer: Array, r: Array, behind: int, outwards: bool) -> bool:
    """Moves the runs of a buffer that are left, those before number ``behind`` of all; False: not
    all of them before the slice ends."""
    words = r[T.WORDS]
    for k in range(r[T.MOVED_RUNS] - behind + r[T.RUNS], r[T.RUNS]):
        if s.moves[0] <= 0:
            return False
        s.moves[0] -= words
        r[T.MOVED_RUNS] += 1
        at = (r[T.MEMORY] + k * r[T.MEMORY_STEP]) // WORD_BYTES
        place = r[T.PLACE] + k * r[T.BUFFER_STEP]
        if outwards:
            for i in range(words):
                s.memory_half[at + i] = buffer[place + i]
        else:
            for i in range(words):
                buffer[place + i] = s.memory_half[at + i]
    return True
