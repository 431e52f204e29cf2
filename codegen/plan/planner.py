"""What a planner is."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal, Protocol

from tvm_npu.codegen.plan.problem import ConvProblem

Goal = Literal["cycles", "bytes"]
"""What is to be least: predicted time, or traffic with the memory outside."""


class Planner(Protocol):
    """Anything that answers a `ConvProblem` for a machine. Deterministic.

    The answer is a plan of the machine's kind, or Infeasible. A planner for machines of one kind
    only gets these."""

    @property
    def name(self) -> str: ...

    def plan(self, problem: ConvProblem, machine: Any) -> Any: ...


def plans_windows(planner: Planner) -> bool:
    """``planner`` plans convolutions with a window behind them (`ConvProblem.window`), too."""
    return bool(getattr(planner, "plans_windows", False))


def plans_blocks(planner: Planner) -> bool:
    """``planner`` plans blocks, which are questions of a kind's own, too."""
    return bool(getattr(planner, "plans_blocks", False))


def plans_sums(planner: Planner) -> bool:
    """``planner`` plans sums of two convolutions, which are questions of a kind's own, too."""
    return bool(getattr(planner, "plans_sums", False))


def goal(planner: object) -> Goal:
    """What ``planner`` minimizes over a graph, where layers can run as one."""
    return "bytes" if getattr(planner, "goal", "cycles") == "bytes" else "cycles"


def plan_all(problems: Iterable[ConvProblem], planner: Planner, machine: Any) -> tuple[Any, ...]:
    """One answer a problem, in order; equal problems are planned once."""
    answers: dict[ConvProblem, Any] = {}
    listed = tuple(problems)
    for problem in listed:
        if problem not in answers:
            answers[problem] = planner.plan(problem, machine)
    return tuple(answers[problem] for problem in listed)
