"""bench_vs_tvm: the NPU beside stock TVM and onnxruntime, through both doors."""
