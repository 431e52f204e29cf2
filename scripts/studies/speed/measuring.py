"""CPU time of planning, from the first plan of a process to whole networks, and of simulation."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from studies.harness.errors import StudyError
from studies.shared.networks import Network, prepare
from studies.shared.simulation import check_values
from tvm_npu.codegen.compile import generate, plan_graph
from tvm_npu.codegen.plan import DEFAULT_PLANNER, planner
from tvm_npu.codegen.plan.layers import LayerPlanner
from tvm_npu.runtime.session import Session
from tvm_npu.sim.description import MachineDescription
from tvm_npu.sim.isa.assembler import assemble
from tvm_npu.sim.machine_file import load_machine
from tvm_npu.sim.nmp.machine import load_nmp_machine
from tvm_npu.sim.nmp.simulator import NmpSimulator
from tvm_npu.sim.nmp.xnmp import NMP_ISA

SCRIPTS = Path(__file__).resolve().parents[2]
LAYER_PLANNER = "exact-layers"
WARMS = "lenet"
"""The network that is planned first, so that the planner's machine code is loaded."""
INSTRUCTIONS = {"addi": "addi t2, t2, 1", "load": "lw t2, {}(t0)", "store": "sw t2, {}(t0)"}
UNROLLED, TURNS = 16, 200_000
DATA_OFFSET = 0x1_0000


@dataclass(frozen=True)
class Row:
    """CPU time of one thread, in ``unit`` (s or ns): the ``first`` time in a process that has
    planned something else (or in the first process), and ``median`` and ``least`` of ``runs`` times
    behind it. ``limit`` is what the project allows the median, on an idle computer."""

    what: str
    subject: str
    machine: str
    unit: str
    runs: int
    first: float
    median: float
    least: float
    limit: float | None

    @property
    def is_over(self) -> bool:
        return self.limit is not None and self.median > self.limit


def row_of(
    what: str, subject: str, machine: str, times: list[float], limit: float | None,
    unit: str = "s",
) -> Row:  # fmt: skip
    """Of the first time and all later ones."""
    later = times[1:] or times
    return Row(
        what, subject, machine, unit, len(later), times[0], statistics.median(later), min(later),
        limit,
    )  # fmt: skip


def times_of(work: Callable[[], object], runs: int) -> list[float]:
    """CPU seconds of this thread, of one time and of ``runs`` more."""
    times = []
    for _ in range(1 + runs):
        begin = time.thread_time()
        work()
        times.append(time.thread_time() - begin)
    return times


@lru_cache(maxsize=1)
def prepared(model: str, machine_name: str) -> Network:
    machine = load_machine(machine_name)
    return prepare(model, machine, machine.default_precision)


def plan_network(network: Network, machine: MachineDescription, name: str) -> None:
    """All regions, by a planner that has been asked nothing before."""
    for region in network.regions:
        plan_graph(region.fixed, LayerPlanner(region.fixed.precision, machine, planner(name)))


def planning(
    what: str, model: str, machine_name: str, name: str, limit_s: float, runs: int
) -> list[Row]:
    """Of a whole network by the planner ``name``."""
    machine = load_machine(machine_name)
    plan_network(prepared(WARMS, machine_name), machine, name)
    network = prepared(model, machine_name)
    times = times_of(lambda: plan_network(network, machine, name), runs)
    return [row_of(what, model, machine_name, times, limit_s)]


def first_plan(machine_name: str, limit_s: float, runs: int) -> list[Row]:
    """Of processes of their own, the first of which may make bytecode and machine code: importing
    numba, and the first plan behind it."""
    paths = [str(SCRIPTS.parent), str(SCRIPTS), os.environ.get("PYTHONPATH", "")]
    environment = dict(os.environ, PYTHONPATH=os.pathsep.join(path for path in paths if path))
    found = []
    for _ in range(1 + runs):
        done = subprocess.run(
            [sys.executable, "-W", "ignore", "-m", "studies.speed.first_plan", machine_name],
            env=environment, capture_output=True, text=True,
        )  # fmt: skip
        if done.returncode:
            last = done.stderr.strip().rpartition("\n")[2]
            raise StudyError(f"first plan on {machine_name!r}: exit code {done.returncode}: {last}")
        found.append([float(text) for text in done.stdout.split()])
    numba, plan = ([one[at] for one in found] for at in range(2))
    return [
        row_of("import", "numba", machine_name, numba, None),
        row_of("first plan", DEFAULT_PLANNER, machine_name, plan, limit_s),
    ]


def simulation(model: str, machine_name: str, limit_s: float | None, runs: int) -> list[Row]:
    """Values and cycles of one image, which are checked against the reference's."""
    network = prepared(model, machine_name)
    machine = load_machine(machine_name)
    sessions = [Session(generate(one.fixed, machine).program()) for one in network.regions]

    def run() -> None:
        for region, session in zip(network.regions, sessions, strict=True):
            outputs = session.run_fixed(region.inputs)
            check_values(model, DEFAULT_PLANNER, region, outputs)

    return [row_of("simulation", model, machine_name, times_of(run, runs), limit_s)]


def instruction(name: str, machine_name: str, limit_ns: float | None, runs: int) -> list[Row]:
    """Of one of `INSTRUCTIONS` in a loop of `UNROLLED` of them, whose own two instructions are part
    of the figure."""
    machine = load_nmp_machine(machine_name)
    base = machine.dram.base_address
    lines = [INSTRUCTIONS[name].format(4 * at) for at in range(UNROLLED)]
    text = "\n".join(
        [
            f"li t0, {base + DATA_OFFSET}", f"li t1, {TURNS}", "again:", *lines,
            "addi t1, t1, -1", "bne t1, zero, again", "li a0, 0", "li a7, 93", "ecall",
        ]
    )  # fmt: skip
    simulator = NmpSimulator(machine, assemble(text, base, isa=NMP_ISA), base, 2 * DATA_OFFSET)
    times = times_of(lambda: simulator.run(base, cores=1), runs)
    each = [seconds * 1e9 / (UNROLLED * TURNS) for seconds in times]
    return [row_of("instruction", name, machine_name, each, limit_ns, "ns")]
