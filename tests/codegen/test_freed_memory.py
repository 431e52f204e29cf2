"""Memory goes back to the system between phases; weights in another order change no bit."""

from __future__ import annotations

import subprocess
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


GROWING = """
import numpy as np
from tvm_npu.codegen.freed_memory import give_back, growing_bytes
from tvm_npu.comparison.memory import forget_peak, peak_resident_bytes, resident_bytes

MB = 1 << 20
freed = np.ones(31 * MB, np.uint8)
del freed  # from now on glibc takes such pieces from its heap
gap, behind = np.ones(24 * MB, np.uint8), np.ones(MB, np.uint8)
del gap
give_back()
data, more = growing_bytes(), bytes(MB)
assert data == b"" and resident_bytes() < 400 * MB
forget_peak()
before = resident_bytes()
for _ in range(48):
    data += more
print((peak_resident_bytes() - before) / len(data))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="resident memory as Linux tells it")
def test_what_grows_is_not_copied_out_of_a_gap() -> None:
    """In a process of its own, whose heap has one gap; a plain bytearray takes 1.47."""
    done = subprocess.run([sys.executable, "-c", GROWING], check=True, capture_output=True)
    assert float(done.stdout) < 1.1


def test_transposed_weights_become_row_major() -> None:
    held = np.random.default_rng(0).standard_normal((40, 30)).astype(np.float32)
    layer = Dense(name="fc", inputs=("x",), outputs=("y",), weight=held.T, bias=np.zeros(30))
    made = row_major(Graph((layer,), {"x": (40,), "y": (30,)}, ("x",), ("y",))).layers[0]
    assert isinstance(made, Dense)
    assert made.weight.flags.c_contiguous and (made.weight == held.T).all()
