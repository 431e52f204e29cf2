"""From a fused float graph and calibrated ranges to the fixed-point graph.

Tensors' scales come from `codegen.passes.qpoints`, ranges from `codegen.passes.calibrate`; each
operator (`codegen.ops`) turns its layers into integers.
"""

from __future__ import annotations

import warnings
from typing import Literal

from tvm_npu.codegen.errors import CutTermsWarning, QuantizationError
from tvm_npu.codegen.graph import FixedGraph, Graph, q_point_scales
from tvm_npu.codegen.ops.operator import Numbers
from tvm_npu.codegen.ops.registry import operator_of
from tvm_npu.codegen.passes.averages import with_weighed_averages
from tvm_npu.codegen.passes.calibrate import (
    Octave,
    Ranges,
    TensorRange,
    calibrate,
    synthetic_samples,
)
from tvm_npu.codegen.passes.qpoints import assign_q_points
from tvm_npu.sim.description import Q_POINTS_ONLY, Requantization

__all__ = [
    "Octave", "Ranges", "TensorRange", "calibrate", "quantize", "synthetic_samples",
]  # fmt: skip

Precision = Literal["int16", "int8"]
ELEMENT_BYTES: dict[str, Literal[1, 2]] = {"int16": 2, "int8": 1}


def quantize(
    graph: Graph,
    ranges: Ranges,
    precision: Precision,
    requantization: Requantization = Q_POINTS_ONLY,
) -> FixedGraph:
    """The fixed-point graph of a fused ``graph``, for machines with such a requantize step.

    ``ranges`` must cover every tensor whose scale the graph does not give. Deterministic. Raises
    QuantizationError for a missing or unusable range, a given scale that the machine has no
    requantize step for, weights that are not finite, an unknown precision and layers that `fuse`
    should have removed. A CutTermsWarning names a layer with terms that its integers cannot hold.
    """
    if precision not in ELEMENT_BYTES:
        raise QuantizationError(f"unknown precision {precision!r}; known are {list(ELEMENT_BYTES)}")
    element_bytes = ELEMENT_BYTES[precision]
    graph = with_weighed_averages(graph, ranges, element_bytes)
    for tensor, scale in graph.scales.items():
        lack = scale.lacks(requantization)
        if lack is not None:
            raise QuantizationError(
                f"tensor {tensor!r} has a {scale}; the machine's requantize step has no {lack}. "
                "Take the tensor's range from calibration instead, or a machine that has one"
            )
    scales = q_point_scales(assign_q_points(graph, ranges, element_bytes))
    numbers = Numbers(scales, element_bytes, requantization)
    layers = tuple(operator_of(layer).quantize(layer, numbers) for layer in graph.layers)
    _warn_of_cuts(graph, ranges)
    return FixedGraph(
        layers, dict(graph.shapes), graph.inputs, graph.outputs, scales, element_bytes, graph.name
    )


def _warn_of_cuts(graph: Graph, ranges: Ranges) -> None:
    for layer in graph.layers:
        cut = operator_of(layer).cut_terms(layer)
        if cut is None or cut.name not in ranges:
            continue
        found = ranges[cut.name]
        if max(-found.low, found.high) > cut.limit:
            warnings.warn(
                f"layer {layer.name!r} adds terms from {found.low:.4g} to {found.high:.4g}, which "
                f"are cut at -{cut.limit:g} and {cut.limit:g} before: its results change. Scale "
                "its weights, leave the layer to the CPU, or check what `tvm-npu accuracy` says",
                CutTermsWarning,
                stacklevel=3,
            )
