"""The optimum is proven: dynamic programming, enumeration and the plain definition agree."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings

from tests.examples import examples
from tests.pipelines.chains_made_up import chain, plain_optimum, real_cases, simulated
from tvm_npu.pipelines.errors import SearchError
from tvm_npu.pipelines.platform import Platform
from tvm_npu.pipelines.platform_file import load_platform
from tvm_npu.pipelines.search import enumerate_space, exact_configuration
from tvm_npu.pipelines.search.space import (
    all_configurations,
    neighbours,
    placements,
    random_configuration,
    space_size,
    twins,
)
from tvm_npu.pipelines.times import TimeTable, simulated_table


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


def test_a_deep_chain_on_eight_places_is_quick_and_balanced() -> None:
    """Equal layers on equal places: the optimum is known."""
    table = simulated_table(chain([10**9] * 160), simulated([1e9] * 8))
    configuration, value = exact_configuration(table, simulated([1e9] * 8))
    assert value == pytest.approx(20.0) and set(configuration.stages) == {20}
