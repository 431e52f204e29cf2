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
    with pytest.raises(LimitError, match="limit work is 10995116276660488372224; a whole number"):
        Limits.parse("work=9999999999t")


@pytest.mark.parametrize("value", [10**5000, -(10**5000)], ids=["large", "negative"])
def test_numbers_too_long_for_text(value: int) -> None:
    with pytest.raises(LimitError, match="limit host_bytes is a number of 16610 bits; a whole"):
        Limits(host_bytes=value)


@pytest.mark.parametrize("text", ["work=1,work=2", "work=1, instructions=5,work=1"])
def test_a_limit_that_is_given_twice(text: str) -> None:
    with pytest.raises(LimitError, match="limit work is given twice"):
        Limits.parse(text)


def test_fewer_instructions() -> None:
    assert Limits(work=5).lowered(7) == Limits(work=5, instructions=7)
    assert Limits(instructions=3).lowered(7) == Limits(instructions=3)
    assert Limits(instructions=9).lowered(7) == Limits(instructions=7)
    with pytest.raises(LimitError, match="limit instructions is 0"):
        Limits(instructions=9).lowered(0)
