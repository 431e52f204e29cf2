"""Signal to quantization noise: where a fixed-point graph loses accuracy, layer by layer."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from tvm_npu.codegen.errors import GraphError, InputError
from tvm_npu.codegen.fixed_point import element_limits
from tvm_npu.codegen.graph import FixedGraph, FloatArray, Graph, Scale
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
    """One entry per output of a layer of ``fixed``, worst first (ties in execution order).

    ``graph`` is the float graph that ``fixed`` came from, fused or not; it must know every tensor
    of ``fixed``. Samples hold float32 [B, *shape] by input name; both graphs run on the same
    samples, the errors of earlier layers included. Raises GraphError for a tensor that the float
    graph does not have and InputError without samples.
    """
    made = [(layer, tensor) for layer in fixed.layers for tensor in layer.outputs]
    sums = {tensor: _Sums() for _, tensor in made}
    known = set(graph.tensors)
    for layer, tensor in made:
        if tensor not in known:
            raise GraphError(
                f"layer {layer.name!r} writes {tensor!r}, which float graph {graph.name!r} does "
                "not have"
            )
    ran = False
    for sample in samples:
        ran = True
        floats = stream_float(graph, sample)
        integers = run_fixed(
            fixed,
            {
                name: fixed.scales[name].quantize(sample[name], fixed.width_of(name))
                for name in fixed.inputs
            },
        )
        for tensor, values in floats:
            if tensor in sums:
                _add(sums[tensor], values, integers[tensor], fixed.scales[tensor])
    if not ran:
        raise InputError(f"graph {graph.name!r}: at least one sample is needed")
    entries = [
        _entry(layer.name, tensor, layer.source, fixed, sums[tensor]) for layer, tensor in made
    ]
    return sorted(entries, key=lambda entry: entry.sqnr_db)


def _add(sums: _Sums, values: FloatArray, integers: np.ndarray, scale: Scale) -> None:
    error = scale.dequantize(integers).astype(np.float64) - values
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
        fixed.scales[tensor].q_point,
        ratio,
        sums.signal,
        sums.noise,
        sums.max_error,
        sums.saturated / sums.count,
    )
