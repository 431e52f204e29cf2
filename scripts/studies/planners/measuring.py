"""Networks under every planner on every machine, simulated and compared with the reference."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from studies.shared.bench_models import cases
from studies.shared.networks import Network, prepare_model
from tvm_npu.codegen.compile import compile_fixed
from tvm_npu.codegen.errors import CodegenError
from tvm_npu.codegen.plan import planner
from tvm_npu.runtime.session import Session
from tvm_npu.sim.description import MachineDescription
from tvm_npu.sim.errors import SimError
from tvm_npu.sim.making_code import Stopwatch


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


@dataclass(frozen=True)
class LayerRow:
    """One layer of a `Row`: cycles of its machine from the end of the layer before to its own.
    ``predicted_cycles`` None: nobody says."""

    model: str
    machine: str
    planner: str
    layer: str
    macs: int
    simulated_cycles: float
    predicted_cycles: float | None


@dataclass(frozen=True)
class Outcome:
    """A combination; no layers where it does not run."""

    row: Row
    layers: tuple[LayerRow, ...] = ()


@lru_cache(maxsize=1)
def _model(name: str) -> Any:
    return cases()[name].model()


@lru_cache(maxsize=1)
def _network(model: str, machine: MachineDescription) -> Network:
    """Of the model and machine that are at work: networks are large."""
    return prepare_model(model, _model(model), machine, machine.default_precision)


def measure(model: str, machine: MachineDescription, name: str) -> Outcome:
    """A combination that does not run has its error in its row."""
    return _outcome(_network(model, machine), machine, name)


def _outcome(network: Network, machine: MachineDescription, name: str) -> Outcome:
    layers: list[LayerRow] = []
    cycles = predicted = 0.0
    wrong = moved = 0
    chosen, precision = planner(name), machine.default_precision
    spent = {"compile": 0.0, "simulate": 0.0}
    watch = Stopwatch(spent)
    try:
        for region in network.regions:
            with watch.part("compile"):
                program = compile_fixed(region.fixed, machine, chosen)
                session = Session(program)
            with watch.part("simulate"):
                outputs = session.run_fixed(region.inputs)
            for got, right in zip(outputs, region.expected, strict=True):
                wrong += int(np.count_nonzero(got != right)) + abs(got.size - right.size)
            run = session.statistics
            assert run is not None
            cycles += run.cycles
            predicted += sum(entry.predicted_cycles or 0.0 for entry in program.layers)
            moved += sum(layer.moved_bytes for layer in run.layers)
            layers += [
                LayerRow(
                    network.model, machine.name, name, entry.name, found.macs, found.cycles,
                    entry.predicted_cycles,
                )
                for entry, found in zip(program.layers, run.layers, strict=True)
            ]  # fmt: skip
    except (CodegenError, SimError) as error:
        text = " ".join(str(error).split())
        row = Row(
            network.model, machine.name, name, precision, None, None, None, None,
            spent["compile"], spent["simulate"], f"{type(error).__name__}: {text}",
        )  # fmt: skip
        return Outcome(row)
    mhz = machine.frequency_mhz
    row = Row(network.model, machine.name, name, precision, wrong, cycles / mhz,
              predicted / mhz, moved, spent["compile"], spent["simulate"])  # fmt: skip
    return Outcome(row, tuple(layers))
