"""Every search: what it promises, on small cases whose optimum is known."""

from __future__ import annotations

import math
from itertools import islice
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.examples import examples
from tests.pipelines.chains_made_up import chain, configurations, simulated
from tvm_npu.pipelines import Configuration, load_platform
from tvm_npu.pipelines.errors import ConfigurationError, SearchError
from tvm_npu.pipelines.platform import Platform, platform_from_dict
from tvm_npu.pipelines.search import (
    SearchResult,
    Trial,
    exact_configuration,
    run_search,
    search_names,
    space_size,
)
from tvm_npu.pipelines.search.balance import balanced_cuts, coefficient_of_variation
from tvm_npu.pipelines.search.session import BudgetSpent, Session
from tvm_npu.pipelines.search.shisha import (
    HEURISTICS,
    fast_places,
    merged_stages,
    seed_configuration,
)
from tvm_npu.pipelines.times import SimulatedMeasure, StageTimes, TimeTable, simulated_table

WEIGHTS = np.random.default_rng(5).integers(10**7, 10**9, 9).tolist()
REAL = platform_from_dict(
    {
        "name": "real",
        "places": [{"kind": "real", "name": n, "core_ids": [i]} for i, n in enumerate("ab")],
    }
)


def searched(
    name: str, weights: list[int], platform: Platform, **options: object
) -> tuple[SearchResult, float]:
    """The result, and its throughput over the optimum's."""
    table = simulated_table(chain(weights, 10**5, 10**5), platform)
    result = run_search(
        name, chain(weights, 10**5, 10**5), platform, SimulatedMeasure(table), **options
    )  # type: ignore[arg-type]
    return result, exact_configuration(table, platform)[1] / result.best.bottleneck_s


@pytest.mark.parametrize("name", search_names())
@pytest.mark.parametrize("platform", ["shisha-c2", "tx2-4core-setting3"])
def test_every_search_runs_valid_configurations_and_is_repeatable(name: str, platform: str) -> None:
    place = load_platform(platform)
    result, share = searched(name, WEIGHTS, place, seed=3, budget=60)
    again, _ = searched(name, WEIGHTS, place, seed=3, budget=60)
    assert again == result and result.search == name
    assert 1 <= len(result.trials) <= 60 and result.asked >= len(result.trials)
    repeated = len(result.trials) - len({trial.configuration for trial in result.trials})
    assert repeated <= (name == "guided")  # which looks whether measurements are exact
    assert result.best in result.trials and 0.2 < share <= 1 + 1e-12
    assert result.trials[result.trials_to_best - 1] == result.best
    assert result.best.bottleneck_s == min(trial.bottleneck_s for trial in result.trials)


@pytest.mark.parametrize("name", search_names())
def test_one_layer_and_more_places_than_layers(name: str) -> None:
    result, share = searched(name, [10**9], load_platform("shisha-c2"), budget=50)
    assert result.best.configuration.stages == (1,)
    if not name.startswith(("pipe-search", "shisha-h5", "shisha-h6")):
        assert share == pytest.approx(1.0)
    result, _ = searched(name, WEIGHTS[:3], load_platform("shisha-c5"), budget=50)
    assert result.best.configuration.layer_count == 3


@pytest.mark.parametrize("name", search_names())
def test_one_place(name: str) -> None:
    result, share = searched(name, WEIGHTS, simulated([1e9]), budget=50)
    assert result.best.configuration == Configuration((9,), (0,)) and share == pytest.approx(1.0)
    assert len(result.trials) == 1


def test_exhaustive_and_exact_find_the_optimum() -> None:
    for name in ("shisha-c2", "tx2-4core-setting2"):
        platform = load_platform(name)
        found, share = searched("exhaustive", WEIGHTS[:6], platform)
        assert len(found.trials) == space_size(6, platform) and share == pytest.approx(1.0)
        exact, share = searched("exact", WEIGHTS[:6], platform)
        assert len(exact.trials) == 1 and share == pytest.approx(1.0)


