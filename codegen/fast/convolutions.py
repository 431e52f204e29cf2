"""Convolutions of graphs, ready for `kernels`: weights in the type of their sums, shifts as
factors."""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence
from typing import Any

import numpy as np

from tvm_npu.codegen.errors import GraphError
from tvm_npu.codegen.fast import kernels
from tvm_npu.codegen.fixed_point import ELEMENT_TYPE, element_limits
from tvm_npu.codegen.graph import (
    Array,
    Clip,
    FixedGraph,
    FixedLayer,
    Graph,
    Layer,
    Padding,
    Shape,
    chw,
)
from tvm_npu.codegen.ops import Conv2d, Elementwise, FixedConv, ScaleShift
from tvm_npu.codegen.ops.registry import operator_of
from tvm_npu.codegen.ops.weights import exact_type

Run = Callable[[Sequence[Array]], tuple[Array, ...]]
"""Outputs of a layer for its inputs, all with the batch in front."""
SCRATCH_BYTES = 512 << 10
"""Of pixels and sums on the way: what the cache of a core holds beside the weights."""
LEAST_RUN = 32
WINDOW_RUN = 2048
"""Sums of a run where filters have one channel."""
NOTHING = np.zeros(0, np.int8)


def fast_fixed(layer: FixedLayer, fixed: FixedGraph) -> Run | None:
    """What runs ``layer`` on integers; None for one that is no convolution, or whose sums only
    int64 holds, and for slopes and scale words."""
    if not isinstance(layer, FixedConv) or layer.slopes is not None or layer.rescaling is not None:
        return None
    width = fixed.width_of(layer.inputs[0])
    number = exact_type(layer.largest_sum, width)
    if number is np.int64 or not _fits(layer, fixed.shapes):
        return None
    shape = _geometry(
        layer, chw(fixed.shapes[layer.inputs[0]]), chw(fixed.shapes[layer.output]), layer.padding
    )
    filters = len(layer.weight)
    weight = np.ascontiguousarray(layer.weight, number).reshape(-1)
    beside = len(layer.inputs) > 1
    more = np.zeros(filters) if layer.filter_shifts is None else layer.filter_shifts
    shifts = layer.shift + more - (layer.accumulator_shift if beside else 0)
    factors, by = np.exp2(-shifts.astype(np.float64)), np.full(filters, 0.0)
    by[:] = 2.0 ** (layer.residual_shift - layer.shift)
    bias = layer.bias.astype(np.float64)
    out_width = layer.out_bytes or width
    least, most = element_limits(out_width)
    low, high = float(max(layer.low, least)), float(min(layer.high, most))
    run, seen, sums = _scratch(shape, number)
    out_shape = fixed.shapes[layer.output]

    def apply(arrays: Sequence[Array]) -> tuple[Array, ...]:
        images = _flat(arrays[0])
        residuals = _flat(arrays[1]) if beside else [NOTHING] * len(images)
        out = np.empty((len(images), *out_shape), ELEMENT_TYPE[out_width])
        for image, residual, made in zip(images, residuals, _flat(out), strict=True):
            kernels.fixed_conv(
                image, shape, weight, bias, factors, beside, residual, by, low, high, run, seen,
                sums, made,
            )  # fmt: skip
        return (out if layer.table is None else layer.table.look_up(out, out_width),)

    return apply


