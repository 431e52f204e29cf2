"""What tile commands mean, in int64 NumPy, one loop an axis."""

from __future__ import annotations

import numpy as np


def convolution(
    x: np.ndarray,
    w: np.ndarray,
    out: tuple[int, int],
    pad: tuple[int, int] = (0, 0),
    stride: tuple[int, int] = (1, 1),
    dilation: tuple[int, int] = (1, 1),
    groups: int = 1,
) -> np.ndarray:
    """int64 [filters, *out] of x [channels, rows, columns] and w [filters, channels / groups, kh,
    kw]; ``pad`` zeros in front, and as many behind as are missing."""
    filters, depth, *kernel = w.shape
    need = [(out[a] - 1) * stride[a] + (kernel[a] - 1) * dilation[a] + 1 for a in (0, 1)]
    behind = [max(0, need[a] - pad[a] - x.shape[1 + a]) for a in (0, 1)]
    wide = np.pad(x.astype(np.int64), ((0, 0), (pad[0], behind[0]), (pad[1], behind[1])))
    result = np.zeros((filters, *out), np.int64)
    per_group = filters // groups
    for f in range(filters):
        first = f // per_group * depth
        for i in range(kernel[0]):
            for j in range(kernel[1]):
                y, z = i * dilation[0], j * dilation[1]
                part = wide[
                    first : first + depth,
                    y : y + (out[0] - 1) * stride[0] + 1 : stride[0],
                    z : z + (out[1] - 1) * stride[1] + 1 : stride[1],
                ]
                result[f] += (part * w[f, :, i, j].astype(np.int64)[:, None, None]).sum(axis=0)
    return result


def requantized(acc: np.ndarray, shift: int, low: int, high: int, bits: int) -> np.ndarray:
    """clip(saturate(floor(acc / 2**shift + 1/2)), low, high) with Python's integers."""
    top = 1 << (bits - 1)

    def one(value: int) -> int:
        if shift > 0:
            value = (value + (1 << (shift - 1))) >> shift
        else:
            value <<= -shift
        return min(max(min(max(value, -top), top - 1), low), high)

    flat = [one(int(value)) for value in acc.reshape(-1)]
    return np.array(flat, np.int64).reshape(acc.shape)
