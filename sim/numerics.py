"""Exact arithmetic on tiles in NumPy, for simulators that are not compiled."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

Array = NDArray[Any]
Pair = tuple[int, int]
"""Of rows and of columns."""


def windows(
    x: Array, results: Pair, kernel: Pair, stride: Pair, dilation: Pair, padding: Pair, fill: int
) -> Array:
    """[N, R, C, KH, KW]: what lies under each of ``results`` rows and columns of a window operation
    on ``x`` [N, H, W], ``padding`` in front; ``fill`` where nothing lies. All counts are positive,
    and their product is the caller's to bound."""
    spans = [(kernel[i] - 1) * dilation[i] + 1 for i in range(2)]
    reach = [(results[i] - 1) * stride[i] + spans[i] for i in range(2)]
    around = [(padding[i], max(reach[i] - padding[i] - x.shape[i + 1], 0)) for i in range(2)]
    x = np.pad(x, [(0, 0), *around], constant_values=fill)[:, : reach[0], : reach[1]]
    view = sliding_window_view(x, spans, axis=(1, 2))
    return view[:, :: stride[0], :: stride[1], :: dilation[0], :: dilation[1]]


def window_counts(
    size: Pair, results: Pair, kernel: Pair, stride: Pair, padding: Pair, front: Pair, behind: Pair
) -> Array:
    """[R, C]: elements of each window that lie inside a tensor of ``size`` rows and columns that is
    ``front`` and ``behind`` wider."""
    counts = []
    for i in range(2):
        begin = np.arange(results[i]) * stride[i] - padding[i]
        inside = np.minimum(begin + kernel[i], size[i] + behind[i])
        counts.append(inside - np.maximum(begin, -front[i]))
    return counts[0][:, None] * counts[1]


def convolve(weight: Array, seen: Array) -> Array:
    """Sums [M, R, C] of ``weight`` [M, N, KH, KW] and `windows` [N, R, C, KH, KW], int64. Exact
    while they stay below 2**53, as those of int16 tiles with less than 2**23 products do."""
    exact = weight.astype(np.float64), seen.astype(np.float64)
    return np.tensordot(*exact, ((1, 2, 3), (0, 3, 4))).astype(np.int64)


def requantize(sums: Array, shift: int, low: int, high: int, dtype: np.dtype[Any]) -> Array:
    """Round half up, saturate, clip: ``clip(saturate(floor((sums + half) >> shift)), low, high)``.
    ``shift`` is at most 62; a negative one shifts left."""
    limits = np.iinfo(dtype)
    sums = (sums + (1 << shift >> 1)) >> shift if shift > 0 else sums << -shift
    return np.clip(np.clip(sums, limits.min, limits.max), low, high).astype(dtype)
