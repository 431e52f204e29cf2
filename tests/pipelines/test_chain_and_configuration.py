"""Chains and configurations refuse what cannot be run, and say why."""

from __future__ import annotations

import math
from typing import Any

import pytest

from tvm_npu.pipelines import ChainLayer, Configuration, LayerChain
from tvm_npu.pipelines.errors import ChainError, ConfigurationError


def test_a_configuration_knows_its_ranges() -> None:
    configuration = Configuration((3, 1, 2), (2, 0, 1))
    assert list(configuration.ranges()) == [(0, 3), (3, 4), (4, 6)]
    assert configuration.layer_count == 6 and len(configuration) == 3
    assert str(configuration) == "[3, 1, 2] on (2, 0, 1)"
    configuration.validate(6, 3)


@pytest.mark.parametrize(
    ("stages", "places", "message"),
    [
        ((), (), "at least one stage"),
        ((3, 0), (0, 1), "stage 1 has 0 layers"),
        ((3,), (0, 1), "1 stages on 2 places"),
        ((3, 1), (0, -1), "stage 1 is on place -1"),
        ((3, 1, 2), (1, 0, 1), "stages 0 and 2 are both on place 1"),
        ((math.nan,), (0,), "stage 0 has nan layers"),
        ((1.5, 2.5), (0, 1), "stage 0 has 1.5 layers"),
        ((1 << 63,), (0,), "stage 0 has 9223372036854775808 layers"),
        ((3,), (None,), "stage 0 is on place None"),
        ((3,), (True,), "stage 0 is on place True"),
        ([3], (0,), "stages of a configuration are a list of 1 items; a tuple"),
        ((3,), None, "places of a configuration are None; a tuple"),
    ],
)
def test_impossible_configurations(
    stages: Any, places: Any, message: str
) -> None:
    with pytest.raises(ConfigurationError, match=message):
        Configuration(stages, places)


def test_a_configuration_for_another_chain_or_platform() -> None:
    with pytest.raises(ConfigurationError, match=r"\[3, 4\] on \(1, 0\) hold 7 .* chain has 8"):
        Configuration((3, 4), (1, 0)).validate(8, 2)
    with pytest.raises(ConfigurationError, match="on place 2; the platform has places 0 to 1"):
        Configuration((3, 4), (2, 0)).validate(7, 2)


def test_chains_that_cannot_be() -> None:
    with pytest.raises(ChainError, match="model x has no layers"):
        LayerChain("x", ())
    with pytest.raises(ChainError, match="layer conv: weight nan"):
        ChainLayer("conv", math.nan, 1, 1, 1)
    with pytest.raises(ChainError, match="layer conv: parameter_bytes = -1 is below 0"):
        ChainLayer("conv", 1.0, 1, -1, 1)
    layer = ChainLayer("conv", 2.0, 1, 1, 1)
    with pytest.raises(ChainError, match="input_bytes = -4 is below 0"):
        LayerChain("x", (layer,), -4)
    assert LayerChain("x", (layer, layer)).weights == (2.0, 2.0)
    wrong: Any
    for wrong in (math.nan, math.inf, 1.5, None, "1", 1j, True, 10**400):
        with pytest.raises(ChainError, match="layer conv: weight"):
            ChainLayer("conv", "x" if wrong in (1.5, True) else wrong, 1, 1, 1)
        with pytest.raises(ChainError, match="layer conv: macs = .* is no whole number"):
            ChainLayer("conv", 1.0, wrong, 1, 1)
        with pytest.raises(ChainError, match="input_bytes = .* is no whole number"):
            LayerChain("x", (layer,), wrong)
        with pytest.raises(ChainError, match="model x: layers are"):
            LayerChain("x", wrong)
