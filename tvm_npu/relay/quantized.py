"""Quantized models as real numbers that are rounded between layers, for rules to read.

    before: qnn.conv2d(q, w) -> bias_add -> qnn.requantize -> q'
    after:  conv2d(x, w s_w) -> bias_add -> divide(s) -> round -> clip -> multiply(s) -> x'

Models of QuantizeLinear and DequantizeLinear alone (QDQ) round halves to even: in theirs the clip
stands in front of the round, which gives the same values.
Integers of 8 bits become the real numbers that they mean, scales the operators that
`codegen.passes.given_scales` reads. What is left on the CPU computes the same to within one step.
Integers appear only where the model has them as inputs and outputs, and around operators that
`relay.qnn_operators` does not know, in `qnn.dequantize` and `qnn.quantize`.
"""

from __future__ import annotations

from tvm import relay

from tvm_npu.relay import operands as of
from tvm_npu.relay.qnn_operators import HANDLERS
from tvm_npu.relay.real_values import Rewriting

QDQ = {"qnn.quantize", "qnn.dequantize"}


def with_real_numbers(function: relay.Function) -> relay.Function:
    """``function``, with checked types, without the integers inside."""
    operators = {of.op_name(expr) for expr in of.post_order(function.body)}
    integer = {name for name in operators if name.startswith("qnn.")}
    rewriting = Rewriting(HANDLERS, "even" if integer <= QDQ else "up")
    body = rewriting.run(function.body)
    return relay.Function(
        function.params, body, None, function.type_params, function.attrs, function.span
    )
