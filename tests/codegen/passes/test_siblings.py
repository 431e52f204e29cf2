"""Convolutions of one tensor run as one: the same values, no copies, and on NMPs less time."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.codegen.nmp.fixed_layers import random_tensors
from tests.codegen.nmp.simulated import simulate
from tests.examples import examples
from tvm_npu.codegen.compile import generate
from tvm_npu.codegen.fixed_point import element_limits
from tvm_npu.codegen.graph import FixedGraph, Shape, q_point_scales
from tvm_npu.codegen.graph.rescaling import Rescaling
from tvm_npu.codegen.ops import FixedConcat, FixedConv
from tvm_npu.codegen.passes.siblings import siblings, with_siblings
from tvm_npu.codegen.passes.storage import plan_storage
from tvm_npu.codegen.reference import run_fixed
from tvm_npu.sim.nmp.machine import load_nmp_machine

MOST_SHIFT = load_nmp_machine("nmp-4x8").requantization("int8").most_channel_shift
ENDS = ("plain", "filters", "multipliers")
"""What requantization knows: one shift, one a filter, multipliers."""


def convolution(
    rng: np.random.Generator, name: str, inputs: str, filters: int, channels: int, size: int,
    end: str = "plain", kernel: int = 1,
) -> FixedConv:  # fmt: skip
    low, high = element_limits(size)
    weight = rng.integers(low, high + 1, (filters, channels, kernel, kernel))
    shifts = rng.integers(0, 5, filters).astype(np.int32) if end == "filters" else None
    rescaling = None
    if end == "multipliers":
        count = filters if rng.integers(2) else 1
        words = rng.integers(1 << 22, 1 << 23, count), rng.integers(30, 34, count)
        rescaling = Rescaling(*words, zero_point=3, halves="even")
    return FixedConv(
        name, (inputs,), (name,), weight.astype(np.int8 if size == 1 else np.int16),
        rng.integers(-(1 << 20), 1 << 20, filters).astype(np.int32),
        padding=(kernel // 2,) * 4, filter_shifts=shifts, rescaling=rescaling,
        shift=8 * size + (int(rng.integers(0, 3)) if end == "filters" else 0), low=0, high=high,
    )  # fmt: skip


def module(
    seed: int, filters: tuple[int, ...], map_size: tuple[int, int], channels: int = 16,
    size: int = 2, end: str = "plain", kernel: int = 1,
) -> FixedGraph:  # fmt: skip
    """Branches of a tensor that a convolution makes: the first goes into a concatenation as it is,
    the others through another convolution each; another one reads all of that."""
    rng = np.random.default_rng(seed)

    def made(name: str, inputs: str, count: int, of: int, kernel: int) -> FixedConv:
        shapes[name] = (count, *map_size)
        return convolution(rng, name, inputs, count, of, size, end, kernel)

    shapes: dict[str, Shape] = {"image": (3, *map_size)}
    layers: list[Any] = [made("x", "image", channels, 3, 1)]
    layers += [made(f"b{n}", "x", count, channels, kernel) for n, count in enumerate(filters)]
    behind = [made(f"c{n}", f"b{n}", 4, count, 3) for n, count in enumerate(filters) if n]
    parts = ("b0", *(one.name for one in behind))
    width = sum(shapes[part][0] for part in parts)
    shapes["whole"] = (width, *map_size)
    layers += [*behind, FixedConcat("together", parts, ("whole",))]
    layers += [made("y", "whole", 5, width, 1)]
    return FixedGraph(
        tuple(layers), shapes, ("image",), ("y",), q_point_scales(dict.fromkeys(shapes, 8)),
        size,  # type: ignore[arg-type]
    )  # fmt: skip


def all_joined(fixed: FixedGraph) -> FixedGraph:
    for found in siblings(fixed, MOST_SHIFT):
        fixed = with_siblings(fixed, found)
    return fixed


@settings(max_examples=examples(60))
@given(
    filters=st.lists(st.integers(1, 5), min_size=2, max_size=4),
    map_size=st.tuples(st.integers(3, 6), st.integers(3, 6)), end=st.sampled_from(ENDS),
    kernel=st.sampled_from((1, 3)), seed=st.integers(0, 1000),
)  # fmt: skip
def test_the_values_are_the_same(
    filters: list[int], map_size: tuple[int, int], end: str, kernel: int, seed: int
) -> None:
    size = 2 if end == "plain" else 1
    fixed = module(seed, tuple(filters), map_size, 6, size, end, kernel)
    (found,) = siblings(fixed, MOST_SHIFT)
    assert [one.name for one in found.members] == [f"b{n}" for n in range(1, len(filters))] + ["b0"]
    made = with_siblings(fixed, found)
    image = {n: v[None] for n, v in random_tensors(fixed, seed).items()}
    before, after = run_fixed(fixed, image), run_fixed(made, image)
    np.testing.assert_array_equal(after["y"], before["y"])
    executed = plan_storage(made).layers
    assert len(executed) == len(plan_storage(fixed).layers) - len(filters) + 1, executed
    assert all(isinstance(layer, FixedConv) for layer in executed)


def test_what_a_concatenation_puts_elsewhere_stays_by_itself() -> None:
    fixed = module(1, (3, 4, 5), (4, 4))
    layers = list(fixed.layers)
    at = next(n for n, layer in enumerate(layers) if isinstance(layer, FixedConcat))
    layers[at] = replace(layers[at], inputs=("c1", "b0", "c2"))
    (found,) = siblings(replace(fixed, layers=tuple(layers)))
    assert [one.name for one in found.members] == ["b1", "b2"] and found.together is None


@pytest.mark.parametrize("change", ["whole is an output", "whole goes on", "twice"])
def test_a_concatenation_that_cannot_move(change: str) -> None:
    """What it makes has to begin where a buffer begins."""
    fixed = module(1, (3, 4, 5), (4, 4))
    more: tuple[Any, ...] = ()
    if change == "whole is an output":
        fixed = replace(fixed, outputs=("y", "whole"))
    elif change == "whole goes on":
        more = (FixedConcat("outer", ("whole", "x"), ("z",)),)
    else:
        more = (FixedConcat("outer", ("b0", "x"), ("z",)),)
    fixed = replace(fixed, layers=(*fixed.layers, *more))
    (found,) = siblings(fixed)
    assert [one.name for one in found.members] == ["b1", "b2"]


@pytest.mark.parametrize(
    "change",
    [
        {"low": -5}, {"high": 5}, {"shift": 3}, {"stride": (2, 2)}, {"padding": (1, 1, 1, 1)},
        {"inputs": ("x", "b2")}, {"slopes": np.arange(4, dtype=np.int16)}, {"out_bytes": 1},
        {"fill": 3}, {"weight_zero_point": 1}, {"filter_shifts": np.zeros(4, np.int32)},
    ],
    ids=lambda change: next(iter(change)),
)  # fmt: skip
def test_layers_that_differ_are_no_siblings(change: dict[str, Any]) -> None:
    fixed = module(1, (3, 4, 5), (4, 4))
    layers = [
        replace(layer, **change) if layer.name == "b1" else layer for layer in fixed.layers
    ]
    (found,) = siblings(replace(fixed, layers=tuple(layers)))
    assert [one.name for one in found.members] == ["b2", "b0"]


def test_filters_whose_shifts_differ_by_too_much() -> None:
    fixed = module(1, (3, 4), (4, 4), size=1, end="filters")
    assert list(siblings(fixed, MOST_SHIFT))
    assert not list(siblings(fixed, 1))


@pytest.mark.parametrize(
    ("name", "size", "end"),
    [
        ("nmp-4x8", 2, "plain"), ("nmp-4x8-dual", 2, "plain"), ("nmp-4x8", 1, "filters"),
        ("nmp-4x8-dual", 1, "filters"), ("nmp-4x8-scale", 1, "multipliers"),
    ],
)  # fmt: skip
def test_an_nmp_runs_them_as_one(name: str, size: int, end: str) -> None:
    machine = load_nmp_machine(name)
    fixed = module(5, (64, 48, 64), (35, 35), 96, size, end)
    image = random_tensors(fixed, 6)
    right = run_fixed(fixed, {name: values[None] for name, values in image.items()})["y"][0]
    cycles = {}
    for planner in ("exact", "exact-layers"):
        program = generate(fixed, machine, planner).program()
        names = [entry.name for entry in program.layers]
        assert ("b1+b2+b0" in names) == (planner == "exact"), names
        assert all(entry.kind != "copy" for entry in program.layers)
        outputs, statistics = simulate(program, image)
        np.testing.assert_array_equal(outputs["y"], right)
        cycles[planner] = statistics.cycles
        for entry, layer in zip(program.layers, statistics.layers, strict=True):
            if "b1" in entry.name:
                assert entry.predicted_cycles == pytest.approx(layer.cycles, rel=0.05)
    assert cycles["exact"] < 0.97 * cycles["exact-layers"]


def test_they_are_joined_only_where_that_is_faster() -> None:
    """Filters of all together may not divide as well among cores as those of each."""
    machine = load_nmp_machine("nmp-4x8")
    fixed = module(5, (32, 1, 1), (8, 8), 256)
    planned = generate(fixed, machine, "exact").planned
    names = [one.layer.name for one in planned.layers]
    total = sum(one.predicted_cycles or 0.0 for one in planned.layers)
    apart = generate(fixed, machine, "exact-layers").planned
    assert total <= sum(one.predicted_cycles or 0.0 for one in apart.layers), names
