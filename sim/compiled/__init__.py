"""How inner loops become machine code: numba, with a cache on disk that sees every change.

`device` is for functions that only compiled code calls, `entry` for those that Python calls.
Members of an `enum.IntEnum` are used as they are: to numba they are constants that index, compare
and join with integers; `device` takes them as integers where they are arguments.
"""

from tvm_npu.sim.compiled.borrowed import borrowed, uncounted
from tvm_npu.sim.compiled.decorators import device, entry

__all__ = ["borrowed", "device", "entry", "uncounted"]
