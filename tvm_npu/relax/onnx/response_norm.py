"""LRN nodes of ONNX models, in whose place TVM's importer takes squares, sums and a power."""

from __future__ import annotations

from typing import Any

from tvm import topi

from tvm_npu.relax import expressions as of
from tvm_npu.relax.onnx.node import Node, Reader


def _response_norm(node: Node) -> Any:
    """The loops that Relay has for LRN, as one call: taken apart, its squares would join the
    regions in front of it, which then hand over two tensors. None where Relay has none."""
    data, size = node.inputs[0], node.attrs["size"]
    if len(of.extents(data.ty)) != 4 or size % 2 == 0:
        return None
    alpha, beta, bias = (
        node.attrs.get(name, default)
        for name, default in (("alpha", 1e-4), ("beta", 0.75), ("bias", 1.0))
    )
    return node.builder.emit_te(topi.nn.lrn, data, size, 1, alpha, beta, bias)


READERS: dict[str, Reader] = {"LRN": _response_norm}
