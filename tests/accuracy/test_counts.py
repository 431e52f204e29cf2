"""What is counted of a sample's outputs: of any rank, finite or told."""

from __future__ import annotations

import numpy as np
import pytest

from tvm_npu.accuracy.counts import Counts
from tvm_npu.errors import AccuracyError

FINE = [np.array([[0.0, 1.0]], np.float32)]


@pytest.mark.parametrize("bad", [np.nan, -np.inf])
@pytest.mark.parametrize(("place", "side"), [(0, "in float"), (2, "on the NPU"), (1, "rounding")])
def test_answers_that_are_no_numbers_are_told(bad: float, place: int, side: str) -> None:
    results = [FINE, FINE, FINE]
    results[place] = [np.array([[0.0, bad]], np.float32)]
    with pytest.raises(AccuracyError, match=f"sample 7.*{side}: output 0 has 1 of 2 values like"):
        Counts.of(results, None, 7)
    with pytest.raises(AccuracyError, match="sample 7, on the NPU"):
        Counts.of([FINE, [np.array([[0.0, bad]], np.float32)]], None, 7)


def test_outputs_of_rank_0_are_one_image_without_a_class() -> None:
    results = [[np.array(2.0, np.float32)], [np.array(2.5, np.float32)]]
    counts = Counts.of(results, None, 1)
    assert counts.images == 1 and counts.powers[0].noise == 0.25
    with pytest.raises(AccuracyError, match="sample 1 has labels, .*rank 0"):
        Counts.of(results, (0,), 1)
