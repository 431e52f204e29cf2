"""Products of bytes are built for processors that have instructions for them, which TVM 0.19 calls
by types that its LLVM does not have: LLVM ends the process."""

from __future__ import annotations

import subprocess
import sys

import pytest

pytest.importorskip("tvm.relay", exc_type=ImportError)

BUILD = """
import tvm, tvm_npu
from tvm import relay
from tvm_npu.relay.stock import cpu_target

def function(call, *types):
    inputs = [relay.var(f"x{n}", shape=s, dtype=t) for n, (s, t) in enumerate(types)]
    return tvm.IRModule.from_expr(relay.Function(inputs, call(*inputs, out_dtype="int32")))

def convolution(data, weights, out_dtype):
    return relay.nn.conv2d(data, weights, channels=16, kernel_size=(3, 3), out_dtype=out_dtype)

modules = [
    function(relay.nn.batch_matmul, ((2, 16, 16), first), ((2, 32, 16), "int8"))
    for first in ("int8", "uint8")
]
modules.append(function(relay.nn.dense, ((16, 32), "uint8"), ((32, 32), "int8")))
modules.append(function(convolution, ((1, 16, 8, 8), "int8"), ((16, 16, 3, 3), "int8")))
for target in (cpu_target("{mcpu}"), tvm_npu.target("nmp-4x8", mcpu="{mcpu}")):
    for module in modules:
        with tvm.transform.PassContext(opt_level=3):
            relay.build(module, target=target)
print("built", target.attrs["mcpu"])
"""


@pytest.mark.parametrize("mcpu", ["cascadelake", "alderlake", "sapphirerapids"])
def test_products_of_bytes(mcpu: str) -> None:
    command = [sys.executable, "-W", "ignore", "-c", BUILD.replace("{mcpu}", mcpu)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.stdout.strip() == f"built {mcpu}", done.stderr[-2000:]
