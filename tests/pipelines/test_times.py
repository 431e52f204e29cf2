"""The roofline of simulated places, worked out by hand."""

from __future__ import annotations

import pytest

from tests.pipelines.chains_made_up import chain
from tvm_npu.pipelines import ChainLayer, Configuration, LayerChain, load_platform
from tvm_npu.pipelines.errors import ConfigurationError, PlatformError
from tvm_npu.pipelines.platform import platform_from_dict
from tvm_npu.pipelines.times import (
    SimulatedMeasure,
    StageTimes,
    layer_bytes,
    simulated_table,
    simulated_times,
)

PLACE = {
    "kind": "simulated", "name": "fast", "cores": 4, "macs_per_s": 1e9, "bytes_per_s": 1e9,
    "parallel_share": 0.8, "layer_s": 0.5,
}  # fmt: skip
SLOW = {"kind": "simulated", "name": "slow", "cores": 1, "macs_per_s": 5e8, "bytes_per_s": 1e9}
TWO = platform_from_dict(
    {"name": "t", "places": [PLACE, SLOW], "link": {"latency_s": 0.25, "bytes_per_s": 2e9}}
)
CHAIN = LayerChain(
    "x",
    (
        ChainLayer("conv", 8e9, 8_000_000_000, 10**6, 10**9),
        ChainLayer("pool", 2e8, 0, 0, 10**8),
        ChainLayer("fc", 1e8, 100_000_000, 4 * 10**9, 40),
    ),
    input_bytes=10**6,
)


def test_layers_move_parameters_inputs_and_outputs() -> None:
    assert layer_bytes(CHAIN) == (1_002_000_000, 1_100_000_000, 4_100_000_040)


def test_the_longer_of_work_and_bytes() -> None:
    table = simulated_table(CHAIN, TWO)
    amdahl = 1 / (0.2 + 0.8 / 4)
    assert table.layer_s[:, 0] == pytest.approx([0.5 + 8 / amdahl, 0.5 + 1.1, 0.5 + 4.10000004])
    assert table.layer_s[:, 1] == pytest.approx([16.0, 1.1, 4.10000004])


def test_stages_pay_for_what_crosses() -> None:
    times = simulated_times(CHAIN, TWO, Configuration((1, 2), (0, 1)))
    assert times.seconds == pytest.approx((3.7, 1.1 + 4.10000004 + 0.25 + 0.5))
    assert times.slowest == 1 and times.throughput == pytest.approx(1 / 5.95000004)


def test_links_between_two_places() -> None:
    values = TWO.model_dump()
    values["links"] = [{"between": ["slow", "fast"], "latency_s": 3.0}]
    other = platform_from_dict(values)
    times = simulated_times(CHAIN, other, Configuration((1, 2), (0, 1)))
    assert times.seconds[1] == pytest.approx(1.1 + 4.10000004 + 3.0)
    assert simulated_table(CHAIN, other).one_link


def test_noise_is_seeded_and_about_its_size() -> None:
    table = simulated_table(CHAIN, TWO)
    configuration = Configuration((1, 2), (0, 1))
    exact = SimulatedMeasure(table)(configuration)
    assert exact == table.times(configuration)
    one, other = SimulatedMeasure(table, 0.05, 3), SimulatedMeasure(table, 0.05, 3)
    found = [one(configuration).seconds[0] / exact.seconds[0] for _ in range(400)]
    assert other(configuration).seconds[0] / exact.seconds[0] == found[0]
    mean = sum(found) / 400
    assert mean == pytest.approx(1.0, abs=0.01)
    assert sum((x - mean) ** 2 for x in found) / 400 == pytest.approx(0.05**2, rel=0.3)


def test_what_cannot_be_simulated() -> None:
    real = platform_from_dict(
        {"name": "r", "places": [{"kind": "real", "name": "cpu", "core_ids": [0]}]}
    )
    with pytest.raises(PlatformError, match="place cpu is real: its times are measured"):
        simulated_table(CHAIN, real)
    with pytest.raises(ConfigurationError, match="hold 4 layers; the chain has 3"):
        simulated_times(CHAIN, TWO, Configuration((2, 2), (0, 1)))


def test_vgg16_s_published_throughput_fixed_the_tx2() -> None:
    """Layers of [6, 5, 10] in MACs (Equation 1): 1.22 frames a second in Table 6."""
    stages = chain([4_711_071_744, 5_549_064_192, 5_086_642_176])
    platform = load_platform("tx2-4core-setting1")
    places = platform.arrangement(3)
    assert places is not None
    found = simulated_times(stages, platform, Configuration((1, 1, 1), places))
    assert found.throughput == pytest.approx(1.22, rel=0.01)


def test_stage_times_of_one_stage() -> None:
    assert StageTimes((2.0,)).throughput == 0.5
