"""Arrays that lie the other way round: the same values, and the same integers."""

from __future__ import annotations

import numpy as np
import pytest

from tvm_npu.codegen import row_blocks
from tvm_npu.codegen.fixed_point import quantize_tensor
from tvm_npu.codegen.row_blocks import contiguous


@pytest.mark.parametrize("shape", [(3, 5), (64, 2), (130, 7, 1, 1), (0, 4), (9,), ()])
def test_values_and_integers_do_not_depend_on_the_order_in_memory(shape: tuple[int, ...]) -> None:
    values = np.random.default_rng().standard_normal(shape[::-1]).astype(np.float32).T
    straight = np.array(values, order="C")
    found = contiguous(values)
    assert found.flags.c_contiguous and np.array_equal(found, straight)
    assert np.array_equal(quantize_tensor(values, 9, 2), quantize_tensor(straight, 9, 2))


def test_what_is_contiguous_is_not_copied() -> None:
    values = np.zeros((4, 3), np.float32)
    assert contiguous(values) is values


def test_integers_are_made_without_a_copy_of_all_values(monkeypatch: pytest.MonkeyPatch) -> None:
    largest = []
    original = np.ascontiguousarray

    def seen(values: np.ndarray) -> np.ndarray:
        largest.append(values.size)
        return original(values)

    monkeypatch.setattr(row_blocks.np, "ascontiguousarray", seen)
    quantize_tensor(np.zeros((10, 1000), np.float32).T, 4, 2)
    assert max(largest) <= row_blocks.ROWS * 10
