"""The MAC unit: its configuration, its operands' places, when it is busy.

Values are computed when an operation issues (`convolution`, `vector`); its time passes until
`State.mac_done`. The unit works in order, one operation at a time.
"""

from __future__ import annotations

import numpy as np

from tvm_npu.sim.compiled.spans import product, reach, volume
from tvm_npu.sim.nmp.core import GO, IMM, RD, rs1, spend, trap
from tvm_npu.sim.nmp.decorators import device
from tvm_npu.sim.nmp.filter_words import FILTER_BIAS_BITS, MOST_FILTER_SHIFT
from tvm_npu.sim.nmp.hazards import free_ranges, use_range
from tvm_npu.sim.nmp.recording import record_operation
from tvm_npu.sim.nmp.semaphores import SEM, finish_mac
from tvm_npu.sim.nmp.state import Costs, State
from tvm_npu.sim.nmp.traps import TrapCode as Code
from tvm_npu.sim.nmp.xnmp import Initialise
from tvm_npu.sim.nmp.xnmp import MacRegister as Reg

MB0, MB1, MB2, BIAS = 0, 1, 2, 3
LARGEST_EXTENT = 1 << 20


@device
def nmp_mcfg(s: State, m: Costs, core: int, row: int) -> int:
    s.mac[core, s.decoded[row, RD]] = rs1(s, core, row)
    return GO


@device
def nmp_mcfgi(s: State, m: Costs, core: int, row: int) -> int:
    s.mac[core, s.decoded[row, RD]] = s.decoded[row, IMM]
    return GO


@device
def check_registers(s: State, core: int, first: int, last: int, low: int, high: int) -> bool:
    for register in range(first, last + 1):
        value = s.mac[core, register]
        if value < low or value > high:
            trap(s, core, Code.BAD_CONFIGURATION, value, 0, register, 0)
            return False
    return True


@device
def fits(s: State, m: Costs, core: int, memory: int, begin: int, end: int, size: int) -> bool:
    """Bytes begin..end lie in ``memory``, of ``size`` bytes, and no transfer is using them."""
    if begin < 0 or end > size:
        trap(s, core, Code.TILE_TOO_LARGE, begin, end, size, memory)
        return False
    if not spend(s, core, end - begin):
        return False
    return use_range(s, m, core, memory, begin, end)


@device
def begin_operation(s: State, m: Costs, core: int, row: int) -> bool:
    """The unit works in order: a new operation waits for the one before."""
    if s.decoded[row, SEM] >= m.semaphores:
        trap(s, core, Code.SEMAPHORE, 0, 1, s.decoded[row, SEM], 0)
        return False
    if s.mac_sem[core] >= 0:
        s.time[core] = max(s.time[core], s.mac_done[core])
        finish_mac(s, core)
    free_ranges(s, core)
    return True


@device
def end_operation(s: State, m: Costs, core: int, row: int, beats: float, macs: int) -> int:
    """Books ``beats`` uses of the datapath; completion signals the instruction's semaphore."""
    cycles = beats / m.efficiency + m.mac_setup
    s.mac_done[core] = s.time[core] + cycles
    s.mac_sem[core] = s.decoded[row, SEM]
    layer = s.layer_of[row]
    s.layer_macs[layer, core] += macs
    s.layer_mac_cycles[layer, core] += cycles
    if m.records:
        record_operation(s, m, core, row, s.time[core], s.mac_done[core])
    return GO


@device
def beats_of(elements: int, m: Costs, element_bytes: int) -> int:
    lanes = m.lanes_int16 * 2 // element_bytes
    return (elements + lanes - 1) // lanes


@device
def tile_ok(s: State, m: Costs, core: int) -> bool:
    """IN and OUT tiles of a window operation have sane extents and lie inside MB0 and MB2."""
    r = s.mac[core]
    if not check_registers(s, core, Reg.IN_CHANNELS, Reg.IN_COLUMNS, 1, LARGEST_EXTENT):
        return False
    if not check_registers(s, core, Reg.OUT_CHANNELS, Reg.DILATION_COLUMNS, 1, LARGEST_EXTENT):
        return False
    if not check_registers(s, core, Reg.ELEMENT_BYTES, Reg.ELEMENT_BYTES, 1, 2):
        return False
    rows = (r[Reg.OUT_ROWS] - 1) * r[Reg.STRIDE_ROWS] + 1
    rows += (r[Reg.KERNEL_ROWS] - 1) * r[Reg.DILATION_ROWS]
    if rows > r[Reg.IN_ROWS]:
        trap(s, core, Code.BAD_CONFIGURATION, r[Reg.IN_ROWS], rows, Reg.IN_ROWS, 0)
        return False
    columns = (r[Reg.OUT_COLUMNS] - 1) * r[Reg.STRIDE_COLUMNS] + 1
    columns += (r[Reg.KERNEL_COLUMNS] - 1) * r[Reg.DILATION_COLUMNS]
    if columns > r[Reg.IN_COLUMNS]:
        trap(s, core, Code.BAD_CONFIGURATION, r[Reg.IN_COLUMNS], columns, Reg.IN_COLUMNS, 0)
        return False
    return out_ok(s, m, core, volume(r[Reg.OUT_CHANNELS], r[Reg.OUT_ROWS], r[Reg.OUT_COLUMNS]))


