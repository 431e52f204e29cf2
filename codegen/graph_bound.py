"""What no plan of a region beats, however its layers are joined, at the peak rates of its machine.

All multiply-accumulates that meet no padding are done, and the *compulsory traffic* crosses the
border of the chip: what layers look at of the region's inputs, weights, and outputs, each once, at
the width that the machine stores. Tensors between layers need not. Of a convolution only the
results count that something looks at, for layers that run as one may leave out the others: windows
and elements behind it say which these are, and every other layer wants all. The bound is the longer
of both at the machine's best rates. Efficiencies, bursts, set-up, biases and states are left out.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod

from tvm_npu.codegen.backend import PlannedGraph
from tvm_npu.codegen.graph import FixedGraph, FixedLayer, Shape
from tvm_npu.codegen.graph.tensors import chw
from tvm_npu.codegen.ops import (
    FixedBlock,
    FixedBroadcast,
    FixedCascade,
    FixedConv,
    FixedConvMaxima,
    FixedConvPixels,
    FixedElementwise,
    FixedGru,
    FixedLstm,
    FixedMaxFeatureMap,
    FixedMaximum,
    FixedPool,
    FixedReshape,
    FixedRun,
    FixedTable,
    FixedTransposedConv,
)
from tvm_npu.codegen.ops.registry import layer_macs
from tvm_npu.codegen.ops.transposed_conv import tap_ranges

Shapes = Mapping[str, Shape]
PLACE_BY_PLACE = (
    FixedElementwise, FixedBroadcast, FixedMaximum, FixedMaxFeatureMap, FixedTable,
)  # fmt: skip
"""A row and column of the result needs the same of each image among the inputs."""


@dataclass(frozen=True)
class GraphBound:
    """The two times of a run of so many ``images``, and its traffic, of which ``shared_cycles`` are
    those of what all images of a run share."""

    mac_cycles: float
    traffic_cycles: float
    compulsory_bytes: int
    shared_cycles: float = 0.0
    images: int = 1

    @property
    def cycles(self) -> float:
        return self.cycles_of(self.images, 1)

    def cycles_of(self, images: int, runs: int) -> float:
        """Of so many images in so many runs of a program, however these share the images."""
        each = (self.traffic_cycles - self.shared_cycles) / self.images
        traffic = images * each + runs * self.shared_cycles
        return max(images * self.mac_cycles / self.images, traffic)


def graph_bound(planned: PlannedGraph, bytes_per_cycle: float, images: int = 1) -> GraphBound:
    """Of a run that computes so many ``images``, for which weights come once; ``bytes_per_cycle``
    cross the border of the chip at most."""
    fixed, machine = planned.fixed, planned.machine
    layers = [part for layer in fixed.layers for part in parts_of(layer)]
    looked_at = _looked_at(layers, fixed)
    macs = weights = 0
    for layer in layers:
        places = _of_results(layer, looked_at.places)
        if places is not None:
            own_macs, own_weights = _work(layer, fixed.shapes, places)
            macs, weights = macs + own_macs, weights + own_weights
    values = sum(looked_at.elements.get(tensor, 0) for tensor in fixed.inputs)
    values += sum(prod(fixed.shapes[tensor]) for tensor in set(fixed.outputs))
    width = machine.stored_element_bytes(planned.precision)
    moved = width * (images * values + weights)
    peak = machine.macs_per_cycle(fixed.element_bytes) * machine.core_count
    return GraphBound(
        images * macs / peak,
        moved / bytes_per_cycle,
        moved,
        width * weights / bytes_per_cycle,
        images,
    )


def parts_of(layer: FixedLayer) -> Iterator[FixedLayer]:
    """The graph's layers that run as this one, in order."""
    if isinstance(layer, FixedRun):
        for block in layer.blocks:
            yield from parts_of(block)
    elif isinstance(layer, FixedBlock):
        yield from parts_of(layer.head)
        yield layer.point
    elif isinstance(layer, FixedCascade):
        yield from (layer.conv, layer.window)
    elif isinstance(layer, FixedConvMaxima):
        yield from (layer.conv, *layer.behind)
    elif isinstance(layer, FixedConvPixels):
        yield layer.conv
    else:
        yield layer


def useful_macs(layer: FixedLayer, shapes: Shapes) -> int:
    """Products that are no products with padding, of all results."""
    return sum(
        _work(part, shapes, _all_of(shapes[part.outputs[0]]))[0] for part in parts_of(layer)
    )


@dataclass(frozen=True)
class _Places:
    """Rows and columns of a tensor; those of a tensor that is no image are one."""

    rows: Collection[int]
    columns: Collection[int]

    @property
    def count(self) -> int:
        return len(self.rows) * len(self.columns)


@dataclass(frozen=True)
class _LookedAt:
    """By tensor: places that a layer, the one with most of them, wants to be computed, and the
    elements that are surely read where the tensor is an input of the region."""

    places: dict[str, _Places]
    elements: dict[str, int]


