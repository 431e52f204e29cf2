"""Small chains, platforms and time tables for tests."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations, permutations

import numpy as np
from hypothesis import strategies as st

from tvm_npu.pipelines.chain import ChainLayer, LayerChain
from tvm_npu.pipelines.configuration import Configuration
from tvm_npu.pipelines.platform import Platform, platform_from_dict
from tvm_npu.pipelines.times import TimeTable


def chain(weights: Sequence[int], parameters: int = 0, activations: int = 0) -> LayerChain:
    """Layers whose MACs are their weights."""
    layers = tuple(
        ChainLayer(f"layer{index}", float(weight), weight, parameters, activations)
        for index, weight in enumerate(weights)
    )
    return LayerChain("made-up", layers)


def simulated(rates: Sequence[float], cores: Sequence[Sequence[int]] | None = None) -> Platform:
    """One place a rate; ``cores`` names the cores that places share."""
    places = []
    for index, rate in enumerate(rates):
        place = {
            "kind": "simulated", "name": f"p{index}", "cores": 1, "macs_per_s": rate,
            "bytes_per_s": 1e12,
        }  # fmt: skip
        if cores is not None:
            place["core_ids"] = list(cores[index])
            place["cores"] = len(cores[index])
        places.append(place)
    return platform_from_dict({"name": "made-up", "places": places})


def plain_optimum(table: TimeTable, platform: Platform) -> tuple[float, int]:
    """Least bottleneck and size of the whole space with every place told apart, by nothing but the
    definition: every subset and order of places without a common core, every cut."""
    best, count = float("inf"), 0
    layers = table.layer_count
    for stages in range(1, min(layers, len(platform)) + 1):
        for places in permutations(range(len(platform)), stages):
            cores = [core for place in places for core in platform.core_sets[place]]
            if len(set(cores)) < len(cores):
                continue
            for inner in combinations(range(1, layers), stages - 1):
                edges = (0, *inner, layers)
                worst = 0.0
                for stage, place in enumerate(places):
                    first, end = edges[stage], edges[stage + 1]
                    taken = sum(table.layer_s[first:end, place])
                    if stage:
                        before = places[stage - 1]
                        crossing = table.crossing_bytes[first - 1] * table.byte_s[before, place]
                        taken += table.latency_s[before, place] + crossing
                    worst = max(worst, taken)
                best, count = min(best, worst), count + 1
    return best, count


def configurations(count: int, layers: int) -> Iterator[Configuration]:
    """Every cut into ``count`` stages on the first places."""
    for inner in combinations(range(1, layers), count - 1):
        edges = (0, *inner, layers)
        stages = tuple(b - a for a, b in zip(edges, edges[1:], strict=False))
        yield Configuration(stages, tuple(range(count)))


@st.composite
def real_cases(draw: st.DrawFn) -> tuple[TimeTable, Platform]:
    """Up to six layers on up to four places, some of which share cores; any times and links."""
    places = draw(st.integers(1, 4))
    layers = draw(st.integers(1, 6))
    cores = [
        sorted(draw(st.sets(st.integers(0, 4), min_size=1, max_size=2))) for _ in range(places)
    ]
    platform = platform_from_dict(
        {
            "name": "drawn",
            "places": [
                {"kind": "real", "name": f"p{index}", "core_ids": ids}
                for index, ids in enumerate(cores)
            ],
        }
    )
    random = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    latency = random.integers(0, 4, (places, places)) * float(draw(st.sampled_from([0.0, 0.5])))
    if draw(st.booleans()):
        latency[:] = 0.25
    table = TimeTable(
        random.integers(1, 9, (layers, places)).astype(float),
        random.integers(0, 4, layers).astype(float),
        latency,
        np.full((places, places), 0.125),
    )
    return table, platform
