"""Memory goes back to the system between phases; weights in another order change no bit."""

from __future__ import annotations

import sys

import numpy as np
import pytest

from tvm_npu.codegen.freed_memory import give_back
from tvm_npu.codegen.graph import Graph
from tvm_npu.codegen.ops import Dense
from tvm_npu.codegen.passes.row_major import row_major
from tvm_npu.comparison.memory import resident_bytes

MB = 1 << 20


@pytest.mark.skipif(sys.platform != "linux", reason="resident memory as Linux tells it")
def test_freed_memory_goes_back() -> None:
    before = resident_bytes()
    np.ones(30 * MB, np.uint8)  # from now on glibc takes such pieces from its heap
    pieces = [np.ones(2 * MB, np.uint8) for _ in range(50)]
    kept = pieces.pop()
    pieces.clear()
    give_back()
    assert resident_bytes() - before < 20 * MB and kept.all()


def test_transposed_weights_become_row_major() -> None:
    held = np.random.default_rng(0).standard_normal((40, 30)).astype(np.float32)
    layer = Dense(name="fc", inputs=("x",), outputs=("y",), weight=held.T, bias=np.zeros(30))
    made = row_major(Graph((layer,), {"x": (40,), "y": (30,)}, ("x",), ("y",))).layers[0]
    assert isinstance(made, Dense)
    assert made.weight.flags.c_contiguous and (made.weight == held.T).all()
