"""The optimum is proven: dynamic programming, enumeration and the plain definition agree."""

from __future__ import annotations

from math import comb, perm

import numpy as np
import pytest
from hypothesis import given, settings

from tests.examples import examples
from tests.pipelines.chains_made_up import chain, plain_optimum, real_cases, simulated
from tvm_npu.pipelines.configuration import Configuration
from tvm_npu.pipelines.errors import SearchError
from tvm_npu.pipelines.platform import Platform
from tvm_npu.pipelines.platform_file import load_platform
from tvm_npu.pipelines.search import (
    bands,
    enumerate_space,
    exact,
    exact_configuration,
    run_search,
)
from tvm_npu.pipelines.search.bottleneck import shortest_bottleneck
from tvm_npu.pipelines.search.exact import close_configuration
from tvm_npu.pipelines.search.place_sets import place_classes
from tvm_npu.pipelines.search.space import (
    all_configurations,
    neighbours,
    placements,
    random_configuration,
    size_text,
    space_size,
    twins,
)
from tvm_npu.pipelines.times import SimulatedMeasure, TimeTable, simulated_table


@settings(max_examples=examples(100), deadline=None)
@given(real_cases())
def test_three_ways_to_the_optimum(case: tuple[TimeTable, Platform]) -> None:
    table, platform = case
    least, count = plain_optimum(table, platform)
    configuration, value = exact_configuration(table, platform)
    assert value == pytest.approx(least, rel=1e-12)
    platform.check(configuration, table.layer_count)
    assert table.times(configuration).bottleneck_s == value
    found = enumerate_space(table, platform)
    assert found.bottleneck_s == value and table.times(found.best).bottleneck_s == value
    assert found.space == count == space_size(table.layer_count, platform)


@pytest.mark.parametrize("name", ["shisha-c2", "shisha-c4", "tx2-4core-setting3"])
def test_exchangeable_places_count_once_and_lose_nothing(name: str) -> None:
    platform = load_platform(name)
    weights = np.random.default_rng(1).integers(10**6, 10**9, 6).tolist()
    table = simulated_table(chain(weights, 10**6, 10**5), platform)
    least, count = plain_optimum(table, platform)
    assert exact_configuration(table, platform)[1] == pytest.approx(least, rel=1e-12)
    found = enumerate_space(table, platform)
    assert found.bottleneck_s == pytest.approx(least, rel=1e-12)
    assert found.space == space_size(6, platform) < count
    listed = list(all_configurations(6, platform))
    assert len(listed) == len(set(listed)) == found.space
    total = sum(sum(table.times(one).seconds) for one in listed)
    worst = sum(table.times(one).bottleneck_s for one in listed)
    assert found.stages_s == pytest.approx(total) and found.bottlenecks_s == pytest.approx(worst)
    assert found.seconds(10) == pytest.approx(total + 9 * worst)


@settings(max_examples=examples(60), deadline=None)
@given(real_cases())
def test_bounds_hold_and_end_the_search_only_at_the_optimum(
    case: tuple[TimeTable, Platform],
) -> None:
    """Dynamic programming alone, under a tight and a loose bound; then as in large tables, from a
    bad configuration: it is taken where it reaches the bound, or where the plan is to be quick."""
    table, platform = case
    least = exact_configuration(table, platform)[1]
    arrays = table.prefix_s, table.crossing_bytes, table.latency_s, table.byte_s
    steps = place_classes(platform).steps
    for bound_s in (np.nextafter(least, np.inf), 1.5 * least):
        fewest, most = bands.bands(table.prefix_s, steps, bound_s)
        found = shortest_bottleneck(*arrays, steps, table.one_link, bound_s, fewest, most)
        assert found[0] == least and len(found[2])
    assert 0 < bands.least_bottleneck(*arrays) <= least
    place = int(np.argmin(table.prefix_s[-1]))
    alone = Configuration((table.layer_count,), (place,))
    alone_s = table.times(alone).bottleneck_s
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(exact, "SHORT_STATES", 0)
        assert exact_configuration(table, platform)[1] == least
        patch.setattr(exact, "close_configuration", lambda *_: (alone, alone_s))
        patch.setattr(exact, "QUICK_STATES", 0)
        configuration, value = exact.planned_configuration(table, platform)
        platform.check(configuration, table.layer_count)
        assert table.times(configuration).bottleneck_s == value
        assert least <= value <= alone_s
        patch.setattr(bands, "farthest_cuts", lambda *_: (alone_s, (), ()))
        assert exact_configuration(table, platform)[1] == least


def test_the_longest_layer_alone_is_the_bound() -> None:
    """The slow place would take 5 s for it; the fast place takes 2.5 s, and what crosses to it or
    the layer before it, whichever is less."""
    table = simulated_table(chain([10**9, 5 * 10**9, 10**9], 0, 10**6), simulated([1e9, 2e9]))
    for latency_s, before_s in ((0.2, 0.2), (0.8, 0.5)):
        slow = np.full((2, 2), latency_s)
        least = bands.least_bottleneck(table.prefix_s, table.crossing_bytes, slow, 0 * slow)
        assert least == pytest.approx(2.5 + before_s, rel=1e-3)


