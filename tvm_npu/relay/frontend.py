"""Reading ONNX models where TVM's own frontend needs help."""

from __future__ import annotations

from typing import Any

import tvm
from tvm import relay

from tvm_npu.door.onnx_model import read_model, with_explicit_padding, with_folded_views
from tvm_npu.relay.onnx_clip import with_bounds_apart
from tvm_npu.relay.opset import check_opset, check_understood, opset_of
from tvm_npu.relay.quick_reading import quick_reading


def from_onnx(
    model: Any, shape: dict[str, tuple[int, ...]] | None = None, **options: Any
) -> tuple[tvm.IRModule, dict[str, tvm.nd.NDArray]]:
    """`tvm.relay.frontend.from_onnx` for a model or its path, with automatic padding spelled out,
    Clips with one bound kept and views of weights folded.

    TVM 0.19 computes ``auto_pad`` by compiling integer divisions, which LLVM 20 and later reject
    ("location of #dbg_declare must be a pointer or int"), and compiles a program for every
    Unsqueeze of a weight. ``shape`` and ``options`` are TVM's.
    Raises PartitionError for a file that is not an ONNX model and for operator sets and operators
    that TVM 0.19 would misread.
    """
    model = read_model(model)
    check_opset(model)
    check_understood(model)
    model = with_bounds_apart(model, opset_of(model))
    model = with_folded_views(with_explicit_padding(model, shape))
    with quick_reading():
        return relay.frontend.from_onnx(model, shape=shape, **options)
