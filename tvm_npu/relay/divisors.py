"""Relay's divisions of integers by a constant zero, which would end the process."""

from __future__ import annotations

from typing import Any

from tvm import relay

from tvm_npu.door.divisors import check_divisor
from tvm_npu.relay import operands as of

_DIVIDING = frozenset({"divide", "floor_divide", "mod", "floor_mod"})


def check_division(call: Any) -> None:
    """PartitionError for a call that divides integers by constants of which one is 0."""
    if of.op_name(call) not in _DIVIDING or not isinstance(call.args[1], relay.Constant):
        return
    name = of.source_of(call)
    operator = of.op_name(call)
    check_divisor(f"{operator} {name!r}" if name else operator, of.array_of(call.args[1]))