def test_exact_on_real_places_wants_times() -> None:
    layers = chain(WEIGHTS)

    def measure(configuration: Configuration) -> StageTimes:
        return table.times(configuration)

    table = TimeTable(np.ones((9, 2)), np.zeros(9), np.zeros((2, 2)), np.zeros((2, 2)))
    with pytest.raises(SearchError, match="platform real is real: give measured times"):
        run_search("exact", layers, REAL, measure)
    found = run_search("exact", layers, REAL, measure, times=table)
    assert sorted(found.best.configuration.stages) == [4, 5]
    with pytest.raises(SearchError, match=r"\(9, 1\) layers and places; this is \(9, 2\)"):
        run_search("exact", layers, REAL, measure, times=table.with_layers(np.ones((9, 1))))


@settings(max_examples=examples(60), deadline=None)
@given(st.lists(st.integers(0, 9), min_size=1, max_size=8), st.integers(1, 8))
def test_balanced_cuts_are_all_cuts_in_order(weights: list[int], stages: int) -> None:
    found = list(balanced_cuts(weights, stages))
    everything = [one.stages for one in configurations(stages, len(weights))]
    assert sorted(found) == sorted(everything)
    variations = [coefficient_of_variation(weights, cut) for cut in found]
    assert variations == sorted(variations) or np.allclose(variations, sorted(variations))


def test_balanced_cuts_of_a_deep_network_come_one_by_one() -> None:
    """150 layers in 8 stages are 2e11 cuts."""
    weights = [float(w) for w in np.random.default_rng(0).integers(1, 10**9, 150)]
    first = list(islice(balanced_cuts(weights, 8), 50))
    variations = [coefficient_of_variation(weights, cut) for cut in first]
    assert len(set(first)) == 50 and variations == sorted(variations)


@pytest.mark.parametrize(
    ("weights", "stages", "rank", "variation"),
    [
        ((1, 4, 8, 4, 8, 8, 4), (3, 2, 2), 1, 3.8),
        ((1, 4, 8, 4, 8, 8, 4), (5, 1, 1), 10, 73.8),
        ((1, 9, 4, 8, 5, 4, 8, 5, 7, 1, 1, 1, 4, 8, 22), (4, 7, 4), 8, 18.5),
    ],
)
def test_published_ranks(
    weights: tuple[int, ...], stages: tuple[int, ...], rank: int, variation: float
) -> None:
    """Pipe-Search, Table 7."""
    assert list(balanced_cuts(weights, len(stages))).index(stages) + 1 == rank
    assert 100 * coefficient_of_variation(weights, stages) == pytest.approx(variation, abs=0.05)


def test_pipe_search_finds_even_stages_on_equal_places() -> None:
    result, share = searched("pipe-search", [10**9] * 12, simulated([1e9] * 4), alpha=3)
    assert result.best.configuration.stages == (3, 3, 3, 3) and share == pytest.approx(1.0)
    assert {len(trial.configuration) for trial in result.trials} == {2, 3, 4}
    without, _ = searched("pipe-search", WEIGHTS, simulated([1e9] * 4), alpha=3, hints=False)
    assert without.trials[0].configuration.stages == (4, 5)


def test_pipe_search_ends_by_alpha_in_each_phase() -> None:
    """The seed of four stages is the optimum: alpha more in every number of stages, then alpha."""
    result, _ = searched("pipe-search", [10**9] * 12, simulated([1e9] * 4), alpha=5)
    per_stages = [sum(len(t.configuration) == n for t in result.trials) for n in (2, 3, 4)]
    assert per_stages == [5, 5, 1 + 5 + 5]


def test_the_seed_of_shisha_by_hand() -> None:
    """1 joins 4, that joins the next 4, ... as Algorithm 1 says."""
    weights = (1.0, 4.0, 8.0, 4.0, 8.0, 8.0, 4.0)
    assert merged_stages(weights, 7) == (1,) * 7
    assert merged_stages(weights, 6) == (2, 1, 1, 1, 1, 1)
    assert merged_stages(weights, 5) == (2, 1, 2, 1, 1) or sum(merged_stages(weights, 5)) == 7
    assert merged_stages(weights, 1) == (7,)
    platform = load_platform("shisha-c2")
    random = np.random.default_rng(0)
    by_weight = seed_configuration((5.0, 1.0, 7.0, 2.0), platform, "weight", random)
    assert by_weight == Configuration((1, 1, 1, 1), (1, 3, 0, 2))
    by_layers = seed_configuration((9.0, 1.0, 1.0, 1.0, 1.0, 9.0), platform, "layers", random)
    slow = [platform.places[p].name for p in by_layers.places if p not in fast_places(platform)]
    assert len(slow) == 2 and max(by_layers.stages) == by_layers.stages[by_layers.places.index(3)]


