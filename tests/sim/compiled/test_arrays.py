from __future__ import annotations

from typing import Any

import numpy as np

from tvm_npu.sim.compiled import entry
from tvm_npu.sim.compiled.arrays import copy_into


@entry
def put(target: Any, source: Any) -> None:
    copy_into(target[2:], source)


def test_copies_of_all_lengths() -> None:
    for length in (0, 1, 2, 15, 16, 17, 1000):
        source = np.random.default_rng().integers(-100, 100, length).astype(np.int8)
        target = np.full(length + 5, 101, np.int8)
        put(target, source)
        assert (target[2 : length + 2] == source).all()
        assert target[:2].tolist() == [101] * 2 and target[length + 2 :].tolist() == [101] * 3
