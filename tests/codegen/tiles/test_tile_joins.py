"""Maxima, and sums, differences and products with one number a channel, on tile machines: every bit
the reference's, in times that were predicted."""

from __future__ import annotations

from typing import Literal

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.codegen.nmp.fixed_layers import SEEDS, fixed_graph, random_tensors, requantizing
from tests.codegen.tiles.test_tile_differential import check
from tests.codegen.tiles.tile_cases import tile_machine, tile_machines
from tests.examples import examples
from tvm_npu.codegen.compile import compile_fixed
from tvm_npu.codegen.graph import FixedGraph, Shape
from tvm_npu.codegen.ops import FixedBroadcast, FixedDifference, FixedMaxFeatureMap, FixedMaximum
from tvm_npu.codegen.reference import run_fixed
from tvm_npu.runtime.session import Session
from tvm_npu.sim.machine_file import load_machine
from tvm_npu.sim.tiles.machine import TileMachine

ElementBytes = Literal[1, 2]
BROADCASTS = {"add": FixedBroadcast, "sub": FixedDifference, "mul": FixedBroadcast}


def joined(
    kind: str, shape: tuple[int, int, int], size: ElementBytes, step: dict[str, int]
) -> FixedGraph:
    channels, *extents = shape
    shapes: dict[str, Shape] = {"x": shape, "z": shape, "y": shape}
    if kind == "halves":
        shapes = {"x": (2 * channels, *extents), "y": shape}
        return fixed_graph(FixedMaxFeatureMap("l", ("x",), ("y",), **step), shapes, size)
    if kind == "maximum":
        return fixed_graph(FixedMaximum("l", ("x", "z"), ("y",), **step), shapes, size)
    shapes["z"] = (channels, 1, 1)
    made = BROADCASTS[kind]("l", ("x", "z"), ("y",), op=kind, **step)  # type: ignore[arg-type]
    return fixed_graph(made, shapes, size)


@st.composite
def joins(draw: st.DrawFn, size: ElementBytes) -> FixedGraph:
    kind = draw(st.sampled_from((*BROADCASTS, "maximum", "halves")))
    step = draw(requantizing(size, least=-4))
    if kind not in BROADCASTS:
        step["shift"] = 0
    shape = (draw(st.integers(1, 20)), draw(st.integers(1, 9)), draw(st.integers(1, 9)))
    return joined(kind, shape, size, step)


@settings(max_examples=examples(60), deadline=None)
@given(st.data(), tile_machines(), st.sampled_from((1, 2)), SEEDS)
def test_joins(data: st.DataObject, machine: TileMachine, size: ElementBytes, seed: int) -> None:
    fixed = data.draw(joins(size))
    check(fixed, random_tensors(fixed, seed), machine, seed)


@pytest.mark.parametrize(
    ("kind", "shape"),
    [("halves", (1, 1100, 1000)), ("mul", (1, 1100, 1000)), ("add", (1_100_000, 1, 1))],
)
def test_tiles_that_memories_hold_and_registers_do_not(
    kind: str, shape: tuple[int, int, int]
) -> None:
    step = {"shift": 7 if kind == "mul" else 0, "low": -128, "high": 127}
    fixed = joined(kind, shape, 1, step)
    values = {name: one[None] for name, one in random_tensors(fixed, 4).items()}
    program = compile_fixed(fixed, tile_machine((16 << 20,) * 3))
    (found,) = Session(program).run_fixed([values[name] for name in fixed.inputs])
    np.testing.assert_array_equal(found, run_fixed(fixed, values)["y"])


@pytest.mark.parametrize(
    ("kind", "shape"), [("add", (48, 40, 41)), ("mul", (2, 120, 123)), ("maximum", (48, 40, 41))]
)
def test_times_are_predicted(kind: str, shape: tuple[int, int, int]) -> None:
    """In several tiles, of which transfers bind some and the array others."""
    machine = load_machine("setup-a")
    step = {"shift": 0, "low": -128, "high": 127}
    fixed = joined(kind, shape, 1, step)
    program = compile_fixed(fixed, machine)
    session = Session(program)
    session.run_fixed([one[None] for one in random_tensors(fixed, 3).values()])
    statistics = session.statistics
    assert statistics is not None
    (layer,) = program.layers
    assert layer.predicted_cycles == pytest.approx(statistics.cycles, abs=4)
