"""Energies of layers and runs."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import pytest

from tests.report.small_runs import recorded
from tvm_npu.report.energy import layer_energy_uj, run_energy_uj
from tvm_npu.sim.machine_parts import Energy

ENERGY = Energy(
    int16_mac_pj=2.0, int8_mac_pj=0.5, instruction_pj=3.0, memory_byte_pj={"dram": 100.0}
)


def test_every_layer_of_a_run_counts_at_its_own_precision() -> None:
    run = recorded("nmp")
    (measured,) = run.runs[:1]
    first, *others = run.session.program.layers
    entries = [replace(first, precision="int8"), *others]
    session = SimpleNamespace(
        machine=run.session.machine.model_copy(update={"energy": ENERGY}),
        program=SimpleNamespace(layers=entries),
    )
    moved = sum(measured.loaded_bytes.values()) + sum(measured.stored_bytes.values())
    macs_pj = 0.5 * measured.layers[0].macs + 2.0 * sum(one.macs for one in measured.layers[1:])
    wanted_pj = macs_pj + 3.0 * measured.instructions + 100.0 * moved
    assert measured.layers[0].macs > 0
    assert run_energy_uj(measured, session) == pytest.approx(wanted_pj * 1e-6)
    layer = measured.layers[0]
    int16_uj = layer_energy_uj(layer, ENERGY, "int16")
    assert int16_uj - layer_energy_uj(layer, ENERGY, "int8") == pytest.approx(1.5e-6 * layer.macs)
    session.machine = run.session.machine
    assert run_energy_uj(measured, session) is None
