"""The thesis's layers as planning questions, and as regions of one layer to simulate."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

import numpy as np

from tvm_npu.codegen.graph import FixedGraph, Shape, q_point_scales
from tvm_npu.codegen.ops import FixedConv
from tvm_npu.codegen.plan.problem import ConvProblem
from tvm_npu.models.eplanner import ThesisNetwork
from tvm_npu.models.layers import LayerShape
from tvm_npu.sim.tiles.machine import TileMachine


@dataclass(frozen=True)
class Workload:
    """A network's distinct layers, how often each runs, and the question that it asks."""

    model: str
    layers: int
    distinct: int
    problems: tuple[tuple[ConvProblem, int], ...]

    @property
    def compulsory_bytes(self) -> int:
        """Every tensor once (the thesis's optimum)."""
        return sum(count * tensor_bytes(problem) for problem, count in self.problems)


def tensor_bytes(problem: ConvProblem) -> int:
    weights = problem.filters * (problem.channels // problem.groups)
    weights *= problem.kernel[0] * problem.kernel[1]
    inputs = problem.channels * problem.in_rows * problem.in_columns
    return (inputs + weights + problem.filters * problem.rows * problem.columns) * (
        problem.element_bytes
    )


def workload(model: str, network: ThesisNetwork, machine: TileMachine) -> Workload:
    """The layers that the thesis schedules, int8 in the machine's words. Layers that differ only in
    who reads their result are distinct in Table 4.1 and ask the same question."""
    layers = network.scheduled_layers()
    shapes = Counter(shape for _, shape in layers)
    problems: Counter[ConvProblem] = Counter()
    for shape, count in shapes.items():
        problems[problem_of(shape, machine)] += count
    return Workload(model, len(layers), len(shapes), tuple(problems.items()))


def problem_of(shape: LayerShape, machine: TileMachine) -> ConvProblem:
    dense = shape.operator != "Conv"
    filters = shape.output[1]
    rows, columns = (1, 1) if dense else shape.output[2:]
    in_rows, in_columns = (1, 1) if dense else shape.input[2:]
    return ConvProblem(
        filters=filters,
        channels=shape.input[1],
        groups=shape.groups,
        rows=rows,
        columns=columns,
        in_rows=in_rows,
        in_columns=in_columns,
        kernel=(1, 1) if dense else (shape.weights[2], shape.weights[3]),
        stride=(1, 1) if dense else (shape.strides[0], shape.strides[1]),
        dilation=(1, 1) if dense else (shape.dilations[0], shape.dilations[1]),
        padding=(0, 0, 0, 0) if dense else shape.pads,  # type: ignore[arg-type]
        element_bytes=machine.element_bytes("int8"),
        is_dense=dense,
        accumulator_bytes=machine.accumulator_bytes("int8"),
    )


def region(problem: ConvProblem, seed: int = 0) -> tuple[FixedGraph, np.ndarray[Any, Any]]:
    """A region of this one layer with random weights, and a random input [1, N, H, W]. Time does
    not depend on values."""
    generator = np.random.default_rng(seed)

    def integers(*shape: int) -> np.ndarray[Any, Any]:
        return generator.integers(-128, 128, shape, dtype=np.int8)

    depth = problem.channels // problem.groups
    layer = FixedConv(
        "layer", ("x",), ("y",), shift=12, low=-128, high=127,
        weight=integers(problem.filters, depth, *problem.kernel),
        bias=np.zeros(problem.filters, np.int32),
        stride=problem.stride, padding=problem.padding, dilation=problem.dilation,
        groups=problem.groups, is_dense=problem.is_dense,
    )  # fmt: skip
    shapes: dict[str, Shape] = {
        "x": (problem.channels, problem.in_rows, problem.in_columns),
        "y": (problem.filters, problem.rows, problem.columns),
    }
    fixed = FixedGraph((layer,), shapes, ("x",), ("y",), q_point_scales({"x": 8, "y": 8}), 1)
    return fixed, integers(1, *shapes["x"])
