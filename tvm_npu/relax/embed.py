"""A TIR function that hands its tensors, and a blob that lies in its library, to a packed function.

The blob does not pass through LLVM's constants, which take gigabytes for megabytes: the assembler
of LLVM copies it from a file into a section of the object (``.incbin``), whenever the object is
made: when the code is first called, and when the library is exported. The file is kept until the
process ends.
"""

from __future__ import annotations

import atexit
import shutil
import tempfile
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import tvm
from tvm import tirx

from tvm_npu.relax.expressions import TensorShape


def packed_caller(
    symbol: str,
    packed: str,
    strings: Sequence[str],
    blob: bytes,
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
    address = tirx.call_extern("handle", _getter(symbol))
    body = tirx.Evaluate(
        tirx.call_packed(
            packed,
            *strings,
            tirx.IntImm("int32", len(inputs)),
            _array(address, (len(blob),), "int8"),
            *(
                _array(buffer.data, shape, "float32")
                for buffer, shape in zip(buffers, (*inputs, *outputs), strict=True)
            ),
        )
    )
    code = tvm.ir.StringImm(_section(symbol, blob))
    body = tirx.AttrStmt(tvm.ir.StringImm("program"), "pragma_import_llvm", code, body)
    function = tirx.PrimFunc(buffers, body).with_attr({"global_symbol": symbol})
    module = tvm.compile(tvm.IRModule({symbol: function}), target=_target(cpu_target))
    return getattr(module, "mod", module)


def _getter(symbol: str) -> str:
    return f"{symbol}_program_bytes"


def _section(symbol: str, blob: bytes) -> str:
    """LLVM code with a function that returns the address of ``blob``."""
    path = _folder() / f"{symbol}-{len(list(_folder().iterdir()))}"
    path.write_bytes(blob)
    escaped = str(path).replace("\\", "\\5C").replace('"', "\\22")
    lines = (".section .rodata", ".p2align 6", f"{symbol}_program:", f".incbin \\22{escaped}\\22")
    assembly = "\n".join(f'module asm "{line}"' for line in (*lines, ".text"))
    return (
        f"{assembly}\n@{symbol}_program = external hidden constant i8\n"
        f"define ptr @{_getter(symbol)}() {{\n  ret ptr @{symbol}_program\n}}\n"
    )


@lru_cache(maxsize=1)
def _folder() -> Path:
    folder = tempfile.mkdtemp(prefix="tvm-npu-programs-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return Path(folder)


def _target(cpu_target: str) -> Any:
    return tvm.target.Target(cpu_target)


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
