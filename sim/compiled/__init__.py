"""How inner loops become machine code: numba, with a cache on disk that sees every change.

`device` is for functions that only compiled code calls, `entry` for those that Python calls.
"""

from tvm_npu.sim.compiled.borrowed import borrowed, uncounted
from tvm_npu.sim.compiled.decorators import device, entry

__all__ = ["borrowed", "device", "entry", "uncounted"]
