"""Small assembled programs on small machines: what the simulator's tests are made of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tvm_npu.sim.isa.assembler import assemble
from tvm_npu.sim.nmp.machine import NmpMachine, load_nmp_machine, nmp_machine_from_dict
from tvm_npu.sim.nmp.simulator import NmpSimulator
from tvm_npu.sim.nmp.xnmp import NMP_ISA
from tvm_npu.sim.statistics import RunStatistics

BASE = 0x8000_0000
DATA = BASE + 0x1_0000
"""Where the tests keep their data; code starts at BASE."""
DRAM_BYTES = 1 << 18

EXIT = "li a0, 0\nli a7, 93\necall\n"


def small_machine(tles: int = 1, tlts: int = 1, **parts: Mapping[str, Any]) -> NmpMachine:
    """nmp-4x8 with few cores, without instruction cache misses unless asked for."""
    values = load_nmp_machine("nmp-4x8").model_dump()
    values["name"] = "small"
    values["cores"] |= {"tles": tles, "tlts_per_tle": tlts, "instruction_miss_cycles": 0.0}
    for part, changes in parts.items():
        values[part] |= changes
    return nmp_machine_from_dict(values)


def configure(instruction: str, registers: Mapping[str, int]) -> str:
    """Sets configuration registers through t6."""
    return "".join(
        f"li t6, {value}\n{instruction} {name}, t6\n" for name, value in registers.items()
    )


def mac(**registers: int) -> str:
    return configure("nmp_mcfg", registers)


def dma(**registers: int) -> str:
    return configure("nmp_dcfg", registers)


def segments(size: int, count: int = 1, stride: int = 0, element_bytes: int = 1) -> str:
    return dma(
        SEGMENTS=count, SEGMENT_BYTES=size, SEGMENT_STRIDE=stride, ELEMENT_BYTES=element_bytes
    )


def transfer(mnemonic: str, sem: int, memory: str, address: int, offset: int = 0) -> str:
    return f"li t4, {address}\nli t5, {offset}\n{mnemonic} {sem}, {memory}, t4, t5\n"


def wait(sem: int, count: int = 1, level: str = "tlt") -> str:
    return f"li t6, {count}\nnmp_wait {level}, {sem}, t6\n"


def signal(sem: int, count: int = 1, level: str = "tlt") -> str:
    return f"li t6, {count}\nnmp_signal {level}, {sem}, t6\n"


def spin(rounds: int) -> str:
    """Takes 2 * rounds + 1 instructions (rounds below 2048)."""
    label = f"spin_{next(_labels)}"
    return f"li t3, {rounds}\n{label}: addi t3, t3, -1\nbnez t3, {label}\n"


def _counter() -> Any:
    number = 0
    while True:
        number += 1
        yield number


_labels = _counter()

CONV = {
    "IN_ADDRESS": 0, "IN_CHANNELS": 4, "IN_ROWS": 6, "IN_COLUMNS": 6,
    "W_ADDRESS": 0, "W_PITCH": 36, "OUT_ADDRESS": 0, "OUT_CHANNELS": 8, "OUT_ROWS": 4,
    "OUT_COLUMNS": 4, "KERNEL_ROWS": 3, "KERNEL_COLUMNS": 3, "STRIDE_ROWS": 1,
    "STRIDE_COLUMNS": 1, "DILATION_ROWS": 1, "DILATION_COLUMNS": 1, "GROUPS": 1,
    "BIAS_ADDRESS": 0, "ELEMENT_BYTES": 2,
}  # fmt: skip
"""A legal 3x3 convolution of int16."""


def instructions(text: str) -> int:
    """Number of machine instructions of assembly without loops."""
    return len(assemble(text, isa=NMP_ISA))


def simulator(
    text: str,
    machine: NmpMachine | None = None,
    data: Mapping[int, Any] | None = None,
    **options: Any,
) -> NmpSimulator:
    """A loaded simulator; code at BASE, arrays of ``data`` at their addresses."""
    machine = small_machine() if machine is None else machine
    found = NmpSimulator(machine, assemble(text, BASE, isa=NMP_ISA), BASE, DRAM_BYTES, **options)
    for address, array in (data or {}).items():
        found.write(address, np.asarray(array))
    return found


def run(
    text: str,
    machine: NmpMachine | None = None,
    data: Mapping[int, Any] | None = None,
    **options: Any,
) -> tuple[NmpSimulator, RunStatistics]:
    """Runs on all cores; every core must exit with 0."""
    found = simulator(text, machine, data)
    statistics, codes = found.run(BASE, **options)
    assert not any(codes)
    return found, statistics


def cycles(text: str, machine: NmpMachine | None = None, **options: Any) -> float:
    return run(text, machine, **options)[1].cycles


def read(found: NmpSimulator, address: int, shape: Sequence[int] | int, dtype: Any) -> np.ndarray:
    """A copy of an array in DRAM."""
    begin = address - BASE
    size = int(np.prod(shape)) * np.dtype(dtype).itemsize
    return found.dram[begin : begin + size].view(dtype).reshape(shape).copy()
