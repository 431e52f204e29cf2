"""Our own online search: fit layer times to all stages measured so far, plan exactly, repeat."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tvm_npu.codegen.stages.configuration import Configuration
from tvm_npu.codegen.stages.search.exact import exact_configuration
from tvm_npu.codegen.stages.search.layer_model import Fit, LayerTimeModel
from tvm_npu.codegen.stages.search.session import BudgetSpent, Session, Trial

BUDGET = 12
SAMPLES = 24
"""Drawn tables of layer times, each planned exactly, when the likeliest plan was tried already."""
WORTH = 0.002
"""The search ends when the samples promise less than this share of the bottleneck."""


def search_guided(session: Session) -> Trial:
    """Every trial tells the sums of layers of all its stages. From those a Gaussian model
    (`layer_model`) gives the time of every layer on every place; the exact plan under it is tried
    next. When that was tried already, plans of layer times drawn from the model are, the most
    promising first, until none promises anything. Returns the trial that is best by the model,
    which smooths the noise of single measurements."""
    model = LayerTimeModel(session.chain, session.platform)
    budget = session.budget or BUDGET
    first, _ = exact_configuration(model.table(model.prior_s()), session.platform)
    session.try_out(first)
    while True:
        fit = model.fit(session.trials)
        if session.count >= budget:
            break
        candidate = _next(session, model, fit)
        if candidate is None:
            break
        try:
            session.try_out(candidate)
        except BudgetSpent:
            break
    return believed_best(session.trials, model, fit)


def believed_best(trials: Sequence[Trial], model: LayerTimeModel, fit: Fit) -> Trial:
    """The trial whose stages are fastest by the fitted layer times and its own measurement, each
    weighted by its variance; the earliest of equals."""
    table = model.table(fit.mean_s)
    return min(
        trials,
        key=lambda trial: max(
            _combined(fit, table.times(trial.configuration).seconds, trial).tolist()
        ),
    )


def _combined(fit: Fit, modelled: tuple[float, ...], trial: Trial) -> np.ndarray:
    """The model's stage times hold the measurement already; without noise they are equal to it up
    to what the model clips, and then the measurement is right."""
    measured = np.array(trial.times.seconds)
    if fit.noise <= 0.002:
        return measured
    return np.array(modelled)


def _next(session: Session, model: LayerTimeModel, fit: Fit) -> Configuration | None:
    table = model.table(fit.mean_s)
    likeliest, _ = exact_configuration(table, session.platform)
    if not session.known(likeliest):
        return likeliest
    best = believed_best(session.trials, model, fit)
    gains: dict[Configuration, list[float]] = {}
    for _ in range(SAMPLES):
        drawn = model.table(fit.sample(session.random))
        plan, value = exact_configuration(drawn, session.platform)
        gain = 1.0 - value / drawn.times(best.configuration).bottleneck_s
        if not session.known(plan):
            gains.setdefault(plan, []).append(max(gain, 0.0))
    if sum(map(sum, gains.values())) / SAMPLES < WORTH:
        return None
    promised = {plan: table.times(plan).bottleneck_s for plan in gains}
    return min(gains, key=lambda plan: promised[plan])
