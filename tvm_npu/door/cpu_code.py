"""What TVM cannot compile or run on the CPU, as an error that names the model's operator."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from tvm_npu.door.dataflow import OpCall
from tvm_npu.errors import CpuCodeError, NpuError
from tvm_npu.sim.errors import BoundedError
from tvm_npu.sim.interrupted import Interrupted

MOST_SUSPECTS = 200
"""Operators that are compiled alone to find the one that TVM cannot compile."""
_BUILT_AT = "/project/"
"""Where the C++ of TVM's wheels lies in their tracebacks."""

Suspects = Iterable[tuple[OpCall, Callable[[], object]]]
"""Operators of a model, each with what compiles it alone."""


def reason_of(error: Exception) -> str:
    """The one line of an error of TVM's that says what is wrong."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    kind = f"{type(error).__name__}: "
    return kind + (lines[-1].removeprefix(kind) if lines else "no further word")


@contextmanager
def cpu_code(suspects: Callable[[], Suspects] = tuple) -> Iterator[None]:
    """Around TVM's compiler: its exceptions, which are of any class, become CpuCodeErrors that name
    the first of ``suspects`` that TVM cannot compile alone. All other exceptions stay."""
    try:
        yield
    except Interrupted:
        raise
    except Exception as error:
        if not is_tvms(error):
            raise
        found = _culprit(suspects())
        raise CpuCodeError(
            f"TVM cannot compile {found or 'the part of the model that stays on the CPU'} for the "
            f"CPU: {reason_of(error)}; the NPU's rules leave "
            f"{'this operator' if found else 'that part'} to TVM: write it in the model in a way "
            "that TVM can compile"
        ) from error


def _culprit(suspects: Suspects) -> str:
    for _, (call, compile_alone) in zip(range(MOST_SUSPECTS), suspects, strict=False):
        try:
            compile_alone()
        except Exception as error:
            if is_tvms(error):
                operands = ", ".join(str(type_) for one in call.operands for type_ in one.types)
                return f"{call.spelling} {call.source!r} of {operands or 'nothing'}"
    return ""


def is_tvms(error: Exception) -> bool:
    """Was it raised by TVM itself, not by what TVM calls back?"""
    if isinstance(error, BoundedError | NpuError):
        return False
    ours, tvms = _folders("tvm_npu"), (*_folders("tvm"), *_folders("tvm_ffi"), _BUILT_AT)
    for file in _innermost_first(error):
        if file.startswith(tvms):
            return True
        if file.startswith(ours):
            return False
    return False


def _innermost_first(error: Exception) -> list[str]:
    """Files of an error's traceback."""
    files, trace = [], error.__traceback__
    while trace is not None:
        files.append(trace.tb_frame.f_code.co_filename)
        trace = trace.tb_next
    return files[::-1]


def _folders(package: str) -> tuple[str, ...]:
    module = sys.modules.get(package)
    return tuple(str(Path(path).resolve()) + os.sep for path in getattr(module, "__path__", ()))
