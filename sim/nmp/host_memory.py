"""Memory that the NMP's simulator takes of the host."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tvm_npu.sim.nmp.columns import COLUMN_BUFFERS, SCRATCH_ELEMENTS
from tvm_npu.sim.nmp.machine import NmpMachine
from tvm_npu.sim.nmp.xnmp import NMP_ISA

COLUMNS_OF_INPUT = 32
"""Elements of an im2col buffer for each byte of MB0: kernels of 5 x 5 with a stride of 1 take 25.
Pages of a buffer are touched 2 MB at once, so no smaller ones would take less."""
_CONVOLUTIONS = ("nmp_conv2d", "nmp_conv2dz")
_ACCUMULATOR_BYTES = 8
_FLOAT_BYTES = 8
_TAG_BYTES = 8


def column_elements(machine: NmpMachine) -> int:
    """float64 elements of an im2col buffer; one of a single output position always fits."""
    memories = machine.memories
    return max(min(SCRATCH_ELEMENTS, COLUMNS_OF_INPUT * memories.mb0_bytes), memories.mb1_bytes)


def memory_bytes(machine: NmpMachine) -> int:
    """Scratchpads of all cores, an accumulator for each byte of MB2, operands as floating point,
    and which lines instruction caches hold."""
    memories = machine.memories
    core = memories.mb0_bytes + memories.mb1_bytes + memories.bias_bytes
    core += _ACCUMULATOR_BYTES * memories.mb2_bytes
    cores = machine.cores
    lines = cores.tles * (cores.instruction_cache_bytes // cores.instruction_line_bytes)
    operands = _FLOAT_BYTES * (memories.mb1_bytes + memories.mb2_bytes)
    return core * machine.core_count + _TAG_BYTES * lines + operands


def column_bytes(machine: NmpMachine, words: NDArray[np.uint32], cores: int) -> int:
    """im2col buffers that ``cores`` cores can fill: none where no word is a convolution."""
    rows = (NMP_ISA.by_mnemonic[name] for name in _CONVOLUTIONS)
    if not any(((words & row.mask) == row.match).any() for row in rows):
        return 0
    tlts = machine.cores.tlts_per_tle
    whole, rest = divmod(cores, tlts)
    buffers = whole * min(tlts, COLUMN_BUFFERS) + min(rest, COLUMN_BUFFERS)
    return _FLOAT_BYTES * column_elements(machine) * buffers
