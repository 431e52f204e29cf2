"""Convolutions in numba, an image and a run of pixels at a time.

Maps are flat vectors [C * H * W] of one image. Sums are float32 or float64, whichever holds all of
a layer's exactly. They are requantized in float64: accumulators stay below 2**46, so that scaling
by a power of two and adding a half round nothing.
"""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import numpy as np

from tvm_npu.sim import compiled
from tvm_npu.sim.compiled.arithmetic import ceil_div
from tvm_npu.sim.compiled.matmul import matmul

device = partial(compiled.device, references=False)
entry = partial(compiled.entry, references=False)


class Geometry(NamedTuple):
    """Of a convolution: channels, rows and columns of an image and of its result, ``depth``
    channels of a group; zeros lie around the image."""

    groups: int
    depth: int
    in_rows: int
    in_columns: int
    filters: int
    rows: int
    columns: int
    kernel_rows: int
    kernel_columns: int
    stride_rows: int
    stride_columns: int
    dilation_rows: int
    dilation_columns: int
    top: int
    left: int
    is_plain: int
    """Whether results lie above what they are made of: one tap, nothing around, no stride."""


def window_sizes(shape: Geometry, most: int) -> tuple[int, int, int]:
    """Of a convolution whose filters have one channel: (rows of results that run as one, at most
    ``most`` elements; of a channel as `_spread` lays it out; of the sums of a run)."""
    rows = (shape.rows - 1) * shape.stride_rows + (shape.kernel_rows - 1) * shape.dilation_rows + 1
    reach = (shape.kernel_columns - 1) * shape.dilation_columns
    pitch = shape.columns + reach // shape.stride_columns
    is_plain = shape.stride_rows == 1 and shape.stride_columns == 1
    run = min(shape.rows, max(1, most // pitch)) if is_plain else 1
    return run, rows * shape.stride_columns * pitch, run * pitch


@device
def _inside(shape, column, first, count):
    """(first, end) of ``count`` results from ``first`` on whose tap of ``column`` lies inside."""
    before = shape.left - column * shape.dilation_columns
    begin = max(first, ceil_div(max(before, 0), shape.stride_columns))
    last = shape.in_columns - 1 + before
    end = first if last < 0 else min(first + count, last // shape.stride_columns + 1)
    return min(begin, first + count), max(end, min(begin, first + count))


@device
def _copy(source, stride, target, count):
    """Every ``stride``-th element. Slices, here as elsewhere: indices that may be negative to numba
    keep a loop from becoming vector code."""
    if stride == 1:
        for k in range(count):
            target[k] = source[k]
    else:
        for k in range(count):
            target[k] = source[k * stride]


@device
def _gather(image, shape, group, begin, count, seen):
    """[depth * taps, count]: what lies under the results from ``begin`` on."""
    plane, at = shape.in_rows * shape.in_columns, 0
    for channel in range(group * shape.depth, (group + 1) * shape.depth):
        if shape.is_plain:
            _copy(image[channel * plane + begin :], 1, seen[at:], count)
            at += count
            continue
        for i in range(shape.kernel_rows):
            for j in range(shape.kernel_columns):
                pixel, done = begin, 0
                while done < count:
                    row = pixel // shape.columns
                    first = pixel - row * shape.columns
                    run = min(shape.columns - first, count - done)
                    y = row * shape.stride_rows - shape.top + i * shape.dilation_rows
                    low, high = first, first
                    if 0 <= y < shape.in_rows:
                        low, high = _inside(shape, j, first, run)
                    to = at + done - first
                    base = channel * plane + y * shape.in_columns
                    base += j * shape.dilation_columns - shape.left
                    for k in range(first, low):
                        seen[to + k] = 0
                    if low < high:
                        stride = shape.stride_columns
                        _copy(image[base + low * stride :], stride, seen[to + low :], high - low)
                    for k in range(high, first + run):
                        seen[to + k] = 0
                    pixel += run
                    done += run
                at += count


@device
def _pitch(shape):
    """Columns of one phase of a plane: as many as results, and those that later taps reach."""
    reach = (shape.kernel_columns - 1) * shape.dilation_columns
    return shape.columns + reach // shape.stride_columns


@device
def _spread(image, shape, channel, seen):
    """One channel with the zeros around it. The columns of a row lie by their remainder of the
    stride, so that what one tap sees of neighbouring results lies together."""
    stride, pitch = shape.stride_columns, _pitch(shape)
    reach = (shape.rows - 1) * shape.stride_rows
    reach += (shape.kernel_rows - 1) * shape.dilation_rows + 1
    for y in range(reach):
        row = y - shape.top
        base = (channel * shape.in_rows + row) * shape.in_columns - shape.left
        for phase in range(stride):
            to = (y * stride + phase) * pitch
            low, high = 0, 0
            if 0 <= row < shape.in_rows:
                low = min(pitch, ceil_div(max(shape.left - phase, 0), stride))
                last = shape.in_columns - 1 + shape.left - phase
                high = max(low, min(pitch, last // stride + 1 if last >= 0 else 0))
            line = seen[to : to + pitch]
            for k in range(low):
                line[k] = 0
            if low < high:
                _copy(image[base + phase + low * stride :], stride, line[low:], high - low)
            for k in range(high, pitch):
                line[k] = 0


@device
def _offset(shape, i, j):
    """From a result's first tap to tap (i, j), in what `_spread` made."""
    column = j * shape.dilation_columns
    row = i * shape.dilation_rows * shape.stride_columns + column % shape.stride_columns
    return row * _pitch(shape) + column // shape.stride_columns


@device
def _nine(seen, at, shape, w, by, sums, count):
    """Sums of 3 x 3 taps, row by row, from the left to the right."""
    a, b, c = seen[at:], seen[at + _offset(shape, 0, 1) :], seen[at + _offset(shape, 0, 2) :]
    second, third = at + _offset(shape, 1, 0), at + _offset(shape, 2, 0)
    d, e = seen[second:], seen[at + _offset(shape, 1, 1) :]
    f, g = seen[at + _offset(shape, 1, 2) :], seen[third:]
    h, i = seen[at + _offset(shape, 2, 1) :], seen[at + _offset(shape, 2, 2) :]
    w0, w1, w2, w3, w4 = w[by], w[by + 1], w[by + 2], w[by + 3], w[by + 4]
    w5, w6, w7, w8 = w[by + 5], w[by + 6], w[by + 7], w[by + 8]
    for k in range(count):
        value = w0 * a[k] + w1 * b[k] + w2 * c[k] + w3 * d[k] + w4 * e[k]
        sums[k] = value + w5 * f[k] + w6 * g[k] + w7 * h[k] + w8 * i[k]


@device
def _window_rows(seen, shape, row, rows, weight, weight_at, sums):
    """Sums of one filter of depth 1 over ``rows`` rows of results, `_pitch` apart, of what
    `_spread` made; without strides these lie as the taps do, and run as one."""
    begin = row * shape.stride_rows * shape.stride_columns * _pitch(shape)
    count = (rows - 1) * _pitch(shape) + shape.columns
    if shape.kernel_rows == 3 and shape.kernel_columns == 3:
        _nine(seen, begin, shape, weight, weight_at, sums, count)
        return
    for k in range(count):
        sums[k] = 0
    for i in range(shape.kernel_rows):
        for j in range(shape.kernel_columns):
            factor = weight[weight_at + i * shape.kernel_columns + j]
            tap = seen[begin + _offset(shape, i, j) :]
            for k in range(count):
                sums[k] += factor * tap[k]


@device
def _requantize(sums, count, bias, factor, beside, residual, by, low, high, out):
    """Of ``count`` sums: clip(floor((sum + bias) * factor + 1/2)), with what lies ``beside`` in a
    residual, times ``by``."""
    for k in range(count):
        value = (np.float64(sums[k]) + bias) * factor
        if beside:
            value += residual[k] * by
        value = np.floor(value + 0.5)
        value = low if value < low else value
        value = high if value > high else value
        out[k] = np.int32(value)


@entry
def fixed_conv(
    image, shape, weight, bias, factors, beside, residual, by, low, high, run, seen, sums, out
):  # fmt: skip
    """The results of one image. ``weight`` is [M, depth * taps], flat; ``bias``, ``factors`` and
    ``by`` are float64 [M], powers of two but for the biases; ``seen`` and ``sums`` are for ``run``
    pixels on the way (rows, where filters have one channel: `window_sizes`)."""
    each, depth = shape.filters // shape.groups, shape.depth
    depth *= shape.kernel_rows * shape.kernel_columns
    area = shape.rows * shape.columns
    if shape.depth == 1 and shape.groups > 1:
        for m in range(shape.filters):
            if m % each == 0:
                _spread(image, shape, m // each, seen)
            for first in range(0, shape.rows, run):
                rows = min(run, shape.rows - first)
                _window_rows(seen, shape, first, rows, weight, m * depth, sums)
                for row in range(rows):
                    to = m * area + (first + row) * shape.columns
                    _requantize(
                        sums[row * _pitch(shape) :], shape.columns, bias[m], factors[m], beside,
                        residual[to:], by[m], low, high, out[to:],
                    )  # fmt: skip
        return
    for begin in range(0, area, run):
        count = min(run, area - begin)
        for group in range(shape.groups):
            _gather(image, shape, group, begin, count, seen)
            first = group * each
            matmul(weight[first * depth :], seen, sums, each, depth, count)
            for m in range(each):
                to = (first + m) * area + begin
                _requantize(
                    sums[m * count :], count, bias[first + m], factors[first + m], beside,
                    residual[to:], by[first + m], low, high, out[to:],
                )  # fmt: skip


@device
def _finish(sums, count, bias, scale, shift, low, high, out):
    for k in range(count):
        value = (sums[k] + bias) * scale + shift
        value = low if value < low else value
        value = high if value > high else value
        out[k] = value


@entry
def float_conv(image, shape, weight, bias, scale, shift, low, high, run, seen, sums, out):
    """As `fixed_conv`, in float32: (sum + bias) * scale + shift, all three [M], clipped."""
    each, depth = shape.filters // shape.groups, shape.depth
    depth *= shape.kernel_rows * shape.kernel_columns
    area = shape.rows * shape.columns
    if shape.depth == 1 and shape.groups > 1:
        for m in range(shape.filters):
            if m % each == 0:
                _spread(image, shape, m // each, seen)
            for first in range(0, shape.rows, run):
                rows = min(run, shape.rows - first)
                _window_rows(seen, shape, first, rows, weight, m * depth, sums)
                for row in range(rows):
                    to = m * area + (first + row) * shape.columns
                    _finish(
                        sums[row * _pitch(shape) :], shape.columns, bias[m], scale[m], shift[m],
                        low, high, out[to:],
                    )  # fmt: skip
        return
    for begin in range(0, area, run):
        count = min(run, area - begin)
        for group in range(shape.groups):
            _gather(image, shape, group, begin, count, seen)
            first = group * each
            matmul(weight[first * depth :], seen, sums, each, depth, count)
            for m in range(each):
                to = (first + m) * area + begin
                _finish(
                    sums[m * count :], count, bias[first + m], scale[first + m], shift[first + m],
                    low, high, out[to:],
                )  # fmt: skip
