"""`tvm_npu.sim.printable`, as the commands name it."""

from tvm_npu.sim.printable import one_line, shown

__all__ = ["one_line", "shown"]
