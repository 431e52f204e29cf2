"""What vector instructions compute: read when they start, written when they are complete.

A trace is one vector operation of the host: the vMACs of a CU take their products from the same
words of MBuf.
"""

from __future__ import annotations

import numpy as np

from tvm_npu.sim.compiled import device
from tvm_npu.sim.snowflake.checks import GO, lowest, trap
from tvm_npu.sim.snowflake.columns import QUEUE, V
from tvm_npu.sim.snowflake.isa import (
    ACCUMULATOR_BITS,
    LANES,
    SUM_WORDS,
    VMACS,
    Finish,
    MacMode,
    Preload,
)
from tvm_npu.sim.snowflake.products import dot, lanes_of_line, lanes_of_word
from tvm_npu.sim.snowflake.state import Array, Costs, State
from tvm_npu.sim.snowflake.traps import SnowflakeTrapCode as Code
from tvm_npu.sim.snowflake.vector_issue import MAX, VMOV

SUM, INITIAL, ADDEND = 0, 1, 2
"""First index of `State.coop` and `State.indp`."""

_LIMIT = 1 << (ACCUMULATOR_BITS - 1)
_DIVIDABLE = 1 << 61
_LOWEST, _HIGHEST = -(1 << 15), (1 << 15) - 1


@device
def start_vector(s: State, m: Costs, c: int, number: int) -> int:
    """Reads and computes."""
    slot = number % QUEUE
    r = s.vector[c, slot]
    if r[V.KIND] == VMOV:
        return _preload(s, m, c, r)
    if r[V.KIND] == MAX or r[V.MODE] > MacMode.LANE:
        for u in range(m.cus):
            if r[V.CUS] >> u & 1:
                _stream(s, c * m.cus + u, s.staged[c, slot, u], r)
        return GO
    for u in range(m.cus):
        if r[V.CUS] >> u & 1:
            if r[V.OPENS] >> u & 1:
                _open(s, c * m.cus + u, r[V.MODE] == MacMode.COOP)
            _accumulate(s, c * m.cus + u, u, r)
            if _overflows(s, m, c, u, r):
                return trap(s, c, r[V.ROW], Code.SUM_OVERFLOW, u, ACCUMULATOR_BITS, 0)
    if r[V.FINISH] != Finish.KEEP:
        return _finish(s, m, c, slot)
    return GO


