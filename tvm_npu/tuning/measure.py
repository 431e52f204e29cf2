"""Measuring a plan: its layer alone on the simulator, values checked."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from tvm_npu.codegen.backends import backend_of
from tvm_npu.codegen.compile import compile_fixed
from tvm_npu.codegen.errors import CodegenError
from tvm_npu.codegen.plan.problem import ConvProblem
from tvm_npu.codegen.program.format import Program
from tvm_npu.codegen.reference import run_fixed
from tvm_npu.codegen.tune.errors import MeasureError
from tvm_npu.errors import NpuError
from tvm_npu.runtime.session import Session
from tvm_npu.sim.description import MachineDescription
from tvm_npu.sim.limits import DEFAULT, LimitError, Limits
from tvm_npu.sim.traps import Trap
from tvm_npu.tuning.single_layer import cascaded, layer_on, random_inputs

Plan = TypeVar("Plan")
"""A plan of any kind of machine."""

FEWEST_INSTRUCTIONS = 500_000
MACS_PER_INSTRUCTION = 256


def instruction_budget(problem: ConvProblem) -> int:
    """Instructions of all cores after which a plan counts as one that does not end: ten times
    what good plans take, and more."""
    return FEWEST_INSTRUCTIONS + problem.all_macs // MACS_PER_INSTRUCTION


class WrongValuesError(NpuError):
    """The simulator computed something else than the reference."""


@dataclass(frozen=True)
class Given:
    """A planner with one answer."""

    answer: Any
    name: str = "given"
    plans_windows: bool = True

    def plan(self, problem: ConvProblem, machine: MachineDescription) -> Any:
        return self.answer


@dataclass
class LayerMeasure:
    """Cycles of plans of one layer, as planners for the machine are asked about it. Equal plans are
    simulated once: the simulator always takes the same time. ``limits`` bound what it takes."""

    problem: ConvProblem
    machine: MachineDescription
    limits: Limits = DEFAULT
    known: dict[Any, float | str] = field(default_factory=dict)
    """Cycles, or why there are none."""

    def __post_init__(self) -> None:
        graph, bits = layer_on(self.problem, self.machine)
        self._graph = cascaded(graph)
        self._inputs = random_inputs(graph, bits=bits)
        (self._expected,) = (run_fixed(graph, self._inputs)[name] for name in graph.outputs)

    def __call__(self, plan: Any) -> float:
        """Raises MeasureError for a plan that does not compile, traps or takes more instructions
        than `instruction_budget` or is not worth a trial (`Backend.trial_fault`), and
        WrongValuesError when a bit differs from the reference's. LimitError at a limit that is
        below what trials have by default: it says nothing of the plan, so it is no failed trial."""
        if plan not in self.known:
            try:
                self.known[plan] = self._simulated(plan)
            except (CodegenError, Trap) as error:
                self.known[plan] = str(error)
        cycles = self.known[plan]
        if isinstance(cycles, str):
            raise MeasureError(cycles)
        return cycles

    def _simulated(self, plan: Any) -> float:
        fault = backend_of(self.machine).trial_fault(self.problem, plan, self.machine)
        if fault is not None:
            raise MeasureError(fault)
        program = compile_fixed(self._graph, self.machine, Given(plan))
        (output,), cycles = self._run(program)
        wrong = int(np.count_nonzero(output != self._expected))
        if wrong:
            raise WrongValuesError(
                f"plan {plan} of {self.problem} on machine {self.machine.name!r}: {wrong} of "
                f"{output.size} elements differ from the reference; the limit is 0"
            )
        return cycles

    def _run(self, program: Program) -> tuple[list[NDArray[np.generic]], float]:
        """(outputs, cycles)."""
        own = instruction_budget(self.problem)
        limits = self.limits.lowered(own)
        session = Session(program, limits=limits)
        try:
            outputs = session.run_fixed([self._inputs[name] for name in self._graph.inputs])
        except Trap as trap:
            if (trap.beyond_work and self.limits.work < DEFAULT.work) or (
                trap.beyond_instructions and limits.instructions != own
            ):
                raise LimitError(
                    f"a trial on {self.machine.name} reached a limit: {trap}; a higher limit lets "
                    "tuning go on where it stopped"
                ) from trap
            raise
        assert session.statistics is not None
        return outputs, float(session.statistics.cycles)


def bare(plan: Plan) -> Plan:
    """What ``plan`` chooses, without what its planner expects of it: as trials hold plans."""
    return replace(plan, prediction=None, planner="")  # type: ignore[type-var]
