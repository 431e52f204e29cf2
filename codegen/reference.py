"""The plain NumPy meaning of an NPU graph, float and fixed: the golden model.

Rounding and saturation of fixed-point results are stated here once, in `requantize`; every
simulator must agree with `run_fixed` to the bit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tvm_npu.codegen.errors import GraphError, InputError
from tvm_npu.codegen.fixed import (
    FixedChannelSlice,
    FixedConcat,
    FixedConv,
    FixedElementwise,
    FixedGraph,
    FixedLayer,
    FixedPad,
    FixedPool,
    FixedReshape,
)
from tvm_npu.codegen.fixed_point import ELEMENT_TYPE, element_limits
from tvm_npu.codegen.graph import (
    Affine,
    ChannelSlice,
    Clip,
    Concat,
    Conv2d,
    Dense,
    Elementwise,
    Graph,
    Layer,
    Pad,
    Pool,
    Reshape,
    Shape,
    chw,
)
from tvm_npu.codegen.kernels import convolve, pad_spatial, pad_tensor, window_counts, windows

Array = NDArray[Any]
FLOAT32_EXACT = 1 << 24
FLOAT64_EXACT = 1 << 53


def requantize(acc: Array, shift: int, low: int, high: int, element_bytes: int) -> Array:
    """``clip(saturate(floor((acc + half) >> shift)), low, high)``, half = 2**(shift - 1).

    Round half up (towards plus infinity), then saturation to the element type, then the fused
    activation. A shift <= 0 shifts left and rounds nothing. ``acc`` is int64 of any shape; the
    result has the element type. No intermediate value can overflow.
    """
    acc = np.asarray(acc, dtype=np.int64)
    smallest, largest = element_limits(element_bytes)
    if shift > 0:
        # (acc + 2**(s-1)) >> s, written so that no sum can leave 64 bits.
        acc = ((acc >> min(shift - 1, 63)) + 1) >> 1
    elif shift < 0:
        # What already leaves the type still does after the shift; the rest cannot overflow.
        acc = np.clip(acc, smallest, largest) << min(-shift, 46)
    acc = np.clip(acc, smallest, largest)
    return np.clip(acc, low, high).astype(ELEMENT_TYPE[element_bytes])


def run_float(graph: Graph, inputs: Mapping[str, Array]) -> dict[str, NDArray[np.float32]]:
    """Every tensor of ``graph``, float32 [B, *shape], for float32 inputs [B, *shape].

    Raises InputError for missing, unknown or misshapen inputs and GraphError for layers that
    contradict their tensors' shapes.
    """
    return dict(stream_float(graph, inputs, keep=True))


def run_fixed(fixed: FixedGraph, inputs: Mapping[str, Array]) -> dict[str, Array]:
    """Every tensor of ``fixed``, int16 or int8 [B, *shape], exactly as a machine must make it.

    Inputs are integers of the element type at the tensors' Q-points. Raises as `run_float`.
    """
    dtype = ELEMENT_TYPE[fixed.element_bytes]
    _check_inputs(fixed.inputs, fixed.shapes, inputs, dtype)

    def apply(layer: FixedLayer, arrays: list[Array]) -> Array:
        return _meaning(FIXED, layer)(layer, arrays, fixed)

    return dict(_run(fixed.layers, fixed.shapes, fixed.inputs, inputs, apply, keep=True))


def stream_float(
    graph: Graph, inputs: Mapping[str, Array], keep: bool = False
) -> Iterator[tuple[str, NDArray[np.float32]]]:
    """(tensor, values) in execution order; without ``keep`` a tensor is freed after its last
    reader, which bounds the memory of calibration."""
    _check_inputs(graph.inputs, graph.shapes, inputs, np.dtype(np.float32))

    def apply(layer: Layer, arrays: list[Array]) -> Array:
        return _meaning(FLOAT, layer)(layer, arrays, graph.shapes[layer.output])

    return _run(graph.layers, graph.shapes, graph.inputs, inputs, apply, keep)


def _meaning(table: Mapping[type, Any], layer: Layer | FixedLayer) -> Any:
    if type(layer) not in table:
        raise GraphError(f"{type(layer).__name__} is no layer of this kind of graph")
    return table[type(layer)]


def _check_inputs(
    names: tuple[str, ...],
    shapes: Mapping[str, Shape],
    inputs: Mapping[str, Array],
    dtype: np.dtype[Any],
) -> None:
    missing = [name for name in names if name not in inputs]
    unknown = [name for name in inputs if name not in names]
    if missing or unknown:
        raise InputError(f"inputs missing: {missing}, unknown: {unknown}; expected {list(names)}")
    batches: dict[int, str] = {}
    for name in names:
        value = inputs[name]
        if not isinstance(value, np.ndarray) or value.dtype != dtype:
            kind = value.dtype if isinstance(value, np.ndarray) else type(value).__name__
            raise InputError(f"input {name!r} has type {kind}; expected an array of {dtype}")
        if value.ndim < 1 or value.shape[1:] != shapes[name] or value.shape[0] < 1:
            raise InputError(
                f"input {name!r} has shape {value.shape}; expected a batch >= 1 of {shapes[name]}"
            )
        batches.setdefault(value.shape[0], name)
    if len(batches) > 1:
        raise InputError(f"inputs differ in batch: { ({v: k for k, v in batches.items()}) }")


def _run(
    layers: tuple[Any, ...],
    shapes: Mapping[str, Shape],
    names: tuple[str, ...],
    inputs: Mapping[str, Array],
    apply: Callable[[Any, list[Array]], Array],
    keep: bool,
) -> Iterator[tuple[str, Array]]:
    last_reader = {tensor: i for i, layer in enumerate(layers) for tensor in layer.inputs}
    tensors = {name: inputs[name] for name in names}
    yield from tensors.items()
    for index, layer in enumerate(layers):
        try:
            result = apply(layer, [tensors[tensor] for tensor in layer.inputs])
        except ValueError as error:
            raise GraphError(f"layer {layer.name!r}: {error}") from error
        if result.shape[1:] != shapes[layer.output]:
            raise GraphError(
                f"layer {layer.name!r} makes {result.shape[1:]}, but its output {layer.output!r} "
                f"has shape {shapes[layer.output]}"
            )
        tensors[layer.output] = result
        yield layer.output, result
        if not keep:
            for tensor in layer.inputs:
                if last_reader[tensor] == index:
                    tensors.pop(tensor, None)


def _images(x: Array) -> Array:
    """[B, *shape] seen as [B, C, H, W]."""
    return x.reshape(x.shape[0], *chw(x.shape[1:]))


def _clipped(x: Array, clip: Clip) -> Array:
    return x if clip.is_identity else np.clip(x, np.float32(clip.low), np.float32(clip.high))


# Float meaning


def _float_conv(layer: Conv2d, arrays: list[Array], shape: Shape) -> Array:
    acc = convolve(
        _images(arrays[0]), layer.weight, layer.stride, layer.padding, layer.dilation,
        layer.groups, np.float32,
    )  # fmt: skip
    acc += layer.bias[:, None, None]
    if len(shape) != 3:
        acc = acc.reshape(len(acc), -1)
    return _clipped(acc + arrays[1] if len(arrays) > 1 else acc, layer.clip)


def _float_dense(layer: Dense, arrays: list[Array], shape: Shape) -> Array:
    acc = arrays[0] @ layer.weight.T + layer.bias
    return _clipped(acc + arrays[1] if len(arrays) > 1 else acc, layer.clip)


def _pool(layer: Pool | FixedPool, x: Array, outside: float) -> tuple[Array, NDArray[np.int64]]:
    """Windows of ``x`` (``outside`` in the padding) and the divisor of each."""
    view = windows(pad_spatial(x, layer.padding, outside), layer.kernel, layer.stride)
    counted = layer.counted_padding if layer.count_include_pad else (0, 0, 0, 0)
    counts = window_counts(
        x.shape[2:], view.shape[4:], layer.kernel, layer.stride, layer.padding,
        counted if layer.kind == "avg" else (0, 0, 0, 0),
    )  # fmt: skip
    if counts.min() < 1:
        row, column = np.argwhere(counts < 1)[0]
        raise GraphError(f"the pooling window at row {row}, column {column} covers no element")
    return view, counts


def _float_pool(layer: Pool, arrays: list[Array], shape: Shape) -> Array:
    x = arrays[0]
    if layer.kind == "max":
        view, _ = _pool(layer, x, -np.inf)
        return _clipped(view.max(axis=(2, 3)), layer.clip)
    view, counts = _pool(layer, x, 0.0)
    mean = view.sum(axis=(2, 3), dtype=np.float64) / counts
    return _clipped(mean.astype(np.float32), layer.clip)


def _float_affine(layer: Affine, arrays: list[Array], shape: Shape) -> Array:
    column = (-1,) + (1,) * (len(shape) - 1)
    return arrays[0] * layer.scale.reshape(column) + layer.bias.reshape(column)


def _float_elementwise(layer: Elementwise, arrays: list[Array], shape: Shape) -> Array:
    if layer.op == "add":
        result = arrays[0] + arrays[1]
    elif layer.op == "mul":
        result = arrays[0] * arrays[1]
    else:
        result = arrays[0]
    return _clipped(result, layer.clip)


# Fixed meaning


def _product_type(layer: FixedConv, element_bytes: int) -> type[Any]:
    """The cheapest number type in which every partial sum of the layer is exact."""
    magnitudes = np.abs(layer.weight.astype(np.int64)).reshape(len(layer.weight), -1).sum(axis=1)
    bound = int(magnitudes.max()) << (8 * element_bytes - 1)
    if bound < FLOAT32_EXACT:
        return np.float32
    return np.float64 if bound < FLOAT64_EXACT else np.int64


def _fixed_conv(layer: FixedConv, arrays: list[Array], fixed: FixedGraph) -> Array:
    acc = convolve(
        _images(arrays[0]), layer.weight, layer.stride, layer.padding, layer.dilation,
        layer.groups, _product_type(layer, fixed.element_bytes),
    ).astype(np.int64)  # fmt: skip
    acc += layer.bias.astype(np.int64)[:, None, None]
    acc = acc.reshape(len(acc), *fixed.shapes[layer.output])
    if len(arrays) > 1:
        residual = arrays[1].astype(np.int64) << layer.residual_shift
        acc = (acc << layer.accumulator_shift) + residual
    return requantize(acc, layer.shift, layer.low, layer.high, fixed.element_bytes)


def _fixed_pool(layer: FixedPool, arrays: list[Array], fixed: FixedGraph) -> Array:
    x = arrays[0]
    if layer.kind == "max":
        view, _ = _pool(layer, x, element_limits(fixed.element_bytes)[0])
        acc = view.max(axis=(2, 3))
    else:
        view, counts = _pool(layer, x, 0)
        acc = (2 * view.sum(axis=(2, 3), dtype=np.int64) + counts) // (2 * counts)
    return requantize(acc, layer.shift, layer.low, layer.high, fixed.element_bytes)


def _fixed_elementwise(layer: FixedElementwise, arrays: list[Array], fixed: FixedGraph) -> Array:
    wide = [array.astype(np.int64) for array in arrays]
    if layer.op == "add":
        acc = (wide[0] << layer.shift_a) + (wide[1] << layer.shift_b)
    elif layer.op == "mul":
        acc = wide[0] * wide[1]
    else:
        acc = wide[0]
    return requantize(acc, layer.shift, layer.low, layer.high, fixed.element_bytes)


# Layout, one meaning for both


def _pad(layer: Pad | FixedPad, arrays: list[Array], _: object) -> Array:
    x = arrays[0]
    padded = pad_tensor(_images(x), layer.before, layer.after, layer.stride, layer.value)
    return padded if x.ndim == 4 else padded.reshape(len(x), -1)


def _concat(layer: Concat | FixedConcat, arrays: list[Array], _: object) -> Array:
    return np.concatenate(arrays, axis=1)


def _reshape(layer: Reshape, arrays: list[Array], shape: Shape) -> Array:
    return arrays[0].reshape(len(arrays[0]), *shape)


def _fixed_reshape(layer: FixedReshape, arrays: list[Array], fixed: FixedGraph) -> Array:
    return arrays[0].reshape(len(arrays[0]), *fixed.shapes[layer.output])


def _slice(layer: ChannelSlice, arrays: list[Array], shape: Shape) -> Array:
    return arrays[0][:, layer.begin : layer.begin + shape[0]]


def _fixed_slice(layer: FixedChannelSlice, arrays: list[Array], fixed: FixedGraph) -> Array:
    return arrays[0][:, layer.begin : layer.begin + fixed.shapes[layer.output][0]]


FLOAT: dict[type, Callable[[Any, list[Array], Shape], Array]] = {
    Conv2d: _float_conv, Dense: _float_dense, Pool: _float_pool, Affine: _float_affine,
    Elementwise: _float_elementwise, Pad: _pad, Concat: _concat, Reshape: _reshape,
    ChannelSlice: _slice,
}  # fmt: skip
FIXED: dict[type, Callable[[Any, list[Array], FixedGraph], Array]] = {
    FixedConv: _fixed_conv, FixedPool: _fixed_pool, FixedElementwise: _fixed_elementwise,
    FixedPad: _pad, FixedConcat: _concat, FixedReshape: _fixed_reshape,
    FixedChannelSlice: _fixed_slice,
}  # fmt: skip
