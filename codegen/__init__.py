"""From an NPU graph to a program: fuse, quantize, plan, emit. Knows no TVM and no simulator."""
