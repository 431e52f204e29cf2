"""Random walk, hill climbing and simulated annealing over configurations."""

from __future__ import annotations

import math

from tvm_npu.pipelines.configuration import Configuration
from tvm_npu.pipelines.search.session import BudgetSpent, Session, Trial
from tvm_npu.pipelines.search.shisha import seed_configuration
from tvm_npu.pipelines.search.space import neighbours, random_configuration

BUDGET = 1000
"""Trials of a search that would not end by itself, unless the caller says otherwise."""
STEPS_A_TRIAL = 5
"""Annealing and random walk meet configurations again; they end after that many steps a trial."""
HOTTEST, COLDEST = 0.3, 0.001
"""Annealing: the relative loss that is accepted with probability 1/e, at the start and the end."""


def search_random(session: Session, seeded: bool = False) -> Trial:
    """Configurations at random (`random_configuration`); ``seeded``: after Shisha's seed."""
    if seeded:
        session.try_out(_start(session, True))
    budget = session.budget or BUDGET
    for _ in range(STEPS_A_TRIAL * budget):
        if session.count >= budget:
            raise BudgetSpent
        session.try_out(random_configuration(len(session.chain), session.platform, session.random))
    return session.best()


def search_hill(session: Session, seeded: bool = False) -> Trial:
    """Neighbours in random order, the first better one is taken; from a random configuration or
    Shisha's seed. At a local optimum it starts again at random; ends with the budget."""
    budget = session.budget or BUDGET
    current = session.try_out(_start(session, seeded))
    for _ in range(budget):
        current = _climb(session, current, budget)
        if session.count >= budget:
            raise BudgetSpent
        current = session.try_out(_start(session, False))
    return session.best()


def _climb(session: Session, current: Trial, budget: int) -> Trial:
    better: Trial | None = current
    while better is not None:
        current, better = better, None
        around = neighbours(current.configuration, session.platform)
        for index in session.random.permutation(len(around)):
            if session.count >= budget and not session.known(around[index]):
                raise BudgetSpent
            trial = session.try_out(around[index])
            if trial.bottleneck_s < current.bottleneck_s:
                better = trial
                break
    return current


def search_annealing(session: Session, seeded: bool = False) -> Trial:
    """Simulated annealing (Kirkpatrick et al. 1983): a random neighbour is taken when it is faster,
    or with probability exp(-relative loss / temperature); the temperature falls geometrically."""
    budget = session.budget or BUDGET
    current = session.try_out(_start(session, seeded))
    steps = STEPS_A_TRIAL * budget
    for step in range(steps):
        around = neighbours(current.configuration, session.platform)
        if not around:
            break
        candidate = around[int(session.random.integers(len(around)))]
        if session.count >= budget and not session.known(candidate):
            raise BudgetSpent
        trial = session.try_out(candidate)
        loss = trial.bottleneck_s / current.bottleneck_s - 1.0
        done = max(session.count / budget, step / steps)
        temperature = HOTTEST * (COLDEST / HOTTEST) ** done
        if loss <= 0 or session.random.random() < math.exp(-loss / temperature):
            current = trial
    return session.best()


def _start(session: Session, seeded: bool) -> Configuration:
    if seeded:
        weights = session.chain.weights
        return seed_configuration(weights, session.platform, "weight", session.random)
    return random_configuration(len(session.chain), session.platform, session.random)
