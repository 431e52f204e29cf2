"""A TIR function that hands its tensors, and a blob in its library, to a packed function."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tvm
from tvm import tirx

from tvm_npu.door.program_section import StoredProgram, address_getter, section_code
from tvm_npu.relax.expressions import TensorShape


def packed_caller(
    symbol: str,
    packed: str,
    strings: Sequence[str],
    blob: StoredProgram,
    inputs: Sequence[TensorShape],
    outputs: Sequence[TensorShape],
    cpu_target: str,
) -> Any:
    """A runtime module with ``symbol(*inputs, *outputs)``, all float32.

    It calls ``packed(*strings, len(inputs), blob as int8 [N], *inputs, *outputs)``.
    """
    buffers = [
        tirx.decl_buffer(shape, "float32", name=f"tensor{number}")
        for number, shape in enumerate((*inputs, *outputs))
    ]
    address = tirx.call_extern("handle", address_getter(symbol))
    body = tirx.Evaluate(
        tirx.call_packed(
            packed,
            *strings,
            tirx.IntImm("int32", len(inputs)),
            _array(address, (blob.size_bytes,), "int8"),
            *(
                _array(buffer.data, shape, "float32")
                for buffer, shape in zip(buffers, (*inputs, *outputs), strict=True)
            ),
        )
    )
    code = tvm.ir.StringImm(section_code(symbol, blob))
    body = tirx.AttrStmt(tvm.ir.StringImm("program"), "pragma_import_llvm", code, body)
    function = tirx.PrimFunc(buffers, body).with_attr({"global_symbol": symbol})
    module = tvm.compile(tvm.IRModule({symbol: function}), target=tvm.target.Target(cpu_target))
    return getattr(module, "mod", module)


def _array(data: Any, shape: TensorShape, dtype: str) -> Any:
    """A DLTensor of a known shape on the stack."""
    return tirx.call_intrin(
        "handle",
        "tirx.tvm_stack_make_array",
        data,
        tirx.call_intrin("handle", "tirx.tvm_stack_make_shape", *shape),
        0,
        len(shape),
        tirx.const(0, dtype),
        0,
    )
