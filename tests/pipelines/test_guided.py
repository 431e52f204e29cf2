"""The guided search and the layer model behind it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy.linalg import cho_factor
from scipy.stats import multivariate_normal

from tests.pipelines.chains_made_up import chain
from tvm_npu.pipelines import Configuration, LayerChain, load_platform
from tvm_npu.pipelines.errors import SearchError
from tvm_npu.pipelines.platform import Platform, platform_from_dict
from tvm_npu.pipelines.search import exact_configuration, run_search
from tvm_npu.pipelines.search.guided import NOISY_BUDGET
from tvm_npu.pipelines.search.layer_model import DEVIATIONS, NOISES, LayerTimeModel
from tvm_npu.pipelines.search.session import Trial
from tvm_npu.pipelines.times import SimulatedMeasure, TimeTable, simulated_table


def rough_table(platform: Platform, layers: int, seed: int) -> TimeTable:
    """Layer times that no roofline explains: each 25 % off, on each place."""
    random = np.random.default_rng(seed + 1000)
    table = simulated_table(made_up_chain(layers, seed), platform)
    return table.with_layers(table.layer_s * np.exp(random.normal(0, 0.25, table.layer_s.shape)))


def made_up_chain(layers: int, seed: int) -> LayerChain:
    random = np.random.default_rng(seed)
    return chain(random.integers(10**7, 10**9, layers).tolist(), 10**6, 10**6)


@pytest.mark.parametrize("name", ["shisha-c2", "shisha-c5", "tx2-6core-setting3"])
@pytest.mark.parametrize("seed", range(4))
def test_within_a_percent_in_a_dozen_trials(name: str, seed: int) -> None:
    platform = load_platform(name)
    layers = made_up_chain(30, seed)
    table = simulated_table(layers, platform)
    result = run_search("guided", layers, platform, SimulatedMeasure(table))
    assert len(result.trials) <= 12
    assert result.best.bottleneck_s <= 1.01 * exact_configuration(table, platform)[1]


def test_real_places_without_any_hint() -> None:
    """Two places that the platform calls equal, one a third as fast."""
    platform = platform_from_dict(
        {
            "name": "real",
            "places": [{"kind": "real", "name": n, "core_ids": [i]} for i, n in enumerate("ab")],
        }
    )
    layers = made_up_chain(24, 1)
    work = np.array(layers.weights)[:, None]
    table = LayerTimeModel(layers, platform).table(work * np.array([1e-9, 3e-9]))
    result = run_search("guided", layers, platform, SimulatedMeasure(table))
    assert len(result.trials) <= 5
    assert result.best.bottleneck_s <= 1.01 * exact_configuration(table, platform)[1]


def test_noise_and_rough_layers_cost_little() -> None:
    platform = load_platform("shisha-c2")
    shares = []
    for seed in range(5):
        layers, table = made_up_chain(30, seed), rough_table(platform, 30, seed)
        measure = SimulatedMeasure(table, 0.05, seed)
        result = run_search("guided", layers, platform, measure, seed=seed)
        assert len(result.trials) <= NOISY_BUDGET
        true_s = table.times(result.best.configuration).bottleneck_s
        shares.append(exact_configuration(table, platform)[1] / true_s)
    assert np.median(shares) > 0.99 and min(shares) > 0.95


def test_the_model_agrees_with_what_was_measured() -> None:
    platform = load_platform("shisha-c2")
    layers = made_up_chain(20, 3)
    table = simulated_table(layers, platform)
    tried = [
        Configuration((5, 5, 5, 5), (0, 1, 2, 3)),
        Configuration((2, 6, 4, 8), (3, 0, 1, 2)),
        Configuration((12, 8), (2, 1)),
    ]
    trials = [Trial(one, table.times(one)) for one in tried]
    model = LayerTimeModel(layers, platform)
    fit = model.fit(trials)
    random = np.random.default_rng(0)
    for layer_s in (fit.mean_s, fit.sample(random), fit.sample(random)):
        for trial in trials:
            found = model.table(layer_s).times(trial.configuration).seconds
            assert found == pytest.approx(trial.times.seconds, rel=0.005 + 4 * fit.noise)
    assert fit.noise <= 0.01 and (fit.mean_s > 0).all()
    assert not np.allclose(fit.sample(random), fit.sample(random))


@pytest.mark.parametrize("noise", NOISES[1:])
def test_stages_that_were_measured_again_count_as_single_measurements_would(noise: float) -> None:
    platform = load_platform("shisha-c2")
    layers = made_up_chain(12, 4)
    measure = SimulatedMeasure(simulated_table(layers, platform), 0.05, 1)
    first, other = Configuration((4, 8), (0, 1)), Configuration((4, 3, 5), (0, 1, 2))
    trials = [Trial(one, measure(one)) for one in (first, other, first, first)]
    model = LayerTimeModel(layers, platform)
    stages = model.measured(trials)
    assert stages.runs.tolist() == [4, 3, 1, 1]
    singles = [model.measured([trial]) for trial in trials]
    seconds = np.concatenate([one.seconds for one in singles])
    joined = stages.some(np.array([0, 1, 0, 2, 3, 0, 1, 0, 1]))
    scale = model.first_scale(stages)
    scores, expected = [], []
    covered = model._covered(stages)[DEVIATIONS.index(0.1)]
    for score, fit in model._fits(covered, scale, 0.1, (noise, NOISES[0])):
        single = replace(joined, runs=np.ones(9))
        prior = replace(fit._prior, covered=replace(covered, stages=single))
        covariance = prior.inner(fit.noise)
        mean_s = prior.sums(prior.mean_s, single)
        scores.append(score)
        expected.append(multivariate_normal(mean_s, covariance).logpdf(seconds))
        factor = cho_factor(covariance, lower=True)
        layer_s = prior.posterior(prior.mean_s, factor, seconds)
        np.testing.assert_allclose(fit.mean_s, layer_s, rtol=1e-6)
    assert scores[0] - scores[1] == pytest.approx(expected[0] - expected[1], rel=1e-6)


def test_places_that_were_not_tried_follow_the_hints() -> None:
    platform = load_platform("shisha-c1")
    layers = made_up_chain(10, 0)
    table = simulated_table(layers, platform)
    only_fast = Configuration((10,), (0,))
    fit = LayerTimeModel(layers, platform).fit([Trial(only_fast, table.times(only_fast))])
    assert fit.mean_s[:, 0].sum() == pytest.approx(table.layer_s[:, 0].sum(), rel=0.02)
    hint = platform.places[0].speed / platform.places[1].speed
    assert fit.mean_s[:, 1].sum() == pytest.approx(hint * fit.mean_s[:, 0].sum(), rel=0.2)


def test_trees_as_the_layer_model() -> None:
    pytest.importorskip("xgboost", reason="the learn extra is not installed")
    platform = load_platform("shisha-c2")
    layers = made_up_chain(20, 2)
    table = simulated_table(layers, platform)
    options = {"layer_model": "xgboost", "budget": 8}
    result = run_search("guided", layers, platform, SimulatedMeasure(table), **options)  # type: ignore[arg-type]
    assert result.best.bottleneck_s <= 1.05 * exact_configuration(table, platform)[1]
    again = run_search("guided", layers, platform, SimulatedMeasure(table), **options)  # type: ignore[arg-type]
    assert again == result


def test_layer_models_that_do_not_exist() -> None:
    layers, platform = made_up_chain(5, 0), load_platform("shisha-c1")
    measure = SimulatedMeasure(simulated_table(layers, platform))
    with pytest.raises(SearchError, match="unknown layer model 'linear'; known: gaussian, xgboost"):
        run_search("guided", layers, platform, measure, layer_model="linear")
