"""A TIR function that hands its tensors, and a blob compiled into it, to a packed function."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import tvm
from tvm import tir

from tvm_npu.relay.operands import TensorShape


def packed_caller(
    symbol: str,
    packed: str,
    strings: Sequence[str],
    blob: bytes,
    inputs: Sequence[TensorShape],
    outputs: Sequence[TensorShape],
    cpu_target: str,
) -> tvm.runtime.Module:
    """A runtime module with ``symbol(*inputs, *outputs)``, all float32.

    It calls ``packed(*strings, len(inputs), [blob as int8 [N],] *inputs, *outputs)``; an empty
    blob is left out.
    """
    buffers = [
        tir.decl_buffer(shape, "float32", name=f"tensor{number}")
        for number, shape in enumerate((*inputs, *outputs))
    ]
    arguments = [tir.StringImm(text) for text in strings]
    arguments.append(tir.IntImm("int32", len(inputs)))
    constant = tir.decl_buffer((max(len(blob), 1),), "int8", name="program")
    if blob:
        arguments.append(_array(constant))
    body: tir.Stmt = tir.Evaluate(
        tir.call_packed(packed, *arguments, *(_array(buffer) for buffer in buffers))
    )
    if blob:
        data = tvm.nd.array(np.frombuffer(blob, np.int8))
        body = tir.AllocateConst(constant.data, "int8", [len(blob)], data, body)
    handles = [tir.Var(f"handle{number}", "handle") for number in range(len(buffers))]
    function = tir.PrimFunc(
        handles, body, buffer_map=dict(zip(handles, buffers, strict=True))
    ).with_attr({"global_symbol": symbol, "tir.noalias": True})
    return tvm.build(tvm.IRModule({symbol: function}), target=tvm.target.Target(cpu_target))


def _array(buffer: tir.Buffer) -> tir.PrimExpr:
    """The buffer as a DLTensor on the stack."""
    shape = tir.call_intrin("handle", "tir.tvm_stack_make_shape", *buffer.shape)
    return tir.call_intrin(
        "handle",
        "tir.tvm_stack_make_array",
        buffer.data,
        shape,
        0,
        len(buffer.shape),
        tir.const(0, buffer.dtype),
        0,
    )
