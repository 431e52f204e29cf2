"""Runs of a DMA program's stores as the box that they are."""

from __future__ import annotations

import numpy as np
import pytest

from tvm_npu.sim.tiles.dma_control import NO_BOX, Box, box_of


def runs_of(box: Box) -> list[tuple[int, int]]:
    begin, size, runs, step, groups, group_step = box
    at = [begin + g * group_step + r * step for g in range(groups) for r in range(runs)]
    return [(one, one + size) for one in at]


@pytest.mark.parametrize("seed", range(20))
def test_a_box_comes_back(seed: int) -> None:
    random = np.random.default_rng(seed)
    size, runs, groups = (int(one) for one in random.integers(1, 6, 3))
    step = size + int(random.integers(1, 5))
    group_step = runs * step + int(random.integers(0, 5))
    wanted = runs_of((7, size, runs, step, groups, group_step))
    found = box_of(np.array(wanted))
    assert found != NO_BOX and runs_of(found) == wanted
    for number in range(len(wanted)):  # one run elsewhere, or longer
        begin, end = wanted[number]
        for other in ((begin + 100, end + 100), (begin, end + 1)):
            changed = [*wanted[:number], other, *wanted[number + 1 :]]
            box = box_of(np.array(changed))
            assert box == NO_BOX or runs_of(box) == changed


def test_what_is_not_known_is_no_box() -> None:
    assert box_of(None) == box_of(np.zeros((0, 2), np.int64)) == NO_BOX
