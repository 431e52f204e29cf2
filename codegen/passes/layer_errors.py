"""Which layer is to blame: each layer's own quantization error beside the accumulated one."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from tvm_npu.codegen.errors import InputError
from tvm_npu.codegen.fixed_point import element_limits
from tvm_npu.codegen.graph import FixedGraph, FixedLayer, FloatArray, Graph
from tvm_npu.codegen.ops.registry import kind_of, operator_of
from tvm_npu.codegen.reference import run_fixed, run_float

LEAST_DB = -300.0
"""Of ratios, where errors drown what there is of a signal."""
COARSE_DB = 20.0
"""Below this a layer's own error is worth a word."""
CLIPPED_SHARE = 0.01
SHIFTED_SHARE = 0.25
"""Of the squared error: what a shift of the channels' means makes of it, from which on bias
correction is worth a word."""


@dataclass(frozen=True)
class LayerError:
    """What quantization does to one layer's output, over all samples.

    ``own_db`` is the signal-to-noise ratio when only this layer is quantized (its inputs, weights
    and output), ``accumulated_db`` that of the whole fixed-point graph up to here; inf where none
    differs. ``low`` and ``high`` are the output's range in float, ``step`` the real value of one
    integer; ``clipped_share`` counts values beyond the integers' range. ``advice`` says what would
    help, if anything. ``rms`` is the root mean square of the output in float.
    """

    layer: str
    kind: str
    tensor: str
    source: tuple[str, ...]
    own_db: float
    accumulated_db: float
    low: float
    high: float
    step: float
    clipped_share: float
    shifted_share: float
    advice: str
    rms: float = 0.0

    @property
    def is_below_one_step(self) -> bool:
        """Is there less signal than integers can tell from nothing?"""
        return 0.0 < self.rms < self.step


@dataclass
class _Sums:
    signal: float = 0.0
    own: float = 0.0
    accumulated: float = 0.0
    shifted: float = 0.0
    low: float = math.inf
    high: float = -math.inf
    clipped: int = 0
    count: int = 0


@dataclass
class LayerErrors:
    """Sums over samples; `add` takes one, `worst_first` gives the result. ``graph`` is the fused
    float graph whose layers ``fixed`` has, one by one, and whose tensors' scales it gives;
    ``said`` are tensors of which a quantized model says the scales itself."""

    graph: Graph
    fixed: FixedGraph
    said: Collection[str] = ()
    _sums: dict[str, _Sums] = field(default_factory=dict)

    def add(self, sample: Mapping[str, FloatArray]) -> dict[str, FloatArray]:
        """Runs both graphs on float32 inputs [B, *shape]; returns the outputs of the fixed one, as
        real numbers."""
        fixed, scales = self.fixed, self.fixed.scales
        floats = run_float(self.graph, sample)
        entry = {t: scales[t].quantize(sample[t], fixed.width_of(t)) for t in fixed.inputs}
        integers = run_fixed(fixed, entry)
        for layer in fixed.layers:
            width = fixed.width_of(layer.inputs[0])
            arrays = [scales[t].quantize(floats[t], width) for t in layer.inputs]
            shapes = [self.graph.shapes[t] for t in layer.outputs]
            alone = operator_of(layer).run_fixed(layer, arrays, shapes, width)
            for tensor, values in zip(layer.outputs, alone, strict=True):
                self._add(tensor, floats[tensor], values, integers[tensor])
        return {t: scales[t].dequantize(integers[t]) for t in fixed.outputs}

    def _add(self, tensor: str, wanted: Any, alone: Any, together: Any) -> None:
        sums = self._sums.setdefault(tensor, _Sums())
        scale = self.fixed.scales[tensor]
        smallest, largest = element_limits(self.fixed.width_of(tensor))
        real = wanted.astype(np.float64)
        own = scale.dequantize(alone) - real
        both = scale.dequantize(together) - real
        sums.signal += float(np.square(real).sum())
        sums.own += float(np.square(own).sum())
        sums.accumulated += float(np.square(both).sum())
        axes = (0, *range(2, own.ndim))
        sums.shifted += float(np.square(both.mean(axis=axes)).sum()) * both.size / both.shape[1]
        sums.low, sums.high = min(sums.low, float(real.min())), max(sums.high, float(real.max()))
        ends = scale.dequantize(np.array([[smallest], [largest]]))
        low, high = float(ends.min()), float(ends.max())
        step = float(scale.steps[0])
        sums.clipped += int(((real > high + step / 2) | (real < low - step / 2)).sum())
        sums.count += real.size

    def worst_first(self) -> list[LayerError]:
        """By own error, ties in execution order. InputError without samples."""
        if not self._sums:
            raise InputError(f"graph {self.graph.name!r}: at least one sample is needed")
        entries = [
            self._entry(layer, tensor) for layer in self.fixed.layers for tensor in layer.outputs
        ]
        return sorted(entries, key=lambda entry: entry.own_db)

    def _entry(self, layer: FixedLayer, tensor: str) -> LayerError:
        sums = self._sums[tensor]
        own, accumulated = ratio_db(sums.signal, sums.own), ratio_db(sums.signal, sums.accumulated)
        clipped = sums.clipped / sums.count
        shifted = min(sums.shifted / sums.accumulated, 1.0) if sums.accumulated else 0.0
        found = LayerError(
            layer.name, kind_of(layer), tensor, layer.source, own, accumulated, sums.low,
            sums.high, float(self.fixed.scales[tensor].steps[0]), clipped, shifted, "",
            math.sqrt(sums.signal / sums.count),
        )  # fmt: skip
        is_int16 = self.fixed.width_of(tensor) == 2
        return replace(found, advice=_advice(found, tensor in self.said, is_int16))


def ratio_db(signal: float, noise: float) -> float:
    """10 log10 of two powers; inf without noise, at least `LEAST_DB`, without signal, too."""
    if noise == 0.0:
        return math.inf
    ratio = signal / noise
    return max(10.0 * math.log10(ratio), LEAST_DB) if ratio > 0.0 else LEAST_DB


def _advice(found: LayerError, is_said: bool, is_int16: bool) -> str:
    if is_said and (found.clipped_share > CLIPPED_SHARE or found.own_db < COARSE_DB):
        return "the scale is the model's own: quantize the model anew, on more samples"
    if found.clipped_share > CLIPPED_SHARE:
        return "values leave the range: calibrate on more samples, or with a higher percentile"
    if min(found.own_db, found.accumulated_db) >= COARSE_DB:
        return ""
    if found.is_below_one_step:
        return (
            f"its own numbers are too coarse: the values (root mean square {found.rms:.2g}) are "
            f"below one step ({found.step:.2g}); {'' if is_int16 else 'int16, or '}samples with "
            "larger values"
        )
    if found.shifted_share > SHIFTED_SHARE and not is_said:
        return "means are shifted: quantization bias-corrected"
    if found.own_db < COARSE_DB:
        return "its own numbers are too coarse: quantization equalised, or int16"
    return "the error comes from layers before"


def layer_errors(
    graph: Graph, fixed: FixedGraph, samples: Iterable[Mapping[str, FloatArray]]
) -> list[LayerError]:
    """`LayerErrors` over ``samples``, worst first."""
    errors = LayerErrors(graph, fixed)
    for sample in samples:
        errors.add(sample)
    return errors.worst_first()
