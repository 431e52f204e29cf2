"""CPU time of planning, from the first plan of a process to whole networks, and of simulation."""

from __future__ import annotations

import pickle
import statistics
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from studies.harness.errors import StudyError
from studies.harness.processes import module_command, module_environment
from studies.shared.networks import fixed_regions, prepare
from studies.shared.simulation import check_values
from tvm_npu.codegen.compile import generate
from tvm_npu.codegen.graph import FixedGraph
from tvm_npu.codegen.plan import DEFAULT_PLANNER
from tvm_npu.codegen.plan.problem import ConvProblem
from tvm_npu.runtime.session import Session
from tvm_npu.sim.description import MachineDescription
from tvm_npu.sim.isa.assembler import assemble
from tvm_npu.sim.machine_file import load_machine
from tvm_npu.sim.machine_parts import ELEMENT_BYTES
from tvm_npu.sim.nmp.machine import load_nmp_machine
from tvm_npu.sim.nmp.simulator import NmpSimulator
from tvm_npu.sim.nmp.xnmp import NMP_ISA
from tvm_npu.tuning.single_layer import single_layer

INSTRUCTIONS = {"addi": "addi t2, t2, 1", "load": "lw t2, {}(t0)", "store": "sw t2, {}(t0)"}
UNROLLED, TURNS = 16, 200_000
DATA_OFFSET = 0x1_0000


@dataclass(frozen=True)
class Row:
    """CPU time of one thread, in ``unit`` (s or ns): the ``first`` time, which may make machine
    code, and ``median`` and ``least`` of ``runs`` times behind it; planning is timed in processes
    of their own. ``limit`` is what the project allows the median, on an idle computer."""

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
    what: str, subject: str, machine: str, times: Sequence[float], limit: float | None,
    unit: str = "s",
) -> Row:  # fmt: skip
    """Of the first time and all later ones."""
    later = times[1:]
    return Row(
        what, subject, machine, unit, len(later), times[0], statistics.median(later), min(later),
        limit,
    )  # fmt: skip


def first_plan(machine_name: str, limit_s: float, runs: int, scratch: Path) -> list[Row]:
    """Importing numba, and the first plan of a process behind that, of `one_layer`."""
    files = [_layer_file(load_machine(machine_name), scratch)]
    found = planned_apart(machine_name, DEFAULT_PLANNER, files, runs)
    return [
        row_of("import", "numba", machine_name, [one[0] for one in found], None),
        row_of("first plan", DEFAULT_PLANNER, machine_name, [one[1] for one in found], limit_s),
    ]


def _layer_file(machine: MachineDescription, scratch: Path) -> Path:
    file = scratch / "layer.pickle"
    file.write_bytes(pickle.dumps([one_layer(machine)]))
    return file


def one_layer(machine: MachineDescription) -> FixedGraph:
    """ResNet-18's first layer behind the pool."""
    problem = ConvProblem(
        filters=64, channels=64, groups=1, rows=56, columns=56, in_rows=56, in_columns=56,
        kernel=(3, 3), stride=(1, 1), dilation=(1, 1), padding=(1, 1, 1, 1),
        element_bytes=ELEMENT_BYTES[machine.default_precision],
    )  # fmt: skip
    return single_layer(problem)


def planning(
    what: str, model: str, machine_name: str, name: str, limit_s: float, runs: int, scratch: Path
) -> list[Row]:
    """Of a whole network by the planner ``name``, in processes that have planned `one_layer`."""
    machine = load_machine(machine_name)
    regions = fixed_regions(model, machine, machine.default_precision)
    file = scratch / "network.pickle"
    file.write_bytes(pickle.dumps(regions))
    found = planned_apart(machine_name, name, [_layer_file(machine, scratch), file], runs)
    file.unlink()
    return [row_of(what, model, machine_name, [one[-1] for one in found], limit_s)]


def planned_apart(
    machine_name: str, name: str, files: Sequence[Path], runs: int
) -> list[list[float]]:
    """What `planning_worker` prints, in ``runs`` processes and one more."""
    command = module_command("studies.speed.planning_worker", machine_name, name, *map(str, files))
    environment = module_environment()
    found = []
    for _ in range(1 + runs):
        done = subprocess.run(command, env=environment, capture_output=True, text=True)
        if done.returncode:
            last = done.stderr.strip().rpartition("\n")[2]
            raise StudyError(f"planning for {machine_name!r}: exit code {done.returncode}: {last}")
        found.append([float(text) for text in done.stdout.split()])
    return found


def times_of(work: Callable[[], object], runs: int) -> list[float]:
    """CPU seconds of this thread, of one time and of ``runs`` more."""
    times = []
    for _ in range(1 + runs):
        begin = time.thread_time()
        work()
        times.append(time.thread_time() - begin)
    return times


def simulation(model: str, machine_name: str, limit_s: float | None, runs: int) -> list[Row]:
    """Values and cycles of one image, which are checked against the reference's."""
    machine = load_machine(machine_name)
    network = prepare(model, machine, machine.default_precision)
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
