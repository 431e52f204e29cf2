"""Array arithmetic under the operators: windows, convolution, pooling sums, layout moves.

All arrays are [B, C, H, W] with the batch in front; nothing here knows layers or scales, so the
float and the fixed meaning of an operator share every index computation.
"""

from __future__ import annotations

import numpy as np
from numpy.lib.stride_tricks import as_strided
from numpy.typing import DTypeLike, NDArray

from tvm_npu.codegen.errors import GraphError
from tvm_npu.codegen.graph.tensors import Array, Padding, chw, output_extent

COLUMN_BYTES = 32 << 20
"""Largest column matrix of the im2col product; bigger images are cut into runs of rows."""

CACHED_BYTES = 128 << 10
"""Of arrays that are walked over several times."""


def pad_spatial(x: Array, padding: Padding, value: float) -> Array:
    """``x`` widened by (top, left, bottom, right); negative amounts crop."""
    top, left, bottom, right = padding
    rows, columns = x.shape[2], x.shape[3]
    x = x[
        :,
        :,
        max(-top, 0) : rows - max(-bottom, 0),
        max(-left, 0) : columns - max(-right, 0),
    ]
    grow = [max(amount, 0) for amount in padding]
    if not any(grow):
        return x
    width = ((0, 0), (0, 0), (grow[0], grow[2]), (grow[1], grow[3]))
    return np.pad(x, width, constant_values=np.asarray(value, dtype=x.dtype))


def pad_tensor(
    x: Array,
    before: tuple[int, int, int],
    after: tuple[int, int, int],
    stride: tuple[int, int],
    value: float,
) -> Array:
    """Constant padding of [B, C, H, W] (negative amounts crop), then every stride-th row and
    column."""
    x = pad_spatial(x, (before[1], before[2], after[1], after[2]), value)
    x = x[:, max(-before[0], 0) : x.shape[1] - max(-after[0], 0)]
    grow = (max(before[0], 0), max(after[0], 0))
    if any(grow):
        fill = np.asarray(value, dtype=x.dtype)
        x = np.pad(x, ((0, 0), grow, (0, 0), (0, 0)), constant_values=fill)
    return x[:, :, :: stride[0], :: stride[1]]


def windows(
    x: Array, kernel: tuple[int, int], stride: tuple[int, int], dilation: tuple[int, int] = (1, 1)
) -> Array:
    """Read-only view [B, C, kernel_h, kernel_w, R, C'] of all windows of an already padded x."""
    rows = output_extent(x.shape[2], kernel[0], stride[0], dilation[0], 0)
    columns = output_extent(x.shape[3], kernel[1], stride[1], dilation[1], 0)
    if rows < 1 or columns < 1:
        raise GraphError(
            f"a window of {kernel} with dilation {dilation} does not fit into the padded extent "
            f"{x.shape[2:]}"
        )
    b, c, h, w = x.strides
    return as_strided(
        x,
        (x.shape[0], x.shape[1], *kernel, rows, columns),
        (b, c, h * dilation[0], w * dilation[1], h * stride[0], w * stride[1]),
        writeable=False,
    )


def convolve(
    x: Array,
    weight: Array,
    stride: tuple[int, int],
    padding: Padding,
    dilation: tuple[int, int],
    groups: int,
    dtype: DTypeLike,
) -> Array:
    """Sums of products [B, M, R, C'] without bias, computed and returned in ``dtype``.

    ``weight`` is [M, N / groups, kernel_h, kernel_w]. Raises GraphError when the channels do not
    match or no window fits.
    """
    filters, depth, *_ = weight.shape
    if depth * groups != x.shape[1] or filters % groups:
        raise GraphError(
            f"weight {weight.shape} with {groups} groups does not fit {x.shape[1]} channels"
        )
    kernel = (weight.shape[2], weight.shape[3])
    padded = pad_spatial(x, padding, 0).astype(dtype, copy=False)
    view = windows(padded, kernel, stride, dilation)
    weight = weight.astype(dtype, copy=False)
    if depth == 1 and groups > 1:
        return _depthwise(view, weight, groups)
    return _im2col(view, weight, groups)


def _depthwise(view: Array, weight: Array, groups: int) -> Array:
    """One multiply-add of planes per kernel position, of as many groups as caches hold."""
    batch, _, kernel_h, kernel_w, rows, columns = view.shape
    per_group = weight.shape[0] // groups
    factors = weight.reshape(groups, per_group, kernel_h, kernel_w, 1, 1)
    out = np.empty((batch, groups, per_group, rows, columns), dtype=weight.dtype)
    run = max(1, CACHED_BYTES // (per_group * rows * columns * weight.itemsize))
    term = np.empty((min(run, groups), per_group, rows, columns), dtype=weight.dtype)
    for image in range(batch):
        for group in range(0, groups, run):
            seen, by = view[image, group : group + run, None], factors[group : group + run]
            total = out[image, group : group + run]
            total[...] = 0
            for i in range(kernel_h):
                for j in range(kernel_w):
                    part = term[: len(total)]
                    np.multiply(seen[:, :, i, j], by[:, :, i, j], out=part)
                    total += part
    return out.reshape(batch, -1, rows, columns)


def _im2col(view: Array, weight: Array, groups: int) -> Array:
    batch, channels, kernel_h, kernel_w, rows, columns = view.shape
    filters = weight.shape[0]
    depth = weight[0].size
    matrix = weight.reshape(groups, filters // groups, depth)
    if rows * columns == 1 and groups == 1:
        return (view.reshape(batch, depth) @ matrix[0].T).reshape(batch, filters, 1, 1)
    out = np.empty((batch, filters, rows, columns), dtype=weight.dtype)
    row_bytes = channels * kernel_h * kernel_w * columns * weight.itemsize
    images = max(1, COLUMN_BYTES // (row_bytes * rows))
    run = rows if images > 1 else min(rows, max(1, COLUMN_BYTES // row_bytes))
    for image in range(0, batch, images):
        for row in range(0, rows, run):
            part = view[image : image + images, ..., row : row + run, :]
            count, here = part.shape[0], part.shape[4]
            product = matrix @ part.reshape(count, groups, depth, here * columns)
            out[image : image + images, :, row : row + run] = product.reshape(
                count, filters, here, columns
            )
    return out


def window_counts(
    extents: tuple[int, int],
    out_extents: tuple[int, int],
    kernel: tuple[int, int],
    stride: tuple[int, int],
    padding: Padding,
    counted_padding: Padding,
) -> NDArray[np.int64]:
    """Elements [R, C'] of every pooling window inside the tensor widened by
    ``counted_padding``."""
    per_axis = []
    for axis in range(2):
        begin = np.arange(out_extents[axis]) * stride[axis] - padding[axis]
        low = np.maximum(begin, -counted_padding[axis])
        high = np.minimum(begin + kernel[axis], extents[axis] + counted_padding[axis + 2])
        per_axis.append(np.maximum(high - low, 0))
    return np.multiply.outer(per_axis[0], per_axis[1]).astype(np.int64)


def images(x: Array) -> Array:
    """[B, *shape] seen as [B, C, H, W]."""
    return x.reshape(x.shape[0], *chw(x.shape[1:]))
