"""Which layers run as one: the least total time over the graph."""

from __future__ import annotations

import random
from dataclasses import replace
from itertools import combinations
from typing import Any

import numpy as np
import pytest

from tvm_npu.codegen.graph import FixedGraph, q_point_scales
from tvm_npu.codegen.ops import FixedBlock, FixedConv
from tvm_npu.codegen.passes.blocks import blocks_behind, is_pointwise
from tvm_npu.codegen.passes.joined import Joined, with_joined


def conv(name: str, source: str, kernel: int = 1, **fields: object) -> FixedConv:
    weight = np.ones((2, 2, kernel, kernel), np.int8)
    bias = np.zeros(2, np.int32)
    limits = {"shift": 0, "low": -128, "high": 127}
    return FixedConv(
        name, (source,), (f"{name}_out",), weight=weight, bias=bias, **limits, **fields
    )  # type: ignore[arg-type]


def line(count: int) -> FixedGraph:
    """Two lines of ``count`` pointwise convolutions behind one input."""
    layers, outputs = [], []
    for side in "ab":
        made = "x"
        for number in range(count):
            layers.append(conv(f"{side}{number}", made))
            made = layers[-1].output
        outputs.append(made)
    shapes = {name: (2, 3, 3) for name in ("x", *(layer.output for layer in layers))}
    return FixedGraph(
        tuple(layers), shapes, ("x",), tuple(outputs), q_point_scales(dict.fromkeys(shapes, 0)), 1
    )  # fmt: skip


@pytest.mark.parametrize("seed", range(20))
def test_nothing_is_faster(seed: int) -> None:
    """Against all ways to choose candidates that share no layer."""
    random.seed(seed)
    graph = line(4)
    cycles = {layer.name: float(random.randint(1, 9)) for layer in graph.layers}
    candidates = []
    for side in (graph.layers[:4], graph.layers[4:]):
        for begin, end in combinations(range(5), 2):
            if end - begin > 1 and random.random() < 0.6:
                run = side[begin:end]
                name = "+".join(layer.name for layer in run)
                cycles[name] = float(random.randint(1, 6 * len(run)))
                joined = conv(name, run[0].inputs[0])
                joined = FixedConv(**{**vars(joined), "outputs": run[-1].outputs})
                candidates.append(Joined(joined, tuple(layer.output for layer in run)))

    def total(chosen: tuple[Joined, ...]) -> float | None:
        members = [tensor for one in chosen for tensor in one.members]
        if len(set(members)) < len(members):
            return None
        rest = (layer.name for layer in graph.layers if layer.output not in members)
        return sum(cycles[name] for name in (*rest, *(one.layer.name for one in chosen)))

    ways = (ways for size in range(len(candidates) + 1) for ways in combinations(candidates, size))
    least = min(found for way in ways if (found := total(way)) is not None)
    made = with_joined(graph, candidates, lambda layer: cycles[layer.name])
    assert sum(cycles[layer.name] for layer in made.layers) == least
    done = [part for layer in made.layers for part in layer.name.split("+")]
    assert sorted(done) == sorted(layer.name for layer in graph.layers)
    known = {"x"}
    for layer in made.layers:
        assert set(layer.inputs) <= known
        known.update(layer.outputs)


def test_a_tie_leaves_layers_apart() -> None:
    graph = line(2)
    pair = FixedConv(**{**vars(conv("both", "x")), "outputs": graph.layers[1].outputs})
    joined = Joined(pair, (graph.layers[0].output, graph.layers[1].output))
    times = {"both": 4.0}
    apart = with_joined(graph, [joined], lambda one: times.get(one.name, 2.0))
    assert apart.layers == graph.layers
    times["both"] = 3.9
    made = with_joined(graph, [joined], lambda one: times.get(one.name, 2.0))
    assert [layer.name for layer in made.layers] == ["both", "b0", "b1"]


def test_blocks_stand_behind_heads_that_nobody_else_reads() -> None:
    graph = line(3)
    (found,) = blocks_behind(graph, [graph.layers[1]])  # type: ignore[list-item]
    assert isinstance(found, FixedBlock)
    assert (found.inputs, found.outputs) == (graph.layers[1].inputs, graph.layers[2].outputs)
    assert not blocks_behind(graph, [graph.layers[2]])  # type: ignore[list-item]
    both = FixedGraph(**{**vars(graph), "outputs": ("a1_out", *graph.outputs)})
    assert not blocks_behind(both, [graph.layers[1]])  # type: ignore[list-item]
    shapes = {**graph.shapes, "c_out": (2, 3, 3)}
    other = conv("c", "a1_out")
    twice = replace(graph, layers=(*graph.layers, other), shapes=shapes)
    assert not blocks_behind(twice, [graph.layers[1]])  # type: ignore[list-item]
    adds = replace(other, inputs=("x", "a1_out"))
    added = replace(graph, layers=(*graph.layers[:2], adds), shapes=shapes, outputs=("c_out",))
    assert not blocks_behind(added, [graph.layers[1]])  # type: ignore[list-item]
    residual = replace(graph.layers[1], inputs=(*graph.layers[1].inputs, "x"))
    assert not blocks_behind(graph, [residual])  # type: ignore[list-item]


@pytest.mark.parametrize(
    "fields",
    [{"kernel": 3}, {"stride": (2, 2)}, {"padding": (0, 0, 1, 0)}, {"groups": 2},
     {"is_dense": True}],
)  # fmt: skip
def test_what_is_not_pointwise(fields: dict[str, Any]) -> None:
    assert is_pointwise(conv("c", "x")) and not is_pointwise(conv("c", "x", **fields))
