"""Designs by NSGA-II (Deb et al., 2002), as Optuna has it."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Literal

from tvm_npu.sweep.designs import Design, DesignSpace
from tvm_npu.sweep.outcome import MAXIMIZED
from tvm_npu.sweep.spec import Search, missing

if TYPE_CHECKING:
    from tvm_npu.sweep.judged import Judged

USE = "planner, precision and batch"
BROKEN = "requirements broken"


def generations(
    space: DesignSpace, search: Search, judge: Callable[[Sequence[Design]], list[Judged]]
) -> list[Judged]:
    """Up to ``search.designs`` designs, a generation judged at a time; each design once. What comes
    out does not depend on the order in which a generation's designs are judged."""
    try:
        import optuna
    except ImportError as error:
        raise missing("optuna", "searches by nsga2") from error
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        sampler = optuna.samplers.NSGAIISampler(
            population_size=search.population,
            seed=search.seed,
            constraints_func=_broken if search.require else None,
        )
    directions: list[Literal["minimize", "maximize"]] = [
        "maximize" if name in MAXIMIZED else "minimize" for name in search.objectives
    ]
    study = optuna.create_study(directions=directions, sampler=sampler)
    found: dict[Design, Judged] = {}
    asked = 0
    while asked < search.designs:
        count = min(search.population, search.designs - asked)
        asked += count
        trials = [study.ask() for _ in range(count)]
        designs: list[Design | None] = []
        for trial in trials:
            changes = {
                key: values[trial.suggest_categorical(f"{key} (place)", range(len(values)))]
                for key, values in space.axes.items()
            }
            use = space.uses[trial.suggest_categorical(USE, range(len(space.uses)))]
            designs.append(space.design(changes, *use) if space.allows(changes) else None)
        new = [one for one in dict.fromkeys(designs) if one is not None and one not in found]
        found.update({one.design: one for one in judge(new)})
        for trial, design in zip(trials, designs, strict=True):
            scores = () if design is None else found[design].scores
            if not scores or any(math.isnan(score) for score in scores):
                study.tell(trial, state=optuna.trial.TrialState.FAIL)
            else:
                trial.set_user_attr(BROKEN, float(design is not None and not found[design].meets))
                study.tell(trial, list(scores))
    return list(found.values())


def _broken(trial: Any) -> tuple[float]:
    return (trial.user_attrs[BROKEN],)
