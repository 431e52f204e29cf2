"""What the analytic cost model leaves out, learned from a tuning log: trees from a plan and its
prediction to log2(measured / predicted cycles), trained on all layers of a machine."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tvm_npu.codegen.backends import backend_of
from tvm_npu.codegen.plan.problem import ConvProblem, Prediction
from tvm_npu.codegen.tune.columns import problem_of
from tvm_npu.codegen.tune.errors import TuningLogError
from tvm_npu.codegen.tune.history import History
from tvm_npu.codegen.tune.model import Trees
from tvm_npu.codegen.tune.space import Features, machine_fingerprint, space_of
from tvm_npu.sim.description import MachineDescription

TRIALS_OF_A_LAYER = 48
"""The fastest ones of a layer: what plans far from the best take says little about the best."""
FEWEST_TRIALS = 16
PARAMETERS = {"max_depth": 4, "eta": 0.08, "min_child_weight": 3}
ROUNDS = 150
SEED = 0
MARGIN = 0.01
"""By how much more a plan must be expected to be faster than that of `exact`, to be taken instead
of it unmeasured: the model errs, too. Of the shares 0 to 3 % this one did best over the bench
networks, each of which the model had not seen."""
BOUNDS = ("mac", "dma", "dram", "ring")


@dataclass(frozen=True)
class Example:
    """One measured plan of one layer, with its prediction."""

    problem: ConvProblem
    plan: Any
    cycles: float

    @property
    def prediction(self) -> Prediction:
        found: Prediction = self.plan.prediction
        return found


class ResidualModel:
    """Corrects predictions of plans on one machine."""

    def __init__(self, machine: MachineDescription, examples: Sequence[Example]) -> None:
        """Raises MissingPackageError without xgboost."""
        self.machine = machine
        self._trees = Trees(SEED, ROUNDS, **PARAMETERS)
        rows = [residual_features(e.problem, (e.plan,), machine) for e in examples]
        ratios = [e.cycles / e.prediction.cycles for e in examples]
        self._trees.fit(np.concatenate(rows), np.log2(ratios))

    def cycles(self, problem: ConvProblem, plans: Sequence[Any]) -> NDArray[np.float64]:
        """Predicted cycles, corrected; plans carry their predictions."""
        logs = self._trees.predict(residual_features(problem, plans, self.machine))
        predicted = [0.0 if p.prediction is None else p.prediction.cycles for p in plans]
        return np.array(predicted) * np.exp2(logs.astype(np.float64))


def cautious(cycles: NDArray[np.float64]) -> NDArray[np.float64]:
    """Expected cycles of a shortlist, of which the first is the plan of `exact`, for choosing."""
    return cycles * np.where(np.arange(len(cycles)) == 0, 1.0, 1.0 + MARGIN)


def residual_features(
    problem: ConvProblem, plans: Sequence[Any], machine: MachineDescription
) -> Features:
    """The space's features and, of the prediction: log2 of its cycles, the shares of MAC, loads and
    stores in them, and what bounds it."""
    more = []
    for plan in plans:
        of = plan.prediction
        assert of is not None
        shares = [part / of.cycles for part in (of.mac_cycles, of.load_cycles, of.store_cycles)]
        more.append([np.log2(of.cycles), *shares, *(of.bound == name for name in BOUNDS)])
    return np.concatenate(
        (space_of(problem, machine).features(plans), np.array(more, np.float32)), axis=1
    )


def examples_of(history: History, machine: MachineDescription) -> list[Example]:
    """The fastest plans of every layer that ``history`` has trials of on ``machine``. Raises
    TuningLogError, with the line, for a trial that is no plan of the machine's."""
    found = []
    fingerprint = machine_fingerprint(machine)
    for subject, trials in history.by_subject.items():
        if subject.machine_fingerprint != fingerprint:
            continue
        try:
            problem = problem_of(dict(subject.problem))
        except ValueError as error:
            raise TuningLogError(
                f"tuning log {str(history.path)!r}, line {trials[0].line}: {error}"
            ) from error
        space = space_of(problem, machine)
        if subject.space != space.kind:
            continue
        for measured in history.decoded(space, trials, TRIALS_OF_A_LAYER):
            prediction = backend_of(machine).predict(problem, measured.plan, machine)
            plan = replace(measured.plan, prediction=prediction)
            found.append(Example(problem, plan, measured.cycles))
    return found


@lru_cache(maxsize=8)
def residual_model(history: History, machine: MachineDescription) -> ResidualModel | None:
    """Trained once a log and machine; None where the log has fewer than `FEWEST_TRIALS` trials of
    the machine. Raises as `examples_of` and `ResidualModel` do."""
    examples = examples_of(history, machine)
    return ResidualModel(machine, examples) if len(examples) >= FEWEST_TRIALS else None
