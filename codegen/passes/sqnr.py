"""Signal to quantization noise: where a fixed-point graph loses accuracy, layer by layer."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from tvm_npu.codegen.errors import GraphError, InputError
from tvm_npu.codegen.fixed import FixedGraph
from tvm_npu.codegen.fixed_point import dequantize_tensor, element_limits, quantize_tensor
from tvm_npu.codegen.graph import FloatArray, Graph
from tvm_npu.codegen.reference import run_fixed, stream_float


@dataclass(frozen=True)
class LayerSqnr:
    """How far one layer's fixed-point output is from the float one, over all samples.

    ``sqnr_db`` is 10 log10(signal / noise), inf where nothing differs; powers are sums of
    squares, ``max_error`` is in real units, ``saturated_share`` counts values at either limit of
    the element type.
    """

    layer: str
    tensor: str
    source: tuple[str, ...]
    q_point: int
    sqnr_db: float
    signal_power: float
    noise_power: float
    max_error: float
    saturated_share: float


@dataclass
class _Sums:
    signal: float = 0.0
    noise: float = 0.0
    max_error: float = 0.0
    saturated: int = 0
    count: int = 0


def layer_sqnr(
    graph: Graph, fixed: FixedGraph, samples: Iterable[Mapping[str, FloatArray]]
) -> list[LayerSqnr]:
    """One entry per layer of ``fixed``, worst first (ties in execution order).

    ``graph`` is the float graph that ``fixed`` came from, fused or not; it must know every tensor
    of ``fixed``. Samples hold float32 [B, *shape] by input name; both graphs run on the same
    samples, the errors of earlier layers included. Raises GraphError for a tensor that the float
    graph does not have and InputError without samples.
    """
    sums = {layer.output: _Sums() for layer in fixed.layers}
    known = {*graph.inputs, *(layer.output for layer in graph.layers)}
    for layer in fixed.layers:
        if layer.output not in known:
            raise GraphError(
                f"layer {layer.name!r} writes {layer.output!r}, which float graph {graph.name!r} "
                "does not have"
            )
    ran = False
    for sample in samples:
        ran = True
        floats = stream_float(graph, sample)
        integers = run_fixed(
            fixed,
            {
                name: quantize_tensor(sample[name], fixed.q_points[name], fixed.element_bytes)
                for name in fixed.inputs
            },
        )
        for tensor, values in floats:
            if tensor in sums:
                _add(sums[tensor], values, integers[tensor], fixed.q_points[tensor])
    if not ran:
        raise InputError(f"graph {graph.name!r}: at least one sample is needed")
    entries = [
        _entry(layer.name, layer.output, layer.source, fixed, sums[layer.output])
        for layer in fixed.layers
    ]
    return sorted(entries, key=lambda entry: entry.sqnr_db)


def _add(sums: _Sums, values: FloatArray, integers: np.ndarray, q_point: int) -> None:
    error = dequantize_tensor(integers, q_point).astype(np.float64) - values
    limits = element_limits(integers.itemsize)
    sums.signal += float(np.square(values, dtype=np.float64).sum())
    sums.noise += float(np.square(error).sum())
    sums.max_error = max(sums.max_error, float(np.abs(error).max()))
    sums.saturated += int(np.isin(integers, limits).sum())
    sums.count += integers.size


def _entry(
    name: str, tensor: str, source: tuple[str, ...], fixed: FixedGraph, sums: _Sums
) -> LayerSqnr:
    if sums.noise == 0.0:
        ratio = math.inf
    elif sums.signal == 0.0:
        ratio = -math.inf
    else:
        ratio = 10.0 * math.log10(sums.signal / sums.noise)
    return LayerSqnr(
        name,
        tensor,
        source,
        fixed.q_points[tensor],
        ratio,
        sums.signal,
        sums.noise,
        sums.max_error,
        sums.saturated / sums.count,
    )
