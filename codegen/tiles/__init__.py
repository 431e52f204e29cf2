"""Code generation for tile machines.

`convolution`, `pools`, `pads` and `flat` write a layer as steps: tiles that come, work, tiles that
go. `pipeline` puts the commands of all steps into one order, an `emitter` makes instructions of
them, and `compiler` puts a Program together. `ir` is the text form of one layer's plan.
"""

from tvm_npu.codegen.tiles.compiler import compile_fixed, generate

__all__ = ["compile_fixed", "generate"]