@device
def complete_vector(s: State, m: Costs, c: int, number: int) -> None:
    """Writes what was computed."""
    slot = number % QUEUE
    r = s.vector[c, slot]
    words = r[V.WRITE_END] - r[V.WRITE]
    if words == 0:
        return
    out = r[V.WRITE]
    if r[V.KIND] != MAX and r[V.MODE] == MacMode.COOP:
        each = VMACS * (words // r[V.OUTPUTS])  # words of a CU's results
        for u in range(m.cus):
            if r[V.CUS] >> u & 1:
                begin, end = each * u, min(each * (u + 1), words)
                for target in range(m.cus):
                    if r[V.WRITE_MASK] >> target & 1:
                        _copy(s.staged[c, slot, 0], s.mbuf[c * m.cus + target], out, begin, end)
        return
    for u in range(m.cus):
        if r[V.WRITE_MASK] >> u & 1:
            _copy(s.staged[c, slot, u], s.mbuf[c * m.cus + u], out, 0, words)


@device
def _copy(source: Array, target: Array, out: int, begin: int, end: int) -> None:
    for i in range(begin, end):
        target[out + i] = source[i]


@device
def requantized(value: int, shift: int, low: int, high: int) -> int:
    """``clip(saturate(floor((value + half) >> shift)), low, high)``; no sum leaves 64 bits."""
    if shift > 0:
        value = ((value >> (shift - 1)) + 1) >> 1
    elif shift < 0:
        value = min(max(value, _LOWEST), _HIGHEST) << -shift
    value = min(max(value, _LOWEST), _HIGHEST)
    return min(max(value, low), high)


@device
def _int32(buffer: Array, at: int) -> int:
    return np.int64(buffer[at]) & 0xFFFF | np.int64(buffer[at + 1]) << 16


@device
def _int48(buffer: Array, at: int) -> int:
    low = np.int64(buffer[at]) & 0xFFFF | (np.int64(buffer[at + 1]) & 0xFFFF) << 16
    return low | np.int64(buffer[at + 2]) << 32


@device
def _preload(s: State, m: Costs, c: int, r: Array) -> int:
    coop, a = r[V.FINISH] == 0, r[V.A]
    source = c * m.cus + (lowest(r[V.TARGET]) if coop else 0)
    for u in range(m.cus):
        if r[V.CUS] >> u & 1 == 0:
            continue
        cu = c * m.cus + u
        first = VMACS * u if coop else 0
        count = min(VMACS, r[V.OUTPUTS] - first) if coop else r[V.OUTPUTS]
        values = s.coop[:, cu] if coop else s.indp[:, cu]
        words = s.mbuf[source if coop else cu]
        for i in range(count):
            if r[V.MODE] == Preload.BIAS:
                vmac = i if coop else i // LANES
                at = a if coop else a + 2 * (i % LANES)
                values[INITIAL, i] += _int32(s.wbuf[cu * VMACS + vmac], at)
            elif r[V.MODE] == Preload.SUMS:
                values[INITIAL, i] += _int48(words, a + SUM_WORDS * (first + i))
            else:
                values[ADDEND, i] = words[a + first + i]
            if values[INITIAL, i] >= _LIMIT or values[INITIAL, i] < -_LIMIT:
                return trap(s, c, r[V.ROW], Code.SUM_OVERFLOW, u, ACCUMULATOR_BITS, 0)
    return GO


@device
def _open(s: State, cu: int, coop: bool) -> None:
    """New sums take over what was brought for them."""
    values = s.coop[:, cu] if coop else s.indp[:, cu]
    active = s.active[0 if coop else 1, cu]
    for i in range(values.shape[1]):
        values[SUM, i] = values[INITIAL, i]
        values[INITIAL, i] = 0
        active[i] = values[ADDEND, i]
        values[ADDEND, i] = 0


@device
def _accumulate(s: State, cu: int, u: int, r: Array) -> None:
    maps, a, b, length = s.mbuf[cu], r[V.A], r[V.B], r[V.LENGTH]
    weights = s.wbuf[cu * VMACS : (cu + 1) * VMACS]
    if r[V.MODE] == MacMode.COOP:
        dot(maps, weights, s.coop[SUM, cu], min(VMACS, r[V.OUTPUTS] - VMACS * u), a, b, length)
        return
    sums, step = s.indp[SUM, cu], r[V.LANE_STEP]
    for v in range((r[V.OUTPUTS] + LANES - 1) // LANES):
        first = v * LANES
        count = min(LANES, r[V.OUTPUTS] - first)
        if r[V.MODE] == MacMode.INDP:
            lanes_of_word(maps, a, 1, weights, v, b, length, sums, first, count)
        elif count == LANES:
            lanes_of_line(maps, a + first, step, weights, v, b, length, sums, first, count)
        else:  # not all words of the line are in MBuf
            for t in range(length):
                for i in range(count):
                    word = np.int64(maps[a + t * step + first + i])
                    sums[first + i] += word * np.int64(weights[v, b + LANES * t + i])


@device
def _overflows(s: State, m: Costs, c: int, u: int, r: Array) -> bool:
    """A mac adds less than 2**46 to a sum: what passed the last check cannot have wrapped."""
    cu = c * m.cus + u
    coop = r[V.MODE] == MacMode.COOP
    sums = s.coop[SUM, cu] if coop else s.indp[SUM, cu]
    count = min(VMACS, r[V.OUTPUTS] - VMACS * u) if coop else r[V.OUTPUTS]
    for i in range(count):
        if sums[i] >= _LIMIT or sums[i] < -_LIMIT:
            return True
    return False


@device
def _finish(s: State, m: Costs, c: int, slot: int) -> int:
    """Results of sums, into the place where they wait for the write port."""
    r = s.vector[c, slot]
    coop = r[V.MODE] == MacMode.COOP
    for u in range(m.cus):
        if r[V.CUS] >> u & 1 == 0:
            continue
        cu = c * m.cus + u
        sums = s.coop[SUM, cu] if coop else s.indp[SUM, cu]
        residuals = s.active[0 if coop else 1, cu]
        out = s.staged[c, slot, 0 if coop else u]
        first = VMACS * u if coop else 0
        count = min(VMACS, r[V.OUTPUTS] - first) if coop else r[V.OUTPUTS]
        for i in range(count):
            if r[V.FINISH] == Finish.RESULT:
                value = (sums[i] << r[V.SUM_SHIFT]) + (residuals[i] << r[V.RESIDUAL_SHIFT])
                if r[V.DIVISOR] > 1:
                    if value >= _DIVIDABLE or value < -_DIVIDABLE:
                        return trap(s, c, r[V.ROW], Code.SUM_OVERFLOW, u, 62, 0)
                    value = (2 * value + r[V.DIVISOR]) // (2 * r[V.DIVISOR])
                out[first + i] = requantized(value, r[V.SHIFT], r[V.LOW], r[V.HIGH])
            else:
                for word in range(SUM_WORDS):
                    out[SUM_WORDS * (first + i) + word] = _low_word(sums[i] >> 16 * word)
    return GO


@device
def _low_word(value: int) -> int:
    return ((value + 0x8000) & 0xFFFF) - 0x8000


@device
def _stream(s: State, cu: int, out: Array, r: Array) -> None:
    maps, a, b, length, mode = s.mbuf[cu], r[V.A], r[V.B], r[V.LENGTH], r[V.MODE]
    shift, low, high = r[V.SHIFT], r[V.LOW], r[V.HIGH]
    if r[V.KIND] == MAX:
        for i in range(length):
            out[i] = min(max(max(maps[a + i], maps[b + i]), low), high)
    elif mode == MacMode.MULTIPLY:
        for i in range(length):
            out[i] = requantized(np.int64(maps[a + i]) * np.int64(maps[b + i]), shift, low, high)
    elif mode == MacMode.ADD:
        left, right = r[V.SHIFT_A], r[V.SHIFT_B]
        for i in range(length):
            value = (np.int64(maps[a + i]) << left) + (np.int64(maps[b + i]) << right)
            out[i] = requantized(value, shift, low, high)
    elif mode == MacMode.SCALE:
        for i in range(length):
            out[i] = requantized(np.int64(maps[a + i]), shift, low, high)
    else:
        for i in range(length):
            table = s.wbuf[cu * VMACS + i % VMACS]
            out[i] = _look_up(table, b, np.int64(maps[a + i]), r)


@device
def _look_up(table: Array, b: int, argument: int, r: Array) -> int:
    bits = r[V.TABLE_BITS]
    x = requantized(argument, r[V.TABLE_SHIFT], _LOWEST, _HIGHEST) - _LOWEST
    at = b + (x >> bits)
    value = np.int64(table[at])
    if bits > 0:
        rise = (np.int64(table[at + 1]) - value) * (x & ((1 << bits) - 1))
        value += (rise + (1 << (bits - 1))) >> bits
    return min(max(value, r[V.LOW]), r[V.HIGH])
