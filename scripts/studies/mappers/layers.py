"""The layers that all mappers get: convolutions whose input comes with its padding.

Mappers have no padding: to them an input tile is all that its windows touch. So that all answer the
same question, ours gets layers without padding and with an input as large as that, too.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from tvm_npu import models
from tvm_npu.codegen.plan.problem import ConvProblem
from tvm_npu.models.layers import LayerShape, layer_shapes
from tvm_npu.sim.machine_parts import Precision
from tvm_npu.sim.tiles.machine import TileMachine

PRECISION: Precision = "int8"
"""Of what set-up A calls its default; its words are as wide as the thesis's float32."""


@dataclass(frozen=True)
class Layer:
    """A convolution of one image without padding. ``groups`` is 1 or the number of channels and
    filters; a fully connected layer has one row, column and tap."""

    name: str
    filters: int
    channels: int
    groups: int
    rows: int
    columns: int
    kernel: tuple[int, int]
    stride: tuple[int, int]

    @property
    def in_rows(self) -> int:
        return (self.rows - 1) * self.stride[0] + self.kernel[0]

    @property
    def in_columns(self) -> int:
        return (self.columns - 1) * self.stride[1] + self.kernel[1]

    @property
    def inputs(self) -> int:
        """Input values that a window touches: not those between windows apart."""
        rows, columns = (
            (count - 1) * min(step, reach) + reach
            for count, step, reach in zip(
                (self.rows, self.columns), self.stride, self.kernel, strict=True
            )
        )
        return self.channels * rows * columns

    @property
    def outputs(self) -> int:
        return self.filters * self.rows * self.columns

    @property
    def elements(self) -> int:
        """Inputs, weights and outputs, each once: what has to cross the memory outside."""
        taps = self.kernel[0] * self.kernel[1]
        return self.inputs + self.filters * (self.channels // self.groups) * taps + self.outputs


@dataclass(frozen=True)
class Case:
    """What is mapped at once: layers one after another, each by itself, or ``fused``: each reads
    what the one before makes, and nobody else does."""

    name: str
    layers: tuple[Layer, ...]
    fused: bool = False

    @property
    def elements(self) -> int:
        """What has to cross the memory outside; of what lies between fused layers nothing."""
        total = sum(layer.elements for layer in self.layers)
        if self.fused:
            pairs = zip(self.layers, self.layers[1:], strict=False)
            total -= sum(one.outputs + other.inputs for one, other in pairs)
        return total


def resnet18() -> tuple[Case, ...]:
    """ResNet-18's twelve distinct layers, in the order in which they appear."""
    found = dict.fromkeys(_layers("resnet18"))
    return tuple(Case(name_of(layer), (replace(layer, name=name_of(layer)),)) for layer in found)


def mobilenet_v2() -> tuple[Case, ...]:
    """MobileNetV2's distinct blocks: expansion, depthwise and projection, each by itself and fused.
    Every layer makes all that the one behind it reads, its padding included, in both."""
    layers, found = list(_layers("mobilenet_v2")), dict[tuple[Layer, ...], None]()
    for at, layer in enumerate(layers):
        if layer.groups > 1:
            front = layers[at - 1]
            made = replace(front, rows=layer.in_rows, columns=layer.in_columns)
            expands = front.kernel == (1, 1)
            found[(*((made,) if expands else ()), layer, layers[at + 1])] = None
    return tuple(
        Case(_block_name(block), block, fused) for fused in (False, True) for block in found
    )


def _block_name(block: tuple[Layer, ...]) -> str:
    """Channels in, between and out, output, stride: ``24-144-32 28x28 s2``."""
    first, depthwise, last = block[0], block[-2], block[-1]
    ends = [first.channels, *([depthwise.filters] if len(block) > 2 else []), last.filters]
    stride = "" if depthwise.stride == (1, 1) else f" s{depthwise.stride[0]}"
    return f"{'-'.join(map(str, ends))} {last.rows}x{last.columns}{stride}"


NETWORKS = {"resnet18": resnet18, "mobilenet_v2": mobilenet_v2}


def name_of(layer: Layer) -> str:
    """Filters, channels, output, kernel, stride: ``64x3 112x112 k7 s2``."""
    depth = "dw" if layer.groups > 1 else str(layer.channels)
    size = f"{layer.filters}x{depth} {layer.rows}x{layer.columns} k{layer.kernel[0]}"
    return size if layer.stride == (1, 1) else f"{size} s{layer.stride[0]}"


def _layers(model: str) -> Iterator[Layer]:
    """Nameless, so that equal ones are equal."""
    for _, shape in layer_shapes(models.build(model)):
        yield _layer(shape)


def _layer(shape: LayerShape) -> Layer:
    if shape.operator != "Conv":
        return Layer("", shape.output[1], shape.input[1], 1, 1, 1, (1, 1), (1, 1))
    kernel = shape.weights[2], shape.weights[3]
    stride = shape.strides[0], shape.strides[1]
    _, filters, rows, columns = shape.output
    return Layer("", filters, shape.input[1], shape.groups, rows, columns, kernel, stride)


def problem_of(layer: Layer, machine: TileMachine) -> ConvProblem:
    """The question to our planners."""
    return ConvProblem(
        filters=layer.filters,
        channels=layer.channels,
        groups=layer.groups,
        rows=layer.rows,
        columns=layer.columns,
        in_rows=layer.in_rows,
        in_columns=layer.in_columns,
        kernel=layer.kernel,
        stride=layer.stride,
        dilation=(1, 1),
        padding=(0, 0, 0, 0),
        element_bytes=machine.element_bytes(PRECISION),
        accumulator_bytes=machine.accumulator_bytes(PRECISION),
    )
