"""Energy of a layer or a run: counts times what the machine file says that each costs."""

from __future__ import annotations

from tvm_npu.sim.machine_parts import Energy, Precision
from tvm_npu.sim.statistics import Statistics

PJ_PER_UJ = 1e6


def energy_uj(measured: Statistics, energy: Energy, precision: Precision) -> float:
    """Microjoules of the multiply-accumulates, instructions and transfers that were counted. What
    the file leaves out costs nothing; operands that units read from scratchpads belong to the
    multiply-accumulate."""
    mac_pj = energy.int8_mac_pj if precision == "int8" else energy.int16_mac_pj
    total_pj = mac_pj * measured.macs + energy.instruction_pj * measured.instructions
    for part, cost_pj in energy.memory_byte_pj.items():
        moved = measured.bytes_by_memory.get(part)
        if moved is not None:
            total_pj += cost_pj * (moved.read_bytes + moved.written_bytes)
    for link, cost_pj in energy.link_byte_pj.items():
        total_pj += cost_pj * sum(measured.bytes_over(link).values())
    return total_pj / PJ_PER_UJ
