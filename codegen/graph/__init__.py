"""The NPU graph: what a region of a network means, free of any TVM type.

A :class:`Graph` is a list of layers in execution order over named tensors. Tensor shapes leave
the batch out: ``(C, H, W)``, ``(C,)``, or ``(T, N)`` for a sequence of T flat tensors; arrays that
run through a graph carry the batch in front.
A door (Relay, Relax) builds a graph of the layers in `codegen.ops` with float weights;
`codegen.passes.fuse` merges them, `codegen.passes.quantize` turns the result into a
:class:`FixedGraph`, and `codegen.reference` says what either means.
"""

from tvm_npu.codegen.graph.activation import NO_CLIP, RELU, Activation, Clip, Slopes
from tvm_npu.codegen.graph.fixed import FixedGraph
from tvm_npu.codegen.graph.graph import Graph
from tvm_npu.codegen.graph.layer import FixedLayer, Layer, Requantized, State
from tvm_npu.codegen.graph.lookup import Table
from tvm_npu.codegen.graph.rescaling import Rescaling
from tvm_npu.codegen.graph.scale import Scale, q_point_scales
from tvm_npu.codegen.graph.tensors import (
    Array,
    FloatArray,
    Halves,
    IntArray,
    Padding,
    Shape,
    chw,
    output_extent,
)

__all__ = [
    "NO_CLIP", "RELU", "Activation", "Array", "Clip", "FixedGraph", "FixedLayer", "FloatArray",
    "Graph", "Halves", "IntArray", "Layer", "Padding", "Requantized", "Rescaling", "Scale",
    "Shape", "Slopes", "State", "Table", "chw", "output_extent", "q_point_scales",
]  # fmt: skip
