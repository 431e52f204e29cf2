"""Energy of a layer or a run: counts times what the machine file says that each costs."""

from __future__ import annotations

from tvm_npu.runtime.session import Session
from tvm_npu.sim.machine_parts import Energy, Precision
from tvm_npu.sim.statistics import RunStatistics, Statistics

PJ_PER_UJ = 1e6


def layer_energy_uj(measured: Statistics, energy: Energy, precision: Precision) -> float:
    """Microjoules of the multiply-accumulates, instructions and transfers that were counted. What
    the file leaves out costs nothing; operands that units read from scratchpads belong to the
    multiply-accumulate."""
    return (_macs_pj(measured, energy, precision) + _rest_pj(measured, energy)) / PJ_PER_UJ


def run_energy_uj(measured: RunStatistics, session: Session) -> float | None:
    """The same of whole runs of ``session``, each layer at its own precision. None where the
    machine file does not say."""
    energy = session.machine.energy
    if energy is None:
        return None
    macs_pj = sum(
        _macs_pj(layer, energy, entry.precision)
        for layer, entry in zip(measured.layers, session.program.layers, strict=True)
    )
    return (macs_pj + _rest_pj(measured, energy)) / PJ_PER_UJ


def _macs_pj(measured: Statistics, energy: Energy, precision: Precision) -> float:
    mac_pj = energy.int8_mac_pj if precision == "int8" else energy.int16_mac_pj
    return mac_pj * measured.macs


def _rest_pj(measured: Statistics, energy: Energy) -> float:
    total_pj = energy.instruction_pj * measured.instructions
    for part, cost_pj in energy.memory_byte_pj.items():
        moved = measured.bytes_by_memory.get(part)
        if moved is not None:
            total_pj += cost_pj * (moved.read_bytes + moved.written_bytes)
    for link, cost_pj in energy.link_byte_pj.items():
        total_pj += cost_pj * sum(measured.bytes_over(link).values())
    return total_pj
