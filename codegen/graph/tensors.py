"""Shapes and array types of an NPU graph's tensors."""

from __future__ import annotations

from math import prod
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
FloatArray = NDArray[np.float32]
IntArray = NDArray[Any]
Shape = tuple[int, ...]
"""Without the batch: (C, H, W), (C,) for a flat tensor, (T, N) for a sequence of T flat ones."""
Padding = tuple[int, int, int, int]
"""top, left, bottom, right; a negative value crops."""
Halves = Literal["up", "even"]
"""Where rounding takes what lies in the middle of two integers."""


def chw(shape: Shape) -> tuple[int, int, int]:
    """A batch-free shape seen as (C, H, W): flat tensors have H = W = 1."""
    if len(shape) == 3:
        return (shape[0], shape[1], shape[2])
    return (prod(shape), 1, 1)


def output_extent(extent: int, kernel: int, stride: int, dilation: int, padding: int) -> int:
    """Output rows or columns of a window operation; ``padding`` is both sides' sum."""
    return (extent + padding - ((kernel - 1) * dilation + 1)) // stride + 1
