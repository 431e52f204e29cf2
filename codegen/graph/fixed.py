"""The fixed-point graph: what `codegen.passes.quantize` makes and what a Program computes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from tvm_npu.codegen.graph.layer import FixedLayer
from tvm_npu.codegen.graph.scale import Scale
from tvm_npu.codegen.graph.tensors import Shape
from tvm_npu.sim.lazy import cached_property
from tvm_npu.sim.machine_parts import Precision

Width = Literal[1, 2]
"""Bytes of an element."""


def precision_of_width(width: Width) -> Precision:
    return "int16" if width == 2 else "int8"


@dataclass(frozen=True, eq=False)
class FixedGraph:
    """Layers on integers, in execution order.

    ``scales`` says what the integers of each tensor mean. Every layer that computes ends in the
    same step, stated once in `codegen.fixed_point.requantize`. ``element_bytes`` is the width of
    graph inputs and states, but for those of ``input_widths``. A layer's operands have one width;
    its results have that, too, or its own `FixedLayer.out_bytes`.
    """

    layers: tuple[FixedLayer, ...]
    shapes: dict[str, Shape]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    scales: dict[str, Scale]
    element_bytes: Width
    name: str = "npu"
    input_widths: Mapping[str, Width] = field(default_factory=dict)

    @property
    def q_points(self) -> dict[str, int]:
        """The Q-points of the tensors whose scale is one."""
        return {tensor: one.q_point for tensor, one in self.scales.items() if one.is_q_point}

    @property
    def precision(self) -> Precision:
        """The one that was asked for; single layers may have another (`precision_of`)."""
        return precision_of_width(self.element_bytes)

    @cached_property
    def widths(self) -> dict[str, Width]:
        """Bytes of an element of the tensors that layers read and make (`width_of`: of any)."""
        return tensor_widths(self.layers, self.input_widths, self.element_bytes)

    def width_of(self, tensor: str) -> Width:
        """Bytes of an element of a tensor."""
        return self.widths.get(tensor, self.element_bytes)

    def precision_of(self, layer: FixedLayer) -> Precision:
        """What a layer computes with: that of its operands."""
        return precision_of_width(self.width_of(layer.inputs[0]))


def tensor_widths(
    layers: Iterable[FixedLayer], given: Mapping[str, Width], otherwise: Width
) -> dict[str, Width]:
    """The width of every tensor, from those that are ``given`` of tensors that no layer makes;
    the others of these have that of ``otherwise``."""
    found = dict(given)
    for layer in layers:
        for tensor in layer.inputs:
            found.setdefault(tensor, otherwise)
        width = found[layer.inputs[0]]
        made = layer.out_bytes if isinstance(layer, FixedLayer) else None
        found |= dict.fromkeys(layer.outputs, made or width)
        found |= {state.tensor: width for state in layer.states}
    return found
