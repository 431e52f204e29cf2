"""Roundings as operators, between layers and in front of integers, and changes of layout."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from tvm import relay
from tvm.ir import structural_equal

from tvm_npu.codegen.graph import Halves
from tvm_npu.relay import operands as of

Expr = Any
Reals = NDArray[np.float64]


def spanned(call: relay.Call, span: Any) -> relay.Call:
    return relay.Call(call.op, call.args, call.attrs, call.type_args, span)


def rounded(
    real: Expr, steps: Reals, zero_point: int, dtype: str, span: Any, halves: Halves
) -> Expr:
    """``real`` rounded to a step, within the integers of a type."""
    low, high = np.iinfo(dtype).min - zero_point, np.iinfo(dtype).max - zero_point
    step = relay.const(np.float32(steps.flat[0]))
    found = spanned(relay.divide(real, step), span)
    if halves == "up":
        found = spanned(relay.round(found), span)
    found = spanned(relay.clip(found, float(low), float(high)), span)
    if halves == "even":
        found = spanned(relay.round(found), span)
    return spanned(relay.multiply(found, step), span)


ROUNDINGS = ("multiply", "clip", "round", "divide"), ("multiply", "round", "clip", "divide")
"""What `rounded` makes, the last first."""


def layouts_apart(call: relay.Call, args: list[Expr]) -> Expr:
    """For `normalize.rewrite_calls`: a layout_transform goes in front of a rounding, so that the
    region behind it begins with the rounding; one that regions may end with becomes an operator
    that they know.

    before: x -> rounding -> layout_transform(NHWC to NCHW) -> y
    after:  x -> layout_transform(NHWC to NCHW) -> rounding -> y
    """
    if of.op_name(call) != "layout_transform":
        return None
    source, target = str(call.attrs.src_layout), str(call.attrs.dst_layout)
    if sorted(source) != sorted(target) or not source.isalpha() or not source.isupper():
        return None
    if target == "NCHW":
        return _in_front(call, args[0])
    shape, made = of.static_shape(call.args[0].checked_type), of.static_shape(call.checked_type)
    if shape is not None and made is not None and sum(extent > 1 for extent in shape[1:]) <= 1:
        return spanned(relay.reshape(args[0], made), call.span)
    return spanned(relay.transpose(args[0], [source.index(one) for one in target]), call.span)


def _in_front(call: relay.Call, rounded_: Expr) -> Expr:
    chain: list[Any] = []
    for _ in ROUNDINGS[0]:
        if not isinstance(rounded_, relay.Call) or not rounded_.args:
            return None
        chain.append(rounded_)
        rounded_ = rounded_.args[0]
    if tuple(of.op_name(one) for one in chain) not in ROUNDINGS:
        return None
    made = relay.Call(call.op, [rounded_], call.attrs, None, call.span)
    for one in reversed(chain):
        made = relay.Call(one.op, [made, *one.args[1:]], one.attrs, None, one.span)
    return made


def to_even(value: Expr, dtype: str) -> Expr:
    """``value`` rounded, halves to the even number: relay's own rounding takes them away from 0.
    Half of what is a half is none."""
    half, two = relay.const(0.5, dtype), relay.const(2.0, dtype)
    found = relay.round(value)
    is_half = relay.equal(relay.abs(relay.subtract(found, value)), half)
    even = relay.multiply(relay.round(relay.multiply(value, half)), two)
    return relay.where(is_half, even, found)


def is_to_even(expr: Expr) -> bool:
    """Whether it is the round of a `rounded` whose halves go to the even step."""
    chain = [expr]
    for name in ("round", "clip", "divide"):
        if of.op_name(chain[-1]) != name:
            return False
        chain.append(chain[-1].args[0])
    return isinstance(chain[-2].args[1], relay.Constant)


def whole_steps(real: Expr, step: Expr, dtype: str) -> Expr:
    """``real`` rounded to a step, halves to the even one, without limits."""
    return relay.multiply(to_even(relay.divide(real, step), dtype), step)


def before_whole_steps(expr: Expr) -> Expr:
    """The numbers of which `whole_steps` made ``expr``; others as they are."""
    if of.op_name(expr) != "multiply" or of.op_name(expr.args[0]) != "where":
        return expr
    found, step = expr.args[0].args[2], expr.args[1]
    if of.op_name(found) != "round" or of.op_name(found.args[0]) != "divide":
        return expr
    real, divisor = found.args[0].args
    return real if structural_equal(divisor, step) else expr
