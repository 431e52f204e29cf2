"""The Loom: an NPU that tvm-npu has never heard of, and all that makes it a target."""
