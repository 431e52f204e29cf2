"""Indices of ONNX nodes that the model holds."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from tvm_npu.errors import PartitionError


def counted_from_the_front(
    indices: NDArray[Any], extents: tuple[int, ...], called: str
) -> NDArray[Any]:
    """Those into ``extents`` (one, or as many as the last axis has), without negative ones;
    PartitionError where one is none."""
    sizes = np.array(extents if len(extents) > 1 else extents[0])
    wrong = (indices < -sizes) | (indices >= sizes)
    if wrong.any():
        raise PartitionError(
            f"{called} has the index {indices[wrong][0]} into extents {list(extents)}; allowed: "
            "from minus the extent to the extent - 1"
        )
    return np.where(indices < 0, indices + sizes, indices).astype(indices.dtype)


def places_of_all_axes(
    count: tuple[int, ...], axis: int, dtype: str
) -> tuple[NDArray[Any], NDArray[np.bool_]]:
    """For indices of extents ``count`` along ``axis``: in a row for each of them its own place, and
    which of that is the one along the axis, where the index belongs."""
    grid = np.moveaxis(np.indices(count), 0, -1).reshape(-1, len(count)).astype(dtype)
    of_the_axis = np.zeros(grid.shape, bool)
    of_the_axis[:, axis] = True
    return grid, of_the_axis
