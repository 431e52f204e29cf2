"""Pools of concatenated tensors come apart: the same values, and on NMPs less time."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.codegen.nmp.simulated import simulate
from tests.examples import examples
from tvm_npu.codegen.compile import generate
from tvm_npu.codegen.graph import FixedGraph, Shape, output_extent, q_point_scales
from tvm_npu.codegen.ops import (
    FixedBlock,
    FixedCascade,
    FixedConcat,
    FixedConv,
    FixedPool,
)
from tvm_npu.codegen.passes.pools_apart import apart, pooled_parts, with_pools_apart
from tvm_npu.codegen.reference import run_fixed
from tvm_npu.sim.nmp.machine import load_nmp_machine

ENDS = {"shift": 9, "low": -30000, "high": 31000}


def convolution(rng: np.random.Generator, name: str, filters: int, channels: int) -> FixedConv:
    weight = rng.integers(-300, 300, (filters, channels, 3, 3)).astype(np.int16)
    bias = rng.integers(-(1 << 20), 1 << 20, filters).astype(np.int32)
    return FixedConv(name, ("x",), (name,), weight, bias, (1, 1), (1, 1, 1, 1), (1, 1), 1, **ENDS)


def parts_and_pool(
    rng: np.random.Generator, filters: tuple[int, ...], size: tuple[int, int],
    kind: Any = "max", kernel: int = 3, stride: int = 2, **pool: Any,
) -> FixedGraph:  # fmt: skip
    """Convolutions of one map, their results side by side, and a pool of that."""
    layers = [convolution(rng, f"part{n}", count, 16) for n, count in enumerate(filters)]
    names = tuple(one.name for one in layers)
    padding = (kernel // 2,) * 4
    pooled = FixedPool(
        "pool", ("whole",), ("y",), kind, (kernel, kernel), (stride, stride), padding,
        counted_padding=padding, **{**ENDS, "shift": 0, **pool},
    )  # fmt: skip
    out = [output_extent(extent, kernel, stride, 1, 2 * padding[0]) for extent in size]
    shapes: dict[str, Shape] = {
        "x": (16, *size), "whole": (sum(filters), *size), "y": (sum(filters), *out),
        **{name: (count, *size) for name, count in zip(names, filters, strict=True)},
    }  # fmt: skip
    return FixedGraph(
        (*layers, FixedConcat("together", names, ("whole",)), pooled), shapes, ("x",), ("y",),
        q_point_scales(dict.fromkeys(shapes, 8)), 2,
    )  # fmt: skip


def image(fixed: FixedGraph, seed: int) -> np.ndarray[Any, Any]:
    random = np.random.default_rng(seed)
    return random.integers(-3000, 3000, (1, *fixed.shapes["x"])).astype(np.int16)


@settings(max_examples=examples(60))
@given(
    filters=st.lists(st.integers(1, 5), min_size=1, max_size=4),
    size=st.tuples(st.integers(3, 9), st.integers(3, 9)),
    kind=st.sampled_from(("max", "avg")), kernel=st.integers(1, 3), stride=st.integers(1, 3),
    include=st.booleans(), seed=st.integers(0, 1000),
)  # fmt: skip
def test_the_values_are_the_same(
    filters: list[int], size: tuple[int, int], kind: str, kernel: int, stride: int, include: bool,
    seed: int,
) -> None:
    fixed = parts_and_pool(
        np.random.default_rng(seed), tuple(filters), size, kind, kernel, stride,
        count_include_pad=include,
    )  # fmt: skip
    made = with_pools_apart(fixed, lambda graph, found: True)
    kinds = [type(layer) for layer in made.layers]
    count = len(filters)
    assert kinds == [FixedConv] * count + [FixedPool] * count + [FixedConcat]
    assert "whole" not in [layer.outputs[0] for layer in made.layers]
    x = {"x": image(fixed, seed)}
    np.testing.assert_array_equal(run_fixed(made, x)["y"], run_fixed(fixed, x)["y"])
    assert with_pools_apart(fixed, lambda graph, found: False) is fixed


@pytest.mark.parametrize("change", ["output", "reader", "slopes"])
def test_pools_that_do_not_come_apart(change: str) -> None:
    """Somebody else wants the whole, or channels are not treated alike."""
    fixed = parts_and_pool(np.random.default_rng(1), (3, 4), (6, 6))
    *front, pool = fixed.layers
    assert [found.pool for found in pooled_parts(fixed)] == [pool]
    if change == "output":
        fixed = replace(fixed, outputs=("y", "whole"))
    elif change == "reader":
        other = replace(pool, name="other", outputs=("z",))
        shapes = {**fixed.shapes, "z": fixed.shapes["y"]}
        scales = {**fixed.scales, "z": fixed.scales["y"]}
        fixed = replace(fixed, layers=(*fixed.layers, other), shapes=shapes, scales=scales)
    else:
        slopes = np.arange(7, dtype=np.int16)
        fixed = replace(fixed, layers=(*front, replace(pool, slopes=slopes)))
    assert not list(pooled_parts(fixed))


def test_two_pools_are_chosen_one_by_one() -> None:
    fixed = parts_and_pool(np.random.default_rng(1), (3, 4), (6, 6))
    first = apart(fixed, next(iter(pooled_parts(fixed))))
    assert [layer.name for layer in first.layers][-3:] == ["pool.0", "pool.1", "together"]
    assert not list(pooled_parts(first))


@pytest.mark.parametrize("name", ["nmp-4x8", "nmp-4x8-dual"])
def test_an_nmp_runs_the_parts_behind_their_convolutions(name: str) -> None:
    machine = load_nmp_machine(name)
    fixed = parts_and_pool(np.random.default_rng(2), (32, 64), (27, 27))
    x = image(fixed, 3)
    cycles = {}
    for planner in ("exact", "exact-layers"):
        generated = generate(fixed, machine, planner)
        kinds = {type(one.layer) for one in generated.planned.layers}
        joined = {FixedCascade, FixedBlock} & kinds
        assert bool(joined) == (planner == "exact"), planner
        assert (FixedPool in kinds) == (planner != "exact")
        outputs, statistics = simulate(generated.program(), {"x": x[0]})
        np.testing.assert_array_equal(outputs["y"], run_fixed(fixed, {"x": x})["y"][0])
        cycles[planner] = statistics.cycles
    assert cycles["exact"] < 0.9 * cycles["exact-layers"]


def test_parts_stay_together_where_that_is_faster() -> None:
    """Parts that no convolution makes give the pools nothing to run behind."""
    machine = load_nmp_machine("nmp-4x8")
    whole = parts_and_pool(np.random.default_rng(2), (4, 4), (9, 9))
    concat = FixedConcat("together", ("x", "x"), ("whole",))
    shapes = {**whole.shapes, "whole": (32, 9, 9), "y": (32, 5, 5)}
    fixed = replace(whole, layers=(concat, whole.layers[-1]), shapes=shapes)
    planned = generate(fixed, machine, "exact").planned
    assert sum(isinstance(one.layer, FixedPool) for one in planned.layers) == 1