def fast_float(layers: Sequence[Layer], graph: Graph) -> Run | None:
    """What runs a convolution and those of the ``layers`` behind it in float32, each the only
    reader of the one in front (`chain`); None for other layers."""
    first, *behind = layers
    if not isinstance(first, Conv2d) or len(first.inputs) > 1:
        return None
    clip = first.activation
    scale, shift = np.ones(len(first.weight), np.float32), np.zeros(len(first.weight), np.float32)
    for layer in behind:
        if isinstance(layer, ScaleShift):
            scale, shift = layer.scale, layer.bias
        else:
            assert isinstance(layer, Elementwise)
            clip = layer.activation
    if not isinstance(clip, Clip) or not all(_fits(layer, graph.shapes) for layer in layers):
        return None
    out_shape = graph.shapes[first.output]
    shape = _geometry(first, chw(graph.shapes[first.inputs[0]]), chw(out_shape), first.padding)
    weight = np.ascontiguousarray(first.weight, np.float32).reshape(-1)
    bias = first.bias
    low, high = np.float32(clip.low), np.float32(clip.high)
    run, seen, sums = _scratch(shape, np.float32)

    def apply(arrays: Sequence[Array]) -> tuple[Array, ...]:
        out = np.empty((len(arrays[0]), *out_shape), np.float32)
        for image, made in zip(_flat(arrays[0]), _flat(out), strict=True):
            kernels.float_conv(
                image, shape, weight, bias, scale, shift, low, high, run, seen, sums, made
            )
        return (out,)

    return apply


def chain(
    first: Layer, readers: Mapping[str, Sequence[Layer]], kept: Container[str]
) -> list[Layer]:
    """A convolution with what `fast_float` runs behind it: a scale and shift, then a clip, where
    nobody else reads (or wants: ``kept``) what lies between."""
    found: list[Layer] = [first]
    if not isinstance(first, Conv2d):
        return found
    is_open = first.activation.is_identity
    for is_next in (_is_scale, _is_clip):
        last = found[-1]
        after = readers.get(last.output, ())
        is_seen = last.output in kept or len(after) != 1
        if (last is first and not is_open) or is_seen or not is_next(after[0]):
            continue
        found += after
    return found


def _is_scale(layer: Layer) -> bool:
    return isinstance(layer, ScaleShift)


def _is_clip(layer: Layer) -> bool:
    if not isinstance(layer, Elementwise) or layer.op != "copy":
        return False
    return isinstance(layer.activation, Clip)


def _fits(layer: Layer | FixedLayer, shapes: Mapping[str, Shape]) -> bool:
    """Whether a layer makes the shapes that its graph says; of another the reference says why."""
    inputs = tuple(shapes[name] for name in layer.inputs)
    outputs = tuple(shapes[name] for name in layer.outputs)
    try:
        return tuple(operator_of(layer).shapes(layer, inputs, outputs)) == outputs
    except GraphError:
        return False


def _flat(arrays: Array) -> Array:
    """[B, elements], in one piece."""
    return np.ascontiguousarray(arrays).reshape(len(arrays), -1)


def _geometry(
    layer: Conv2d | FixedConv,
    given: tuple[int, int, int],
    made: tuple[int, int, int],
    padding: Padding,
) -> kernels.Geometry:
    filters, depth, *kernel = layer.weight.shape
    if isinstance(layer, FixedConv) and layer.is_dense:
        given, depth, kernel = (layer.weight[0].size, 1, 1), layer.weight[0].size, [1, 1]
    is_plain = tuple(kernel) == (1, 1) and not any(padding) and layer.stride == (1, 1)
    numbers = (
        layer.groups, depth, *given[1:], filters, *made[1:], *kernel, *layer.stride,
        *layer.dilation, padding[0], padding[1], int(is_plain),
    )  # fmt: skip
    return kernels.Geometry(*numbers)


def _scratch(shape: kernels.Geometry, number: type[Any]) -> tuple[int, Any, Any]:
    """(pixels of a run, room for what lies under them, for their sums); where every filter has
    one channel, of a row and of a whole channel."""
    if shape.depth == 1 and shape.groups > 1:
        run, of_channel, of_sums = kernels.window_sizes(shape, WINDOW_RUN)
        return run, np.empty(of_channel, number), np.empty(of_sums, number)
    taps = shape.depth * shape.kernel_rows * shape.kernel_columns
    each = shape.filters // shape.groups
    area = shape.rows * shape.columns
    fitting = SCRATCH_BYTES // ((taps + each) * np.dtype(number).itemsize)
    run = min(area, max(LEAST_RUN, fitting))
    return run, np.empty(taps * run, number), np.empty(each * run, number)
