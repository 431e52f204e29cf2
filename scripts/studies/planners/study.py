"""Networks under every planner on every machine, simulated and compared with the reference."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from studies.main.cases import cases
from studies.tso.networks import Network, prepare_model
from tvm_npu.cli.terminal import Steps
from tvm_npu.codegen.compile import compile_fixed
from tvm_npu.codegen.errors import CodegenError
from tvm_npu.codegen.plan import planner
from tvm_npu.runtime.session import Session
from tvm_npu.sim.description import MachineDescription
from tvm_npu.sim.errors import SimError


@dataclass(frozen=True)
class Row:
    """One network on one machine under one planner, as in the JSON file. ``error``: why there is no
    time; ``bit_mismatches`` counts elements of all regions' outputs that differ from the
    reference's."""

    model: str
    machine: str
    planner: str
    precision: str
    bit_mismatches: int | None
    simulated_us: float | None
    predicted_us: float | None
    offchip_bytes: int | None
    compile_s: float
    simulate_s: float
    error: str = ""


def run_study(
    models: Sequence[str],
    machines: Sequence[MachineDescription],
    planners: Sequence[str],
    steps: Steps,
) -> list[Row]:
    """One row a combination, in the order of models, machines, planners; a combination that does
    not run has its error in its row."""
    steps.expect(len(models) * len(machines) * (1 + len(planners)))
    known, rows = cases(), []
    for model in models:
        proto = known[model].model()
        for machine in machines:
            steps.begin(f"{model}, {machine.name}: quantizing")
            network = prepare_model(model, proto, machine, machine.default_precision)
            steps.done()
            for name in planners:
                steps.begin(f"{model}, {machine.name}: {name}")
                rows.append(_row(network, machine, name))
                steps.done()
    return rows


def _row(network: Network, machine: MachineDescription, name: str) -> Row:
    cycles = predicted = compile_s = simulate_s = 0.0
    wrong = moved = 0
    chosen, precision = planner(name), machine.default_precision
    try:
        for region in network.regions:
            begin = time.perf_counter()
            program = compile_fixed(region.fixed, machine, chosen)
            session = Session(program)
            compiled = time.perf_counter()
            outputs = session.run_fixed(region.inputs)
            simulate_s += time.perf_counter() - compiled
            compile_s += compiled - begin
            for got, right in zip(outputs, region.expected, strict=True):
                wrong += int(np.count_nonzero(got != right)) + abs(got.size - right.size)
            run = session.statistics
            assert run is not None
            cycles += run.cycles
            predicted += sum(entry.predicted_cycles or 0.0 for entry in program.layers)
            moved += sum(
                sum(layer.loaded_bytes.values()) + sum(layer.stored_bytes.values())
                for layer in run.layers
            )
    except (CodegenError, SimError) as error:
        text = " ".join(str(error).split())
        return Row(network.model, machine.name, name, precision, None, None, None, None,
                   compile_s, simulate_s, f"{type(error).__name__}: {text}")  # fmt: skip
    mhz = machine.frequency_mhz
    return Row(network.model, machine.name, name, precision, wrong, cycles / mhz,
               predicted / mhz, moved, compile_s, simulate_s)  # fmt: skip