def _all_of(shape: Shape) -> _Places:
    _, rows, columns = chw(shape)
    return _Places(range(rows), range(columns))


def _looked_at(layers: Sequence[FixedLayer], fixed: FixedGraph) -> _LookedAt:
    found = _LookedAt({tensor: _all_of(fixed.shapes[tensor]) for tensor in fixed.outputs}, {})
    for layer in reversed(layers):
        results = _of_results(layer, found.places)
        if results is None:  # nobody reads what it makes
            continue
        for number, tensor in enumerate(layer.inputs):
            wanted, surely = _wanted(layer, number, results, fixed.shapes)
            before = found.places.get(tensor)
            if before is None or wanted.count > before.count:
                found.places[tensor] = wanted
            elements = chw(fixed.shapes[tensor])[0] * wanted.count if surely else 0
            if isinstance(layer, FixedReshape):
                elements = found.elements.get(layer.output, 0)
            found.elements[tensor] = max(elements, found.elements.get(tensor, 0))
    return found


def _of_results(layer: FixedLayer, places: Mapping[str, _Places]) -> _Places | None:
    """Of a layer's outputs; None where nobody looks at any."""
    return next((places[tensor] for tensor in layer.outputs if tensor in places), None)


def _wanted(
    layer: FixedLayer, number: int, results: _Places, shapes: Shapes
) -> tuple[_Places, bool]:
    """What ``results`` want of an input, and whether the layer surely reads it: others may take a
    part, or be views of which others take one."""
    source, target = (shapes[tensor] for tensor in (layer.inputs[number], layer.outputs[0]))
    is_window = isinstance(layer, FixedPool) or (
        isinstance(layer, FixedConv) and not layer.is_dense and number == 0
    )
    if is_window:
        assert isinstance(layer, FixedConv | FixedPool)
        return _under_windows(layer, results, source), True
    if isinstance(layer, (*PLACE_BY_PLACE, FixedConv)):
        is_alike = len(source) == len(target) == 3 and source[1:] == target[1:]
        return (results if is_alike else _all_of(source)), True
    return _all_of(source), isinstance(layer, FixedLstm | FixedGru)


def _under_windows(layer: FixedConv | FixedPool, results: _Places, source: Shape) -> _Places:
    if isinstance(layer, FixedPool):
        kernel, dilation = layer.kernel, (1, 1)
    else:
        kernel, dilation = (layer.weight.shape[2], layer.weight.shape[3]), layer.dilation
    rows, columns = (
        touched(
            places, kernel[axis], layer.stride[axis], dilation[axis], layer.padding[axis],
            chw(source)[1 + axis],
        )
        for axis, places in enumerate((results.rows, results.columns))
    )  # fmt: skip
    return _Places(rows, columns)


def touched(
    places: Iterable[int], kernel: int, stride: int, dilation: int, before: int, in_extent: int
) -> set[int]:
    """Input positions along one axis that the windows of ``places`` look at, padding left out."""
    seen = {at * stride - before + k * dilation for at in places for k in range(kernel)}
    return {position for position in seen if 0 <= position < in_extent}


def _work(layer: FixedLayer, shapes: Shapes, results: _Places) -> tuple[int, int]:
    """Products for these results that meet no padding, and weights that are in any."""
    if isinstance(layer, FixedConv):
        if layer.is_dense:
            return layer.weight.size, layer.weight.size
        source = chw(shapes[layer.inputs[0]])
        axes = [
            _meetings(
                places, layer.weight.shape[2 + axis], layer.stride[axis], layer.dilation[axis],
                layer.padding[axis], source[1 + axis],
            )
            for axis, places in enumerate((results.rows, results.columns))
        ]  # fmt: skip
        planes = prod(layer.weight.shape[:2])
        products, taps = (planes * prod(counts) for counts in zip(*axes, strict=True))
        return products, taps
    weights = 0
    if isinstance(layer, FixedTransposedConv):
        weights = prod(layer.weight.shape[:2]) * prod(_taps_used(layer, shapes))
    elif isinstance(layer, FixedLstm | FixedGru):
        weights = layer.input_weight.size + layer.hidden_weight.size
    return layer_macs(layer, shapes), weights


def _meetings(
    places: Collection[int], kernel: int, stride: int, dilation: int, before: int, in_extent: int
) -> tuple[int, int]:
    """Along an axis: pairs of a place and a tap that meet an element of the input, and taps that
    meet any."""
    met = [
        sum(0 <= at * stride + tap * dilation - before < in_extent for at in places)
        for tap in range(kernel)
    ]
    return sum(met), sum(count > 0 for count in met)


def _taps_used(layer: FixedTransposedConv, shapes: Shapes) -> Iterator[int]:
    """Along each axis, the taps of which some result has products."""
    source, target = chw(shapes[layer.inputs[0]]), chw(shapes[layer.output])
    for axis in range(2):
        ranges = tap_ranges(
            source[1 + axis], target[1 + axis], layer.kernel[axis], layer.stride[axis],
            layer.padding[axis],
        )  # fmt: skip
        yield sum(1 for _ in ranges)
