"""Our own online search: fit layer times to all stages measured so far, plan exactly, repeat."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from threadpoolctl import threadpool_limits

from tvm_npu.pipelines.chain import LayerChain
from tvm_npu.pipelines.configuration import Configuration
from tvm_npu.pipelines.errors import SearchError
from tvm_npu.pipelines.platform import Platform
from tvm_npu.pipelines.search.exact import planned_configuration
from tvm_npu.pipelines.search.layer_model import EXACT_NOISE, LayerFit, LayerTimeModel
from tvm_npu.pipelines.search.session import Session, Trial
from tvm_npu.sim.texts import shown

BUDGET = 12
NOISY_BUDGET = 72
"""Where measurements are not exact."""
SAMPLES = 24
"""Drawn tables of layer times, each planned exactly, when the likeliest plan was tried already."""
SAMPLE_STEPS = 400
"""Samples are planned exactly up to here: 8 places of 4 kinds. On more places nearly every sample
has an optimum of its own, which costs a trial and finds nothing."""
RUNS = 6
"""Of what the search believes to be best, before it ends."""
WORTH = 0.001
"""The search ends when the samples promise less than this share of the bottleneck."""


def _boosted(chain: LayerChain, platform: Platform) -> LayerTimeModel:
    from tvm_npu.pipelines.search.boosted_model import BoostedLayerModel

    return BoostedLayerModel(chain, platform)


LAYER_MODELS: dict[str, Callable[[LayerChain, Platform], LayerTimeModel]] = {
    "gaussian": LayerTimeModel,
    "xgboost": _boosted,
}


def search_guided(session: Session, layer_model: str = "gaussian") -> Trial:
    """Every trial tells the sums of layers of all its stages. From those a Gaussian model
    (`layer_model`) gives the time of every layer on every place; the exact plan under it is tried
    next. When that was tried already, plans of layer times drawn from the model are, the most
    promising first, until none promises anything. Where measurements are noisy, the best and its
    rivals under the samples are run again. Returns the trial that is best by the model, which
    smooths the noise of single measurements. ``layer_model``: of `LAYER_MODELS`."""
    if not isinstance(layer_model, str) or layer_model not in LAYER_MODELS:
        known = ", ".join(LAYER_MODELS)
        raise SearchError(f"unknown layer model {shown(layer_model)}; known: {known}")
    model = LAYER_MODELS[layer_model](session.chain, session.platform)
    first, _ = planned_configuration(model.table(model.prior_s()), session.platform)
    if not session.trials:
        session.try_out(first)
    if len(session.platform) == 1:  # and one configuration
        return session.best()
    while True:
        with threadpool_limits(1):  # the matrices are small, and the pipeline needs the cores
            fit = model.fit(session.trials)
            budget = session.budget or (BUDGET if fit.noise <= EXACT_NOISE else NOISY_BUDGET)
            candidate = None if session.count >= budget else _next(session, model, fit)
        if candidate is None:
            return believed_best(session.trials, model, fit)
        if session.known(candidate):
            session.repeat(candidate)
        else:
            session.try_out(candidate)


def believed_best(trials: Sequence[Trial], model: LayerTimeModel, fit: LayerFit) -> Trial:
    """The fastest trial: as measured where measurements are exact (`EXACT_NOISE`), else by the
    fitted layer times, in which all measurements have their share; the earliest of equals."""
    if fit.noise <= EXACT_NOISE:
        return min(trials, key=lambda trial: trial.bottleneck_s)
    table = model.table(fit.mean_s)
    return min(trials, key=lambda trial: table.times(trial.configuration).bottleneck_s)


def _next(session: Session, model: LayerTimeModel, fit: LayerFit) -> Configuration | None:
    table = model.table(fit.mean_s)
    likeliest, _ = planned_configuration(table, session.platform)
    if not session.known(likeliest):
        return likeliest
    best = believed_best(session.trials, model, fit).configuration
    gains: dict[Configuration, float] = {}
    for _ in range(SAMPLES):
        drawn = model.table(fit.sample(session.random))
        plan, value = planned_configuration(drawn, session.platform, SAMPLE_STEPS)
        gain = 1.0 - value / drawn.times(best).bottleneck_s
        gains[plan] = gains.get(plan, 0.0) + max(gain, 0.0)
    is_exact = fit.noise <= EXACT_NOISE
    new = [plan for plan in gains if not session.known(plan)]
    promised = sum(gains[plan] for plan in (new if is_exact else gains)) / SAMPLES
    if not new and is_exact or promised < WORTH:
        runs = RUNS if not is_exact else 1 if fit.is_decided else 2
        return best if session.runs(best) < runs else None
    if new:
        return min(new, key=lambda plan: table.times(plan).bottleneck_s)
    rival = max(gains, key=lambda plan: gains[plan])
    return min(best, rival, key=session.runs)
