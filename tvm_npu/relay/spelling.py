"""What TVM's frontends write in several operators, in the words that rules know."""

from __future__ import annotations

from typing import Any

import numpy as np
from tvm import relay

from tvm_npu.relay import operands as of


def plain_spelling(call: relay.Call, args: list[Any]) -> Any:
    """What stands for a call with the new operands ``args``; None to keep it. Types are known."""
    return _prelu(call, args)


def _prelu(call: relay.Call, args: list[Any]) -> Any:
    """before: ``reshape(prelu(reshape(x, -1), reshape(broadcast_to_like(slopes, x), -1), axis=0),
            the shape of x)``
    after:  ``prelu(x, slopes [C], axis=1)``

    The ONNX frontend's PRelu, where channels have a slope each, or all have one.
    """
    if of.op_name(call) != "reshape" or of.op_name(args[0]) != "nn.prelu":
        return None
    flat, spread = args[0].args
    if of.op_name(flat) != "reshape" or of.op_name(spread) != "reshape":
        return None
    data, broadcast = flat.args[0], spread.args[0]
    shape = of.static_shape(call.checked_type)
    before = call.args[0].args[0].args[0]
    if of.op_name(broadcast) != "broadcast_to_like" or not broadcast.args[1].same_as(data):
        return None
    if shape is None or len(shape) < 2 or of.static_shape(before.checked_type) != shape:
        return None
    slopes = of.constant(broadcast.args[0])
    if slopes is None or slopes.ndim > len(shape):
        return None
    wide = (1,) * (len(shape) - slopes.ndim) + slopes.shape
    if wide not in ((1, shape[1], *(1 for _ in shape[2:])), (1,) * len(shape)):
        return None
    values = np.ascontiguousarray(np.broadcast_to(slopes.reshape(-1), shape[1]))
    called = relay.nn.prelu(data, relay.const(values, str(values.dtype)), axis=1)
    return relay.Call(called.op, called.args, called.attrs, None, args[0].span)
