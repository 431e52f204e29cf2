"""What a caller puts into a pipeline, against what its first stage takes, and what comes out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tvm_npu.runtime.pipeline.artifact import TensorSpec
from tvm_npu.runtime.pipeline.errors import FrameError
from tvm_npu.runtime.pipeline.times import FrameTimes

Frame = Mapping[str, NDArray[Any]]


@dataclass(frozen=True)
class Result:
    """What came out for one frame; the arrays belong to the caller."""

    frame: int
    outputs: Mapping[str, NDArray[Any]]
    times: FrameTimes


def checked_frame(frame: Frame, inputs: Sequence[TensorSpec]) -> dict[str, NDArray[Any]]:
    """Raises FrameError unless names, shapes and types are those of the first stage's inputs."""
    arrays = {}
    for spec in inputs:
        if spec.name not in frame:
            raise FrameError(f"the frame has no {spec.name!r} (it has {', '.join(frame)})")
        array = np.asarray(frame[spec.name])
        if array.shape != spec.shape or array.dtype != np.dtype(spec.dtype):
            raise FrameError(
                f"{spec.name!r} is {array.dtype}{list(array.shape)}, the pipeline takes "
                f"{spec.dtype}{list(spec.shape)}"
            )
        arrays[spec.name] = array
    unknown = sorted(set(frame) - set(arrays))
    if unknown:
        raise FrameError(f"the pipeline takes no {unknown[0]!r} (it takes {', '.join(arrays)})")
    return arrays