@device
def out_ok(s: State, m: Costs, core: int, elements: int) -> bool:
    size = s.mac[core, Reg.ELEMENT_BYTES]
    begin = s.mac[core, Reg.OUT_ADDRESS] * size
    return fits(s, m, core, MB2, begin, begin + product(elements, size), m.mb2_bytes)


@device
def in_ok(s: State, m: Costs, core: int, memory: int, elements: int) -> bool:
    """Operand of ``elements`` elements at IN_ADDRESS (MB0) or W_ADDRESS (MB1)."""
    size = s.mac[core, Reg.ELEMENT_BYTES]
    register = Reg.IN_ADDRESS if memory == MB0 else Reg.W_ADDRESS
    begin = s.mac[core, register]
    if begin % size:
        trap(s, core, Code.BAD_CONFIGURATION, begin, 0, register, 0)
        return False
    end = begin + product(elements, size)
    return fits(s, m, core, memory, begin, end, m.mb0_bytes if memory == MB0 else m.mb1_bytes)


@device
def filters_ok(
    s: State, m: Costs, core: int, row: int, filters: int, depth: int, initialise: int
) -> bool:
    """Filters of ``depth`` elements in MB1, not one in another, and their biases if used."""
    pitch = s.mac[core, Reg.W_PITCH]
    if pitch < 0 or (filters > 1 and pitch < depth):
        trap(s, core, Code.BAD_CONFIGURATION, pitch, 0, Reg.W_PITCH, 0)
        return False
    if not in_ok(s, m, core, MB1, reach(depth, filters, pitch)):
        return False
    if initialise == Initialise.FILTER:
        return filter_words_ok(s, m, core, row, filters)
    return initialise != Initialise.BIAS or biases_ok(s, m, core, filters)


@device
def biases_ok(s: State, m: Costs, core: int, filters: int) -> bool:
    """Biases or words of ``filters`` filters lie in the bias buffer."""
    begin = s.mac[core, Reg.BIAS_ADDRESS] * 4
    return fits(s, m, core, BIAS, begin, begin + filters * 4, m.bias_bytes)


@device
def filter_words_ok(s: State, m: Costs, core: int, row: int, filters: int) -> bool:
    """The machine has filter words, and those of ``filters`` filters lie in the bias buffer."""
    if not m.has_filter_words:
        trap(s, core, Code.ILLEGAL_INSTRUCTION, np.int64(s.words[row]), 0, 0, 0)
        return False
    return biases_ok(s, m, core, filters)


@device
def scales_ok(s: State, m: Costs, core: int, row: int) -> bool:
    """The machine multiplies and subtracts zero points, and elements are of int8."""
    if not m.has_scales:
        trap(s, core, Code.ILLEGAL_INSTRUCTION, np.int64(s.words[row]), 0, 0, 0)
        return False
    return check_registers(s, core, Reg.ELEMENT_BYTES, Reg.ELEMENT_BYTES, 1, 1)


@device
def zero_point_ok(s: State, m: Costs, core: int, row: int) -> bool:
    """`scales_ok`, and the zero point of filters is one of their elements' values."""
    if not scales_ok(s, m, core, row):
        return False
    return check_registers(s, core, Reg.SHIFT_B, Reg.SHIFT_B, -128, 127)


@device
def filter_bias(s: State, core: int, index: int) -> int:
    """The bias in a filter word of the bias buffer."""
    word = np.int64(s.bias_word[core, index])
    return (word << (64 - FILTER_BIAS_BITS)) >> (64 - FILTER_BIAS_BITS)


@device
def filter_shift(s: State, core: int, channel: int) -> int:
    """What a channel's shift is beyond that of the layer."""
    word = np.int64(s.bias_word[core, s.mac[core, Reg.BIAS_ADDRESS] + channel])
    return (word >> FILTER_BIAS_BITS) & MOST_FILTER_SHIFT
