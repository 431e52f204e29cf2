"""One model on stock TVM (untuned and tuned), on onnxruntime and on simulated NPUs, side by side.

Every runner is one file of `runners`; each measurement has a process of its own (`worker`), so that
times and memory are its own, and may have another Python, in which another TVM is installed.
"""

from tvm_npu.comparison.compare import Comparison, compare

__all__ = ["Comparison", "compare"]
