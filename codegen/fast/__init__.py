"""The meaning of NPU graphs, compiled: for many images.

`FastFixed` gives what `codegen.reference.run_fixed` gives, bit for bit, and `FastFloat` what
`run_float` gives but for the last bits of convolutions. Convolutions gather runs of pixels that
caches hold, multiply them by BLAS in a number type in which all sums are exact, and requantize them
at once; other layers, and convolutions that end in another way, run as in the reference.
"""

from tvm_npu.codegen.fast.graphs import FastFixed, FastFloat

__all__ = ["FastFixed", "FastFloat"]
