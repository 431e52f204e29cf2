"""Chains and platforms at random, each by its seed, and what no configuration can beat."""

from __future__ import annotations

import numpy as np
from scipy.optimize import linprog

from tvm_npu.pipelines.chain import ChainLayer, LayerChain
from tvm_npu.pipelines.platform import Platform, platform_from_dict
from tvm_npu.pipelines.search.place_sets import place_classes
from tvm_npu.pipelines.times import TimeTable

MEDIAN_MACS = 5e7
SPREAD = 0.7
"""Deviation of the logarithm of a layer's MACs."""
SLOWEST_MACS_PER_S, FASTEST_MACS_PER_S = 1e9, 8e9


def random_chain(layers: int, seed: int) -> LayerChain:
    """MACs log-normal; parameters and tensors of any size up to some MB."""
    random = np.random.default_rng((seed, layers))
    macs = MEDIAN_MACS * np.exp(SPREAD * random.standard_normal(layers))
    parameters = random.integers(10**3, 2 * 10**6, layers)
    tensors = random.integers(10**4, 10**6, layers)
    return LayerChain(
        f"random-{layers}-{seed}",
        tuple(
            ChainLayer(f"layer{index}", float(work), int(work), int(held), int(moved))
            for index, (work, held, moved) in enumerate(zip(macs, parameters, tensors, strict=True))
        ),
    )


def random_platform(places: int, kinds: int, seed: int) -> Platform:
    """``places`` of ``kinds`` kinds, as even in number as they can be, one link between all."""
    random = np.random.default_rng((seed, places, kinds))
    rates = np.exp(random.uniform(np.log(SLOWEST_MACS_PER_S), np.log(FASTEST_MACS_PER_S), kinds))
    memories = np.exp(random.uniform(np.log(3e9), np.log(3e10), kinds))
    values = [
        {
            "kind": "simulated",
            "name": f"place{index}",
            "cores": 1,
            "macs_per_s": float(rates[index % kinds]),
            "bytes_per_s": float(memories[index % kinds]),
        }
        for index in range(places)
    ]
    link = {"latency_s": 2e-5, "bytes_per_s": 5e9}
    name = f"random-{places}-{kinds}-{seed}"
    return platform_from_dict({"name": name, "link": link, "places": values})


def least_bottleneck_s(table: TimeTable, platform: Platform) -> float:
    """No bottleneck is shorter: layers shared out over places in any pieces, without transfers (a
    linear program over layers and kinds of places); and no layer is faster than on its best place.
    """
    members = place_classes(platform).members
    layer_s = table.layer_s[:, [places[0] for places in members]]
    layers, kinds = layer_s.shape
    longest = float(layer_s.min(axis=1).max())
    scale = float(layer_s.sum(axis=0).min())
    # Unknowns: share of each layer on each kind, then the bottleneck.
    cost = np.zeros(layers * kinds + 1)
    cost[-1] = 1.0
    equal = np.zeros((layers, layers * kinds + 1))
    for layer in range(layers):
        equal[layer, layer * kinds : (layer + 1) * kinds] = 1.0
    most = np.zeros((kinds, layers * kinds + 1))
    for kind in range(kinds):
        most[kind, kind:-1:kinds] = layer_s[:, kind] / scale
        most[kind, -1] = -len(members[kind])
    found = linprog(cost, most, np.zeros(kinds), equal, np.ones(layers), method="highs")
    assert found.success, found.message
    return max(longest, float(found.fun) * scale * (1 - 1e-7))
