"""The roofline bound of a network: what no plan on a machine can beat.

A layer needs its MACs and its compulsory traffic: the inputs that its windows touch, weights,
biases and outputs (and a residual input), each over the DRAM bus once. Its bound is the longer of

- MACs over the reachable rate of all MAC units (``mac.efficiency`` of the peak), and
- compulsory bytes over the best rate that the engines of all TLEs and the DRAM sustain, which is
  that of whole bursts without set-up.

A network's bound is the sum over its layers as a program executes them: an activation, a batch
normalization or a residual addition inside a convolution costs nothing by itself, a concatenation
in place nothing at all. Where a program makes one layer of two (`executed`), what lies between them
is no traffic, and its bound is lower for it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import reduce
from math import prod

from studies.harness.errors import StudyError
from studies.shared.simulation import LayerMeasurement
from tvm_npu.codegen.errors import EmitError
from tvm_npu.codegen.graph import FixedGraph, FixedLayer, Shape, chw
from tvm_npu.codegen.graph_bound import touched
from tvm_npu.codegen.layers import conv_problem
from tvm_npu.codegen.nmp.plan.graph_bound import Roofs
from tvm_npu.codegen.ops import FixedConv, FixedElementwise, FixedPad, FixedPool
from tvm_npu.codegen.ops.registry import kind_of
from tvm_npu.codegen.passes.storage import plan_storage
from tvm_npu.codegen.plan.problem import ConvProblem
from tvm_npu.sim.machine_parts import BIAS_BYTES

COPY = "copy"
"""The kind of a layer that only moves a tensor to where it has to lie."""


@dataclass(frozen=True)
class Work:
    """What a layer needs, whatever the plan: its MACs and its compulsory traffic. ``problem`` is
    what a planner is asked; None for layers that are not convolutions or fully connected."""

    name: str
    kind: str
    source: tuple[str, ...]
    macs: int
    input_bytes: int
    constant_bytes: int
    output_bytes: int
    problem: ConvProblem | None

    @property
    def compulsory_bytes(self) -> int:
        return self.input_bytes + self.constant_bytes + self.output_bytes

    def mac_cycles(self, top: Roofs) -> float:
        return self.macs / top.reachable_macs

    def traffic_cycles(self, top: Roofs) -> float:
        return self.compulsory_bytes / top.bytes

    def bound_cycles(self, top: Roofs) -> float:
        return max(self.mac_cycles(top), self.traffic_cycles(top))

    def before(self, other: Work) -> Work:
        """This layer and ``other``, which takes its output on the chip, as one."""
        return replace(
            self,
            kind=f"{self.kind}+{other.kind}",
            source=self.source + other.source,
            macs=self.macs + other.macs,
            constant_bytes=self.constant_bytes + other.constant_bytes,
            output_bytes=other.output_bytes,
        )


def executed(layers: Sequence[Work], run: Sequence[LayerMeasurement]) -> list[Work]:
    """``layers`` as a program ``run`` them: one for each of its layers, where some of ``layers``
    may have become one, or one some parts, and copies may have come or gone with that. Raises
    StudyError when they are not the same layers."""
    left = {layer.name: layer for layer in layers}
    names = set(left)
    found = [[left.pop(one.name)] if one.name in left else [] for one in run]
    for own, one in zip(found, run, strict=True):
        for layer in [x for x in left.values() if x.source and set(x.source) <= set(one.source)]:
            own.append(left.pop(layer.name))
        if not own and one.kind == COPY:
            half = one.dram_bytes // 2
            own.append(Work(one.name, COPY, one.source, 0, half, 0, half, None))
        elif not own and one.name.rpartition(".")[0] in names:
            # A part of a layer that came apart: all of its work counts with the first part.
            own.append(Work(one.name, one.kind, one.source, 0, 0, 0, 0, None))
    lost = [layer.name for layer in left.values() if layer.kind != COPY]
    lost += [one.name for own, one in zip(found, run, strict=True) if not own]
    if lost:
        raise StudyError(f"layer {lost[0]!r} of the graph or of its program has no partner")
    order = {layer.name: at for at, layer in enumerate(layers)}
    return [
        reduce(Work.before, sorted(own, key=lambda layer: order.get(layer.name, 0)))
        for own in found
    ]


def works(fixed: FixedGraph) -> tuple[Work, ...]:
    """The layers of a region in the order in which every program executes them."""
    storage = plan_storage(fixed)
    return tuple(_work(layer, storage.shapes, fixed.element_bytes) for layer in storage.layers)


def conv_bytes(problem: ConvProblem) -> tuple[int, int, int]:
    """Inputs, constants and outputs of a convolution or fully connected layer, bytes."""
    rows, columns = (
        len(touched(range(count), kernel, stride, dilation, before, extent))
        for count, kernel, stride, dilation, before, extent in zip(
            (problem.rows, problem.columns), problem.kernel, problem.stride, problem.dilation,
            problem.padding[:2], (problem.in_rows, problem.in_columns), strict=True,
        )
    )  # fmt: skip
    weights = problem.filters * (problem.channels // problem.groups) * prod(problem.kernel)
    outputs = problem.filters * problem.rows * problem.columns
    inputs = problem.channels * rows * columns + outputs * problem.has_residual
    size = problem.element_bytes
    return inputs * size, weights * size + problem.filters * BIAS_BYTES, outputs * size


def _work(layer: FixedLayer, shapes: dict[str, Shape], element_bytes: int) -> Work:
    in_shape, out_shape = shapes[layer.inputs[0]], shapes[layer.output]
    outputs = prod(out_shape) * element_bytes
    if isinstance(layer, FixedConv):
        problem = conv_problem(layer, in_shape, out_shape, element_bytes)
        return Work(
            layer.name, kind_of(layer), layer.source, problem.macs, *conv_bytes(problem), problem
        )
    if isinstance(layer, FixedElementwise):
        inputs = len(layer.inputs) * outputs
    elif isinstance(layer, FixedPool | FixedPad):
        inputs = _window_elements(layer, in_shape, out_shape) * element_bytes
    else:
        raise EmitError(f"layer {layer.name!r}: no bound for {type(layer).__name__}")
    return Work(layer.name, kind_of(layer), layer.source, 0, inputs, 0, outputs, None)


def _window_elements(layer: FixedPool | FixedPad, in_shape: Shape, out_shape: Shape) -> int:
    """Input elements that appear in a pool's or a pad's output."""
    if isinstance(layer, FixedPool):
        kernel, before = (1, *layer.kernel), (0, *layer.padding[:2])
    else:
        kernel, before = (1, 1, 1), layer.before
    axes = zip(chw(out_shape), kernel, (1, *layer.stride), before, chw(in_shape), strict=True)
    return prod(
        len(touched(range(count), k, step, 1, pad, extent)) for count, k, step, pad, extent in axes
    )
