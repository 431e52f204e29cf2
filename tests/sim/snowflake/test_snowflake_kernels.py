"""Hand-written convolutions: the reference's bits in both modes, and table 3's efficiency."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from tests.sim.snowflake.kernels import Layer, coop, indp, reference, run
from tests.sim.snowflake.programs import machine
from tvm_npu.codegen.fixed_point import requantize


def arrays(layer: Layer, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Maps, weights and biases; the sums reach saturation now and then."""
    rng = np.random.default_rng(seed)
    maps = rng.integers(-900, 900, (layer.size, layer.size, layer.planes)).astype(np.int16)
    shape = (layer.filters, layer.kernel, layer.kernel, layer.planes)
    weights = rng.integers(-300, 300, shape).astype(np.int16)
    return maps, weights, rng.integers(-(1 << 20), 1 << 20, layer.filters).astype(np.int32)


MODES = settings(deadline=None, max_examples=25, phases=[Phase.explicit, Phase.generate])


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
