"""Hand-written convolutions: the reference's bits in both modes, and table 3's efficiency."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from tests.examples import examples
from tests.sim.snowflake.kernels import Layer, coop, indp, network, reference, run
from tests.sim.snowflake.programs import machine, words
from tvm_npu.codegen.fixed_point import requantize
from tvm_npu.sim.machine_file import machine_names
from tvm_npu.sim.snowflake.simulator import Segment, SnowflakeSimulator
from tvm_npu.sim.statistics import RunStatistics


def arrays(layer: Layer, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Maps, weights and biases; the sums reach saturation now and then."""
    rng = np.random.default_rng(seed)
    maps = rng.integers(-900, 900, (layer.size, layer.size, layer.planes)).astype(np.int16)
    shape = (layer.filters, layer.kernel, layer.kernel, layer.planes)
    weights = rng.integers(-300, 300, shape).astype(np.int16)
    return maps, weights, rng.integers(-(1 << 20), 1 << 20, layer.filters).astype(np.int32)


MODES = settings(deadline=None, max_examples=examples(25), phases=[Phase.explicit, Phase.generate])


@MODES
@given(st.data())
def test_coop_convolutions(data: st.DataObject) -> None:
    on = machine(data.draw(st.sampled_from(("snowflake-1cu", "snowflake-1cc"))))
    kernel = data.draw(st.sampled_from((1, 3, 5)))
    layer = Layer(
        size=data.draw(st.integers(kernel, 9)), planes=16 * data.draw(st.integers(1, 3)),
        filters=4 * on.clusters.cus * data.draw(st.integers(1, 3)), kernel=kernel,
        pad=data.draw(st.integers(0, kernel // 2)), stride=data.draw(st.integers(1, 2)),
    )  # fmt: skip
    maps, weights, bias = arrays(layer, data.draw(st.integers(0, 1 << 30)))
    parts = data.draw(st.integers(1, layer.out))
    built = coop(layer, on, weights, bias, parts, reuse_weights=data.draw(st.booleans()))
    found, _, results = run(built, layer, on, maps)
    assert not found.hazards
    assert np.array_equal(results, reference(layer, maps, weights, bias))


@MODES
@given(st.data())
def test_indp_convolutions(data: st.DataObject) -> None:
    on = machine(data.draw(st.sampled_from(("snowflake-1cu", "snowflake-1cc"))))
    kernel = data.draw(st.sampled_from((1, 3, 5, 7)))
    layer = Layer(
        size=data.draw(st.integers(kernel, 16)), planes=data.draw(st.integers(1, 5)),
        filters=data.draw(st.integers(1, 64)), kernel=kernel,
        pad=data.draw(st.integers(0, kernel // 2)), stride=data.draw(st.integers(1, 3)),
    )  # fmt: skip
    maps, weights, bias = arrays(layer, data.draw(st.integers(0, 1 << 30)))
    found, _, results = run(indp(layer, on, weights, bias), layer, on, maps)
    assert not found.hazards
    assert np.array_equal(results, reference(layer, maps, weights, bias))


def test_the_reference_here_rounds_as_the_project_does() -> None:
    acc = np.arange(-(1 << 18), 1 << 18, 7, dtype=np.int64)
    expected = np.clip((acc + 8) >> 4, -(1 << 15), (1 << 15) - 1)
    assert np.array_equal(requantize(acc, 4, -(1 << 15), (1 << 15) - 1, 2), expected)


@pytest.mark.parametrize(
    ("planes", "filters", "parts", "reuse_weights", "published_ms"),
    [(192, 384, 3, False, 11.08), (384, 256, 13, True, 14.77), (256, 256, 7, True, 9.86)],
)
def test_table_3(
    planes: int, filters: int, parts: int, reuse_weights: bool, published_ms: float
) -> None:
    """AlexNet's 3x3 layers over 13x13 maps on one CU: 99.6 to 99.8 % published."""
    on = machine("snowflake-1cu")
    layer = Layer(size=13, planes=planes, filters=filters, kernel=3, pad=1)
    maps, weights, bias = arrays(layer, 1)
    built = coop(layer, on, weights, bias, parts, reuse_weights)
    found, cycles, results = run(built, layer, on, maps)
    assert not found.hazards
    assert np.array_equal(results, reference(layer, maps, weights, bias))
    assert layer.macs / 64 / cycles > 0.996
    assert cycles / on.frequency_mhz / 1000 == pytest.approx(published_ms, rel=0.01)


def test_slow_memory_shows() -> None:
    """The same layer when memory gives a tenth: the loads cannot hide any more."""
    on = machine("snowflake-1cu", dram={"bandwidth_gb_per_s": 0.3})
    layer = Layer(size=13, planes=192, filters=384, kernel=3, pad=1)
    maps, weights, bias = arrays(layer, 1)
    _, cycles, results = run(coop(layer, on, weights, bias, 3), layer, on, maps)
    assert np.array_equal(results, reference(layer, maps, weights, bias))
    assert layer.macs / 64 / cycles < 0.85


def _network(
    name: str, layers: list[Layer], parts: int, **changes: Any
) -> tuple[SnowflakeSimulator, RunStatistics]:
    """A network of convolutions, its results checked."""
    on = machine(name, **changes)
    tensors = [arrays(layer, 7 + k) for k, layer in enumerate(layers)]
    maps = tensors[0][0]
    codes, constants, places, end = network(
        layers, on, [one[1] for one in tensors], [one[2] for one in tensors], parts
    )
    base = on.dram.base_address
    segments = [Segment(base, places[0], False), Segment(base + places[0], end - places[0], True)]
    found = SnowflakeSimulator(on, codes, segments, end)
    found.write(base, constants)
    found.write(base + places[0], maps)
    statistics = found.run()
    assert not found.hazards
    for k, (layer, (_, weights, bias)) in enumerate(zip(layers, tensors, strict=True)):
        maps = reference(layer, maps, weights, bias)
        got = found.dram[places[k + 1] :].view(np.int16)[: maps.size].reshape(maps.shape)
        assert np.array_equal(got, maps)
    found.dram[places[1] :] = 0
    found.run(timing=False)
    assert np.array_equal(found.dram[places[-1] :].view(np.int16), maps.reshape(-1))
    return found, statistics


MACHINES = [name for name in machine_names() if name.startswith("snowflake")]


@pytest.mark.parametrize("name", MACHINES)
def test_networks_on_every_machine(name: str) -> None:
    """Clusters load maps together, and read what all of them have stored behind a barrier."""
    layers = [Layer(9, 16, 64, 3, 1), Layer(9, 64, 128, 1, 0), Layer(9, 128, 64, 3, 1, stride=2)]
    _, statistics = _network(name, layers, 3)
    assert statistics.macs == sum(layer.macs for layer in layers)
    inputs = sum(2 * layer.size**2 * layer.planes for layer in layers)
    # Rows at the edges of parts are loaded twice, but no map once for each cluster.
    assert inputs <= statistics.loaded_bytes["in"] < 1.7 * inputs


def test_clusters_share_the_work() -> None:
    layer = Layer(14, 256, 256, 3, 1)
    cycles, moved = {}, []
    for name in ("snowflake-1cc", "snowflake-2cc", "snowflake-4cc"):
        found, statistics = _network(name, [layer], 7, dram={"bandwidth_gb_per_s": 28.0})
        cycles[name] = statistics.cycles
        moved.append(statistics.loaded_bytes)
        assert len(statistics.busy_cycles("mac")) == 2 * found.machine.clusters.count
    assert moved[0]["in"] == moved[1]["in"] == moved[2]["in"]
    assert moved[0]["weight"] == moved[1]["weight"] == moved[2]["weight"]
    assert cycles["snowflake-1cc"] / cycles["snowflake-2cc"] > 1.9
    assert cycles["snowflake-1cc"] / cycles["snowflake-4cc"] > 3


def test_a_network_without_its_barriers() -> None:
    """Without the barrier behind the first layer the clusters would read what is not there."""
    on = machine("snowflake-2cc")
    layers = [Layer(9, 16, 64, 3, 1), Layer(9, 64, 64, 3, 1)]
    tensors = [arrays(layer, 7 + k) for k, layer in enumerate(layers)]
    codes, constants, places, end = network(
        layers, on, [one[1] for one in tensors], [one[2] for one in tensors], 1
    )
    base = on.dram.base_address
    segments = [Segment(base, places[0], False), Segment(base + places[0], end - places[0], True)]
    weak = [
        np.where(code == words("sync clusters, 0\n")[0], words("sync all, 0\n")[0], code)
        for code in codes
    ]
    for programs, meets in ((codes, False), (weak, True)):
        found = SnowflakeSimulator(on, programs, segments, end)
        found.write(base, constants)
        found.write(base + places[0], tensors[0][0])
        found.run()
        assert bool(found.hazards) == meets
        for one in found.hazards:
            assert (one.memory, one.earlier.unit != one.later.unit) == ("memory", True)