def test_fast_places() -> None:
    assert fast_places(load_platform("shisha-c3")) == {0, 1, 2, 3}
    assert fast_places(simulated([1e9] * 3)) == {0, 1, 2}
    assert fast_places(simulated([4e9, 1e9, 3e9])) == {0, 2}


@pytest.mark.parametrize("name", list(HEURISTICS))
def test_shisha_moves_one_layer_off_the_slowest_stage(name: str) -> None:
    result, _ = searched(f"shisha-{name}", WEIGHTS, load_platform("shisha-c2"), alpha=4)
    for before, after in zip(result.trials, result.trials[1:], strict=False):
        change = np.subtract(after.configuration.stages, before.configuration.stages)
        assert after.configuration.places == before.configuration.places
        assert change[before.times.slowest] == -1 and sorted(change)[-1] == 1
        assert np.abs(change).sum() == 2
    assert result.asked <= 4 + len(result.trials) + 4


def test_shisha_from_a_given_start() -> None:
    start = Configuration((7, 2), (1, 0))
    result, _ = searched("shisha-h3", WEIGHTS, load_platform("shisha-c1"), start=start)
    assert result.trials[0].configuration == start


@pytest.mark.parametrize("name", ["random-walk", "hill-climbing", "annealing"])
def test_seeded_searches_begin_with_shisha_s_seed(name: str) -> None:
    platform = load_platform("shisha-c2")
    result, share = searched(f"{name}-seeded", WEIGHTS, platform, budget=120)
    seed = seed_configuration(chain(WEIGHTS).weights, platform, "weight", np.random.default_rng(0))
    assert result.trials[0].configuration == seed and len(result.trials) <= 120
    assert result.best.bottleneck_s < result.trials[0].bottleneck_s and share > 0.8


def test_a_budget_ends_any_search() -> None:
    for name in search_names():
        result, _ = searched(name, WEIGHTS, load_platform("shisha-c2"), budget=1)
        assert len(result.trials) == 1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"budget": 0}, "budget = 0 trials; an integer from 1"),
        ({"budget": True}, "budget = True trials"),
        ({"seed": -1}, "seed = -1; an integer from 0"),
        ({"seed": 0.5}, "seed = 0.5; an integer from 0"),
        ({"alpha": 0}, "alpha = 0; at least 1"),
        ({"layers": 3}, "search shisha-h1 has no option layers; it has alpha, start"),
        ({"start": Configuration((4, 4), (0, 1))}, "hold 8 layers; the chain has 9"),
    ],
)
def test_bad_options(options: dict[str, object], message: str) -> None:
    with pytest.raises((SearchError, ConfigurationError), match=message):
        searched("shisha-h1", WEIGHTS, load_platform("shisha-c2"), **options)


def test_names_that_do_not_exist() -> None:
    with pytest.raises(SearchError, match="unknown search 'shisha'; known: pipe-search, .*guided"):
        searched("shisha", WEIGHTS, load_platform("shisha-c2"))


def test_a_platform_whose_file_arranges_nothing_for_pipe_search() -> None:
    platform = platform_from_dict({**simulated([1e9] * 3).model_dump(), "arrangements": [["p0"]]})
    with pytest.raises(SearchError, match="no arrangement of 2 to 3 places"):
        searched("pipe-search", WEIGHTS, platform)


def test_measurements_that_are_none() -> None:
    with pytest.raises(SearchError, match=r"measured as \(1.0,\); 2 times above 0 s"):
        run_search("shisha-h1", chain(WEIGHTS), REAL, lambda _: StageTimes((1.0,)))
    with pytest.raises(SearchError, match="2 times above 0 s"):
        run_search("shisha-h1", chain(WEIGHTS), REAL, lambda _: StageTimes((1.0, 0.0)))


