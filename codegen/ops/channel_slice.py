"""A run of channels of a tensor."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod

from tvm_npu.codegen.errors import GraphError
from tvm_npu.codegen.graph.layer import FixedLayer, Layer
from tvm_npu.codegen.graph.tensors import Shape
from tvm_npu.codegen.ops.operator import Arrays, Numbers, Operator, Placement, Shapes, take


@dataclass(frozen=True, eq=False)
class ChannelSlice(Layer):
    """Channels ``begin`` to ``begin + C_out`` of the input."""

    begin: int


@dataclass(frozen=True, eq=False)
class FixedChannelSlice(FixedLayer):
    """Layout only."""

    begin: int


class ChannelSliceOperator(Operator[ChannelSlice, FixedChannelSlice]):
    layer = ChannelSlice
    fixed = FixedChannelSlice
    placement = Placement.VIEW

    def shapes(
        self, layer: ChannelSlice | FixedChannelSlice, inputs: Shapes, declared: Shapes
    ) -> Shapes:
        take(layer, inputs, 1)
        end = layer.begin + declared[0][0]
        if layer.begin < 0 or end > inputs[0][0]:
            raise GraphError(
                f"layer {layer.name!r} takes channels {layer.begin} to {end} of {inputs[0][0]}"
            )
        return ((declared[0][0], *inputs[0][1:]),)

    def run_float(self, layer: ChannelSlice, arrays: Arrays, shapes: Shapes) -> Arrays:
        return (arrays[0][:, layer.begin : layer.begin + shapes[0][0]],)

    def run_fixed(
        self, layer: FixedChannelSlice, arrays: Arrays, shapes: Shapes, element_bytes: int
    ) -> Arrays:
        return (arrays[0][:, layer.begin : layer.begin + shapes[0][0]],)

    def ties(self, layer: ChannelSlice) -> tuple[tuple[str, ...], ...]:
        return ((*layer.inputs, *layer.outputs),)

    def takes_scales(self, layer: ChannelSlice) -> bool:
        return True

    def quantize(self, layer: ChannelSlice, numbers: Numbers) -> FixedChannelSlice:
        return FixedChannelSlice(
            layer.name, layer.inputs, layer.outputs, layer.begin, source=layer.source
        )

    def word(self, layer: FixedChannelSlice) -> str:
        return "slice"

    def view_offsets(
        self, layer: FixedChannelSlice, shapes: Mapping[str, Shape]
    ) -> tuple[int, ...]:
        return (layer.begin * prod(shapes[layer.inputs[0]][1:]),)
