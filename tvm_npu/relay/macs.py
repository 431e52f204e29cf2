"""Multiply-accumulates of Relay calls, on the NPU or not, for the report."""

from __future__ import annotations

from math import prod

from tvm import relay

from tvm_npu.relay import operands as of


def call_macs(call: relay.Call) -> int:
    """MACs of a convolution, dense or matrix product; 0 for others and for unknown shapes."""
    name = of.op_name(call)
    if not (name.startswith("nn.conv") or name in ("nn.dense", "nn.matmul", "nn.batch_matmul")):
        return 0
    if not all(of.is_tensor(expr) for expr in (*call.args[:2], call)):
        return 0
    shapes = [of.static_shape(expr.checked_type) for expr in (*call.args[:2], call)]
    data, weight, out = shapes
    if data is None or weight is None or out is None or not all(map(prod, (data, weight, out))):
        return 0
    if "transpose" in name:
        return prod(data) * prod(weight) // weight[0]
    if name.startswith("nn.conv"):
        layout = str(getattr(call.attrs, "kernel_layout", "OIHW"))
        filters = weight[layout.index("O")] if "O" in layout else weight[0]
        if layout == "HWOI":
            return prod(out) * prod(weight[:2])
        return prod(out) * prod(weight) // filters
    transposed = bool(getattr(call.attrs, "transpose_a", False))
    return prod(out) * data[-2 if transposed else -1]
