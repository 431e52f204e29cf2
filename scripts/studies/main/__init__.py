"""The main benchmark: every model through relay.build on the simulated NPU, beside stock TVM."""