@pytest.mark.parametrize("name", search_names())
@pytest.mark.parametrize("taken", [math.nan, math.inf, None, "1", 10**400])
def test_times_that_nothing_can_be_compared_with(name: str, taken: Any) -> None:
    places = simulated([1e9, 2e9])

    def measure(configuration: Configuration) -> StageTimes:
        return StageTimes((taken,) * len(configuration))

    with pytest.raises(SearchError, match="times above 0 s are expected, finite"):
        run_search(name, chain(WEIGHTS), places, measure, budget=3)
    with pytest.raises(SearchError, match="the known trial of .9. on .0. took"):
        known = Trial(Configuration((9,), (0,)), StageTimes((taken,)))
        run_search(name, chain(WEIGHTS), places, measure, known=[known])


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("shisha-h1", {"start": 3}, "start is 3; a Configuration"),
        ("shisha-h1", {"alpha": math.nan}, "alpha = nan; at least 1"),
        ("pipe-search", {"alpha": None}, "alpha = None; at least 1"),
        ("pipe-search", {"hints": "no"}, "hints is 'no'; True or False"),
        ("guided", {"layer_model": []}, "unknown layer model a list of 0 items"),
        ("guided", {"known": None}, "known trials are None"),
        ("guided", {"known": "x"}, "known trials are 'x'"),
        ("guided", {"known": [1]}, "a known trial is 1"),
        ("guided", {"seed": 10**5000}, "seed = a number of 16610 bits"),
        ("exact", {"times": [1.0]}, "times are a list of 1 items; expected a TimeTable"),
    ],
)
def test_options_of_other_types(name: str, options: dict[str, Any], message: str) -> None:
    with pytest.raises(SearchError, match=message):
        searched(name, WEIGHTS, load_platform("shisha-c2"), **options)


def test_searches_of_nothing() -> None:
    places = simulated([1e9, 2e9])
    anything: Any
    for anything in (None, 3, "x"):
        for arguments in (
            (anything, chain(WEIGHTS), places, len),
            ("guided", anything, places, len),
            ("guided", chain(WEIGHTS), anything, len),
            ("guided", chain(WEIGHTS), places, anything),
            ("guided", chain(WEIGHTS), places, lambda _, times=anything: times),
        ):
            with pytest.raises(SearchError):
                run_search(*arguments)
    for noise in (math.nan, -1.0, 1e9, "x"):
        with pytest.raises(SearchError, match="noise = .*; from 0 to 1"):
            SimulatedMeasure(simulated_table(chain(WEIGHTS), places), noise)  # type: ignore[arg-type]


def test_running_time_of_trials() -> None:
    result, _ = searched("exact", WEIGHTS, load_platform("shisha-c1"))
    times = result.best.times
    assert result.seconds(1) == pytest.approx(sum(times.seconds))
    assert result.seconds(10) == pytest.approx(sum(times.seconds) + 9 * times.bottleneck_s)


def test_repeated_trials_stand_where_they_were_run() -> None:
    places = simulated([1e9, 2e9])
    table = simulated_table(chain(WEIGHTS), places)
    measure = SimulatedMeasure(table, 0.05, 1)
    cuts = [Configuration((n, 9 - n), (0, 1)) for n in (2, 3, 4)]
    session = Session(chain(WEIGHTS), places, measure, budget=4)
    asked = [
        session.try_out(cuts[0]), session.repeat(cuts[0]), session.try_out(cuts[1]),
        session.repeat(cuts[0]),
    ]  # fmt: skip
    assert session.trials == tuple(asked) and session.count == 4 and session.runs(cuts[0]) == 3
    assert session.try_out(cuts[0]) is asked[0]
    found = SearchResult("made-up", asked[2], session.trials, session.asked)
    assert found.trials_to_best == 3
    assert found.seconds(10, 3) == pytest.approx(sum(trial.seconds(10) for trial in asked[:3]))
    later = Session(chain(WEIGHTS), places, measure, budget=2, known=session.trials)
    assert later.trials == session.trials and later.count == 0 and later.runs(cuts[0]) == 3
    assert later.try_out(cuts[0]) == asked[0]
    new = [later.repeat(cuts[1]), later.try_out(cuts[2])]
    assert later.trials == (*asked, *new) and later.count == 2
    with pytest.raises(BudgetSpent):
        later.repeat(cuts[0])
    assert later.trials == (*asked, *new)
