"""Resizes, slices, transposes and concatenations on Snowflake machines against the reference: every
bit, and a race checker that has nothing to say."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from tests.codegen.snowflake.move_cases import factored, moves
from tests.codegen.snowflake.snowflake_cases import MACHINES, graph_of, machine, outcome
from tests.examples import examples
from tvm_npu.codegen import ops
from tvm_npu.codegen.compile import generate
from tvm_npu.codegen.graph import FixedGraph, FixedLayer, Shape
from tvm_npu.codegen.graph.scale import q_point_scales
from tvm_npu.codegen.ops.reshape import fixed_reshape

RANDOM = settings(deadline=None, max_examples=examples(40), phases=[Phase.explicit, Phase.generate])


@st.composite
def moving_graphs(draw: st.DrawFn) -> FixedGraph:
    """A move, sometimes with reshapes around it and copies of its neighbours' elements."""
    layer = draw(moves())
    *sources, target = layer.shapes
    shapes: dict[str, Shape] = dict(zip(layer.inputs, sources, strict=True)) | {"y": target}
    layers: list[FixedLayer] = [layer]
    inputs, outputs = list(layer.inputs), ["y"]
    if draw(st.booleans()):
        shapes["before"] = draw(factored(int(np.prod(sources[0]))))
        layers.insert(0, fixed_reshape("front", "before", layer.inputs[0]))
        inputs[0] = "before"
    if draw(st.booleans()):
        shapes["after"] = draw(factored(int(np.prod(target))))
        layers.append(fixed_reshape("behind", "y", "after"))
        outputs = ["after", "y"] if draw(st.booleans()) else ["after"]
    scales = q_point_scales(dict.fromkeys(shapes, 8))
    return FixedGraph(tuple(layers), shapes, tuple(inputs), tuple(outputs), scales, 2)


@RANDOM
@given(moving_graphs(), st.sampled_from(MACHINES), st.integers(0, 1 << 30))
def test_random_moves(fixed: FixedGraph, name: str, seed: int) -> None:
    found = outcome(fixed, machine(name), seed=seed)
    assert (found.wrong, found.hazards) == (0, ())


def resize(shape: Shape, factor: int) -> FixedGraph:
    """Rows and columns ``factor`` times."""
    channels, rows, columns = shape
    picks = [tuple(at // factor for at in range(factor * size)) for size in (rows, columns)]
    layer = ops.ResizeNearest("up", ("x",), ("y",), shape, *picks)
    _, target, pieces = ops.operator_of(layer).moved(layer)
    moved = ops.FixedMove("up", ("x",), ("y",), tuple(pieces), "resize", (shape, target))
    return graph_of(moved, {"x": shape, "y": target})


def test_a_resize_takes_the_time_of_its_bytes() -> None:
    """Every pixel comes once and leaves four times; predictions and bytes are those of the run."""
    fixed = resize((64, 20, 24), 2)
    on = machine("snowflake-1cc")
    found = outcome(fixed, on)
    run, words = found.statistics, 64 * 20 * 24
    assert run.moved_bytes == 2 * words * (1 + 4)
    least = 2 * words * 5 / on.memory_bytes_per_cycle
    assert least <= run.cycles <= 1.25 * least
    (planned,) = found.planned_cycles
    assert planned is not None and abs(planned / run.layers[0].cycles - 1) < 0.15


def test_pixels_that_fill_no_unit_of_memory_are_repeated_on_the_chip() -> None:
    """Stores of single pixels would take a unit each."""
    (planned,) = generate(resize((3, 20, 24), 2), machine("snowflake-1cc")).planned.layers
    (wide,) = generate(resize((64, 20, 24), 2), machine("snowflake-1cc")).planned.layers
    assert len(planned.plan.pieces[0].stored_again) < len(wide.plan.pieces[0].stored_again)


def test_a_channel_shuffle_is_one_move() -> None:
    """The reshapes around the transpose take no layer, though channels lie inside."""
    whole, parted, turned = (48, 6, 5), (4, 12, 6, 5), (12, 4, 6, 5)
    transpose = ops.Transpose("turn", ("a",), ("b",), parted, (1, 0, 2, 3))
    _, _, pieces = ops.operator_of(transpose).moved(transpose)
    moved = ops.FixedMove("turn", ("a",), ("b",), tuple(pieces), "transpose", (parted, turned))
    layers = (fixed_reshape("part", "x", "a"), moved, fixed_reshape("join", "b", "y"))
    shapes: dict[str, Shape] = {"x": whole, "a": parted, "b": turned, "y": whole}
    scales = q_point_scales(dict.fromkeys(shapes, 8))
    fixed = FixedGraph(layers, shapes, ("x",), ("y",), scales, 2)
    found = outcome(fixed, machine("snowflake-2cc"))
    assert [entry.name for entry in found.program.layers] == ["turn"]
    assert (found.wrong, found.hazards) == (0, ())
    kept = replace(fixed, outputs=("y", "b"))
    assert outcome(kept, machine("snowflake-2cc")).wrong == 0


def test_a_move_behind_a_move_and_its_reshape() -> None:
    """The first makes what the reshape made, and the second reads that."""
    first = ops.Transpose("turn", ("x",), ("a",), (6, 4, 5), (2, 0, 1))
    second = ops.StridedSlice("pick", ("b",), ("y",), (3, 10, 4), (2, 1, 0), (-1, 3, 1), (3, 3, 4))
    layers: list[FixedLayer] = []
    for layer in (first, second):
        (source,), target, pieces = ops.operator_of(layer).moved(layer)
        layers.append(
            ops.FixedMove(
                layer.name, layer.inputs, layer.outputs, tuple(pieces), "move", (source, target)
            )
        )
    layers.insert(1, fixed_reshape("between", "a", "b"))
    shapes: dict[str, Shape] = {"x": (6, 4, 5), "a": (5, 6, 4), "b": (3, 10, 4), "y": (3, 3, 4)}
    scales = q_point_scales(dict.fromkeys(shapes, 8))
    found = outcome(
        FixedGraph(tuple(layers), shapes, ("x",), ("y",), scales, 2), machine("snowflake-1cc")
    )
    assert [entry.name for entry in found.program.layers] == ["turn", "pick"]
    assert (found.wrong, found.hazards) == (0, ())
