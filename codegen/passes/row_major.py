"""Weights in the order in which layers read them. Doors hand over views of what TVM holds."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from tvm_npu.codegen.graph import Graph, Layer
from tvm_npu.codegen.ops import Dense


def row_major(graph: Graph) -> Graph:
    """The graph with weights of fully connected layers [out, in] row by row: sums of floats depend
    on the order. A matrix that TVM holds as [in, out] is copied here, and nowhere else."""
    layers = tuple(_row_major(layer) for layer in graph.layers)
    return replace(graph, layers=layers)


def _row_major(layer: Layer) -> Layer:
    if not isinstance(layer, Dense) or layer.weight.flags.c_contiguous:
        return layer
    return replace(layer, weight=np.ascontiguousarray(layer.weight))
