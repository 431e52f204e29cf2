"""Results of a stream are compared to the bit."""

from __future__ import annotations

import numpy as np
import pytest

from tvm_npu.pipelines.stream import ResultDiffers, compare
from tvm_npu.runtime.pipeline import Result
from tvm_npu.runtime.pipeline.times import FrameTimes


def result(**outputs: np.ndarray) -> Result:
    return Result(7, outputs, FrameTimes(7, 0, 0, 1, ()))


def test_equal_bits_pass() -> None:
    values = np.array([0.0, -0.0, np.nan], np.float32)
    compare(result(a=values.copy()), {"a": values})


@pytest.mark.parametrize("other", [[0.0, 0.0, 1.0], [1e-45, -0.0, 1.0]])
def test_one_bit_is_enough(other: list[float]) -> None:
    values = np.array([0.0, -0.0, 1.0], np.float32)
    found = result(first=values, a=np.array(other, np.float32))
    with pytest.raises(ResultDiffers, match="^frame 7: 1 of 3 elements of output 1 differ from"):
        compare(found, {"first": values, "a": values})
