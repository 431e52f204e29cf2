"""Designs by NSGA-II (Deb et al., 2002), as Optuna has it."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from tvm_npu.sweep.designs import Design, DesignSpace
from tvm_npu.sweep.spec import Search, missing

if TYPE_CHECKING:
    from tvm_npu.sweep.run import Judged

USE = "planner and precision"


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
    sampler = optuna.samplers.NSGAIISampler(population_size=search.population, seed=search.seed)
    study = optuna.create_study(directions=["minimize"] * len(search.objectives), sampler=sampler)
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
            planner, precision = space.uses[
                trial.suggest_categorical(USE, range(len(space.uses)))
            ]
            designs.append(
                space.design(changes, planner, precision) if space.allows(changes) else None
            )
        new = [one for one in dict.fromkeys(designs) if one is not None and one not in found]
        found.update({one.design: one for one in judge(new)})
        for trial, design in zip(trials, designs, strict=True):
            scores = () if design is None else found[design].scores
            if not scores or any(math.isnan(score) for score in scores):
                study.tell(trial, state=optuna.trial.TrialState.FAIL)
            else:
                study.tell(trial, list(scores))
    return list(found.values())