def test_known_sizes() -> None:
    """What the papers count: cuts into as many stages as places."""
    assert placements(load_platform("shisha-c5"), 8) == 70
    assert twins(load_platform("shisha-c2")) == (-1, 0, -1, 2)
    one_sort = simulated([1e9] * 4)
    assert space_size(50, one_sort) == 1 + 49 + 1176 + 18424
    assert space_size(21, one_sort) - 1 == 1350


def test_neighbours_are_valid_and_mutual() -> None:
    platform = load_platform("tx2-4core-setting1")
    random = np.random.default_rng(2)
    for _ in range(30):
        one = random_configuration(7, platform, random)
        platform.check(one, 7)
        around = neighbours(one, platform)
        assert one not in around
        for other in around:
            platform.check(other, 7)
        sample = around[int(random.integers(len(around)))]
        moved = sum(a != b for a, b in zip(one.stages, sample.stages, strict=False))
        if len(sample) == len(one) and sample.places == one.places:
            assert one in neighbours(sample, platform) and moved == 2


def test_times_that_are_not_finite() -> None:
    platform = simulated([1e9, 1e9])
    table = simulated_table(chain([3, 4]), platform)
    with pytest.raises(SearchError, match="not finite"):
        exact_configuration(table.with_layers(np.full((2, 2), np.inf)), platform)
    layer_s = table.layer_s.copy()
    for wrong in (np.inf, np.nan, -1.0):
        layer_s[0, 1] = wrong
        for search in (exact_configuration, enumerate_space, close_configuration):
            with pytest.raises(SearchError, match=f"layer 0 takes {wrong} s on place 1: not fin"):
                search(table.with_layers(layer_s), platform)


def test_a_deep_chain_on_eight_places_is_quick_and_balanced() -> None:
    """Equal layers on equal places: the optimum is known."""
    table = simulated_table(chain([10**9] * 160), simulated([1e9] * 8))
    configuration, value = exact_configuration(table, simulated([1e9] * 8))
    assert value == pytest.approx(20.0) and set(configuration.stages) == {20}


def test_alike_places_are_counted() -> None:
    """Fast places do two layers in the time of a slow one's layer: 128 of each, the optimum is
    known; with seven kinds the table would not fit."""
    platform = simulated([2e9, 1e9] * 128)
    table = simulated_table(chain([10**9] * 384), platform)
    configuration, value = exact_configuration(table, platform)
    assert value == pytest.approx(1.0) and len(configuration) == 256
    platform.check(configuration, 384)
    unequal = simulated([1e9 * (1 + index % 7) for index in range(256)])
    with pytest.raises(SearchError, match="256 places are of 7 kinds.*at most 1 GiB.*guided"):
        exact_configuration(simulated_table(chain([10**9] * 384), unequal), unequal)


def test_plans_where_no_table_fits_are_close() -> None:
    """Equal layers: no plan beats work over the sum of all rates."""
    platform = simulated([1e9 * (1 + index % 7) for index in range(64)])
    table = simulated_table(chain([10**7] * 1000), platform)
    configuration, value = close_configuration(table, platform)
    platform.check(configuration, 1000)
    assert table.times(configuration).bottleneck_s == value
    least = 1e10 / sum(place.speed for place in platform.places)
    assert least <= value * (1 + 1e-9) and value <= 1.02 * least


@pytest.mark.parametrize("seed", range(6))
def test_plans_of_unequal_layers_are_close_to_the_optimum(seed: int) -> None:
    """With one start, bisection alone decides; with all, their variety."""
    random = np.random.default_rng(seed)
    macs = (1e7 * np.exp(0.7 * random.standard_normal(60))).astype(int).tolist()
    platform = simulated([1e9 * (1 + 3 * (index % 3)) for index in range(12)])
    table = simulated_table(chain(macs), platform)
    least = exact_configuration(table, platform)[1]
    assert least / close_configuration(table, platform)[1] > 0.975
    assert least / close_configuration(table, platform, starts=1)[1] > 0.92


def test_sizes_of_large_platforms() -> None:
    """Where no places are alike: n places in order, a falling factorial. Pairs that share a core
    are one place twice."""
    unequal = simulated([float(10**9 + index) for index in range(256)])
    assert unequal.most_stages == 256
    assert space_size(2, unequal) == 256 + 256 * 255
    pairs = simulated([float(10**9 + i) for i in range(100)], [[i // 2] for i in range(100)])
    ring = simulated([1e9] * 9, [[i, (i + 1) % 9] for i in range(9)])
    assert ring.most_stages == 4
    assert pairs.most_stages == 50 and placements(pairs, 2) == 100 * 98
    size = sum(comb(299, n - 1) * perm(256, n) for n in range(1, 257))
    assert space_size(300, unequal) == size and size_text(size) == "2.00e+562"
    with pytest.raises(SearchError, match="256 places and 300 layers.*give a budget"):
        made_up = chain([10**7] * 300)
        run_search(
            "exhaustive", made_up, unequal, SimulatedMeasure(simulated_table(made_up, unequal))
        )
    with pytest.raises(SearchError, match="256 places; at most 62 can be enumerated"):
        enumerate_space(simulated_table(chain([10**7] * 3), unequal), unequal)
