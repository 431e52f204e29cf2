"""Limits of runs: what they may be."""

from __future__ import annotations

from typing import Any

import pytest

from tvm_npu.sim.limits import LimitError, Limits


@pytest.mark.parametrize(
    "value", [None, True, 0, -1, 1.0, "9", 1 << 63, pytest.param(10**5000, id="long")]
)
def test_work_that_is_no_limit(value: Any) -> None:
    with pytest.raises(LimitError, match="^limit work is .{1,40}; a whole number from 1 to 92233"):
        Limits(work=value)


@pytest.mark.parametrize("name", ["instructions", "dram_bytes", "host_bytes"])
def test_others_may_be_left_open(name: str) -> None:
    assert getattr(Limits(**{name: None}), name) is None
    with pytest.raises(LimitError, match=f"limit {name} is True"):
        Limits(**{name: True})


def test_text_of_limits_that_are_too_large() -> None:
    with pytest.raises(LimitError, match=r"limit work is more than 2\*\*73;"):
        Limits.parse("work=9999999999t")
