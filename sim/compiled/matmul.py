"""Matrix products in compiled code, by the BLAS that NumPy brings.

numba's own ``np.dot`` calls the BLAS of SciPy, and importing that takes longer than simulating a
small network.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import binding
from numba.core import types
from numba.core.typing import signature

from tvm_npu.sim.blas import cblas_address
from tvm_npu.sim.compiled.decorators import device

_ROW_MAJOR, _AS_IT_IS, _TRANSPOSED = 101, 111, 112
_FLOAT_BYTES = 4
_ONE, _ZERO = np.float32(1), np.float32(0)

# Sizes as 64 bits: a BLAS that wants 32 takes the lower half of each.
_ENUM, _SIZE, _POINTER = types.int32, types.int64, types.voidptr


def _cblas(name: str, *parameters: Any) -> Any:
    symbol = f"tvm_npu_cblas_{name}"
    binding.add_symbol(symbol, cblas_address(name))
    return types.ExternalFunction(symbol, signature(types.void, *parameters))


def _gemm(name: str, number: Any) -> Any:
    operand = (_POINTER, _SIZE)
    return _cblas(
        name, *[_ENUM] * 3, *[_SIZE] * 3, number, *operand, *operand, number, *operand
    )  # fmt: skip


def _gemv(name: str, number: Any) -> Any:
    operand = (_POINTER, _SIZE)
    return _cblas(name, *[_ENUM] * 2, *[_SIZE] * 2, number, *operand, *operand, number, *operand)


_dgemm, _sgemm = _gemm("dgemm", types.float64), _gemm("sgemm", types.float32)
_dgemv, _sgemv = _gemv("dgemv", types.float64), _gemv("sgemv", types.float32)


@device
def matmul(a: Any, b: Any, out: Any, m: int, k: int, n: int) -> None:
    """out[:m * n] as [m, n] becomes a[:m * k] as [m, k] times b[:k * n] as [k, n].

    All three are contiguous vectors, either float64 or float32, and at least so long, which nobody
    checks."""
    x, y, z = a.ctypes, b.ctypes, out.ctypes
    wide = a.itemsize != _FLOAT_BYTES
    if m * n == 0:
        return
    if k == 0:
        out[: m * n] = 0
    elif n == 1:
        if wide:
            _dgemv(_ROW_MAJOR, _AS_IT_IS, m, k, 1.0, x, k, y, 1, 0.0, z, 1)
        else:
            _sgemv(_ROW_MAJOR, _AS_IT_IS, m, k, _ONE, x, k, y, 1, _ZERO, z, 1)
    elif m == 1:
        if wide:
            _dgemv(_ROW_MAJOR, _TRANSPOSED, k, n, 1.0, y, n, x, 1, 0.0, z, 1)
        else:
            _sgemv(_ROW_MAJOR, _TRANSPOSED, k, n, _ONE, y, n, x, 1, _ZERO, z, 1)
    elif wide:
        _dgemm(_ROW_MAJOR, _AS_IT_IS, _AS_IT_IS, m, n, k, 1.0, x, k, y, n, 0.0, z, n)
    else:
        _sgemm(_ROW_MAJOR, _AS_IT_IS, _AS_IT_IS, m, n, k, _ONE, x, k, y, n, _ZERO, z, n)
