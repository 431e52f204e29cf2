"""Code generation for the NMP.

`compiler` asks planners and puts a Program together; `convolution` and
`windows` write layers as command trees (`commands`, with the conventions of `conventions`), which
`lower` turns into instructions.
"""

from tvm_npu.codegen.nmp.compiler import compile_fixed, generate

__all__ = ["compile_fixed", "generate"]
