"""A TIR function that hands its tensors, and a blob in its library, to a packed function."""

from __future__ import annotations

from collections.abc import Sequence

import tvm
from tvm import tir

from tvm_npu.door.program_section import StoredProgram, address_getter, section_code
from tvm_npu.relay.operands import TensorShape


def packed_caller(
    symbol: str,
    packed: str,
    strings: Sequence[str],
    blob: StoredProgram | None,
    inputs: Sequence[TensorShape],
    outputs: Sequence[TensorShape],
    cpu_target: str,
) -> tvm.runtime.Module:
    """A runtime module with ``symbol(*inputs, *outputs)``, all float32.

    It calls ``packed(*strings, len(inputs), [blob as int8 [N],] *inputs, *outputs)``; without
    a blob that is left out.
    """
    shapes = (*inputs, *outputs)
    handles = [tir.Var(f"tensor{number}", "handle") for number in range(len(shapes))]
    tensors = [
        _array(_field(handle, _DATA, "handle"), shape, "float32", _field(handle, _OFFSET, "uint64"))
        for handle, shape in zip(handles, shapes, strict=True)
    ]
    arguments = [tir.StringImm(text) for text in strings]
    arguments.append(tir.IntImm("int32", len(inputs)))
    if blob is not None:
        address = tir.call_extern("handle", address_getter(symbol))
        arguments.append(_array(address, (blob.size_bytes,), "int8", tir.const(0, "uint64")))
    body: tir.Stmt = tir.Evaluate(tir.call_packed(packed, *arguments, *tensors))
    if blob is not None:
        code = tir.StringImm(section_code(symbol, blob))
        body = tir.AttrStmt(tir.StringImm("program"), "pragma_import_llvm", code, body)
    for key, value in (("device_type", tvm.cpu().device_type), ("device_id", 0)):
        body = tir.AttrStmt(tir.StringImm("device"), key, tir.IntImm("int32", value), body)
    function = tir.PrimFunc(handles, body).with_attr({"global_symbol": symbol, "tir.noalias": True})
    return tvm.build(tvm.IRModule({symbol: function}), target=tvm.target.Target(cpu_target))


_DATA, _OFFSET = 1, 8
"""Fields of a DLTensor as `tir.tvm_struct_get` numbers them: data, byte_offset."""


def _field(handle: tir.Var, field: int, dtype: str) -> tir.PrimExpr:
    return _intrinsic(dtype, "tir.tvm_struct_get", handle, 0, field)


def _array(
    data: tir.PrimExpr, shape: TensorShape, dtype: str, byte_offset: tir.PrimExpr
) -> tir.PrimExpr:
    """A DLTensor of a known shape on the stack. The AOT executor hands over tensors without
    their shapes, so the compiled shapes are used and the caller's are not looked at."""
    size = tir.const(max(tvm.DataType(dtype).bits // 8, 1), "uint64")
    return _intrinsic(
        "handle",
        "tir.tvm_stack_make_array",
        data,
        _intrinsic("handle", "tir.tvm_stack_make_shape", *shape),
        0,
        len(shape),
        tir.const(0, dtype),
        tir.truncdiv(byte_offset, size),
    )


def _intrinsic(dtype: str, name: str, *operands: tir.PrimExpr | int) -> tir.PrimExpr:
    """TVM takes Python's own numbers, too, but in C++ by an error with a backtrace, of which the
    first takes 50 MB for debug information."""
    made = [tir.const(one) if isinstance(one, int) else one for one in operands]
    return tir.call_intrin(dtype, name, *made)
