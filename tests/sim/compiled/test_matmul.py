from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tvm_npu.sim import blas
from tvm_npu.sim.compiled import entry
from tvm_npu.sim.compiled.matmul import matmul
from tvm_npu.sim.errors import SimError


@entry
def product(a: Any, b: Any, out: Any, m: int, k: int, n: int) -> None:
    matmul(a, b, out, m, k, n)


@pytest.mark.parametrize(("kind", "largest"), [(np.float64, 2**15), (np.float32, 2**8)])
def test_products_of_all_shapes(kind: Any, largest: int) -> None:
    """Vectors and nothing at all included. Sums of integers are exact in any order; what lies
    behind the operands is neither read nor written."""
    random = np.random.default_rng()
    sizes = (0, 1, 2, 3, 7, 16, 33)
    for m in sizes:
        for k in sizes:
            for n in sizes:
                a = random.integers(-largest, largest, m * k + 3).astype(kind)
                b = random.integers(-largest, largest, k * n + 3).astype(kind)
                a[m * k :], b[k * n :] = np.nan, np.nan
                out = np.full(m * n + 3, -1.5, kind)
                product(a, b, out, m, k, n)
                want = a[: m * k].reshape(m, k).astype(np.int64) @ b[: k * n].reshape(k, n).astype(
                    np.int64
                )
                assert np.array_equal(out[: m * n].reshape(m, n), want), (m, k, n)
                assert (out[m * n :] == -1.5).all()


def test_the_blas_of_scipy_will_do_and_none_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    own = blas.cblas_address("dgemm")
    monkeypatch.setattr(blas, "_LINKED", ("scipy.linalg.cython_blas",))
    assert blas.cblas_address("dgemm") not in (0, own)
    monkeypatch.setattr(blas, "_LINKED", ("_ctypes",))
    with pytest.raises(SimError, match="cblas_dgemm is in no library behind _ctypes"):
        blas.cblas_address("dgemm")
