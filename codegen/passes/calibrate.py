"""Calibration: the ranges that tensors take when the float graph runs on sample data."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tvm_npu.codegen.errors import QuantizationError
from tvm_npu.codegen.graph import FloatArray, Graph
from tvm_npu.codegen.reference import stream_float
from tvm_npu.sim.texts import parse_json

Samples = Iterable[Mapping[str, FloatArray]]
FORMAT_VERSION = 1
MOST_CHARACTERS = 1 << 28
BLOCK_VALUES = 1 << 17
"""So many values of a tensor have float64 copies at once."""
_EXPONENTS = np.arange(256, dtype=np.int32)


@dataclass(frozen=True)
class Octave:
    """Moments of the values x with 2**exponent <= abs(x) < 2**(exponent + 1).

    Clipping limits of fixed-point tensors are powers of two, so these moments give the squared
    error of any Q-point without keeping the values.
    """

    exponent: int
    count: int
    magnitude_sum: float
    square_sum: float


@dataclass(frozen=True)
class TensorRange:
    """Smallest and largest value of one tensor and, when it was observed, its octaves. Where
    ``int8_end`` is given, int8 clips magnitudes beyond it."""

    low: float
    high: float
    octaves: tuple[Octave, ...] = ()
    int8_end: float | None = None

    def magnitude(self, element_bytes: int) -> float:
        """The largest that integers of so many bytes should hold."""
        if element_bytes == 1 and self.int8_end is not None:
            return self.int8_end
        return max(abs(self.low), abs(self.high))

    def merge(self, other: TensorRange) -> TensorRange:
        sums: dict[int, tuple[int, float, float]] = {}
        for o in (*self.octaves, *other.octaves):
            count, magnitude, square = sums.get(o.exponent, (0, 0.0, 0.0))
            sums[o.exponent] = (
                count + o.count, magnitude + o.magnitude_sum, square + o.square_sum,
            )  # fmt: skip
        octaves = tuple(Octave(exponent, *sums[exponent]) for exponent in sorted(sums))
        return TensorRange(min(self.low, other.low), max(self.high, other.high), octaves)


@dataclass(frozen=True)
class Ranges:
    """What calibration knows of every tensor, by name. Values are real numbers, no units."""

    tensors: Mapping[str, TensorRange] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name, entry in self.tensors.items():
            if not (math.isfinite(entry.low) and math.isfinite(entry.high)):
                raise QuantizationError(
                    f"tensor {name!r} has range [{entry.low}, {entry.high}], which is not finite"
                )
            if entry.low > entry.high:
                raise QuantizationError(
                    f"tensor {name!r} has range [{entry.low}, {entry.high}]: low exceeds high"
                )

    @classmethod
    def from_bounds(cls, bounds: Mapping[str, tuple[float, float]]) -> Ranges:
        """Ranges from plain (low, high) pairs."""
        return cls({name: TensorRange(float(a), float(b)) for name, (a, b) in bounds.items()})

    def __getitem__(self, tensor: str) -> TensorRange:
        """Raises QuantizationError for a tensor that was never calibrated."""
        if tensor not in self.tensors:
            raise QuantizationError(
                f"tensor {tensor!r} has no calibration range ({len(self.tensors)} tensors have one)"
            )
        return self.tensors[tensor]

    def __contains__(self, tensor: object) -> bool:
        return tensor in self.tensors

    def __iter__(self) -> Iterator[str]:
        return iter(self.tensors)

    def merge(self, other: Ranges) -> Ranges:
        """The ranges of both calibration runs taken together."""
        merged = dict(self.tensors)
        for name, entry in other.tensors.items():
            merged[name] = merged[name].merge(entry) if name in merged else entry
        return Ranges(merged)

    def to_json(self) -> str:
        """JSON text; `from_json` gives back an equal object, to the bit."""
        tensors = {
            name: {
                "low": entry.low,
                "high": entry.high,
                "octaves": [
                    [o.exponent, o.count, o.magnitude_sum, o.square_sum] for o in entry.octaves
                ],
            }
            | ({} if entry.int8_end is None else {"int8_end": entry.int8_end})
            for name, entry in self.tensors.items()
        }
        return json.dumps({"version": FORMAT_VERSION, "tensors": tensors}, allow_nan=False)

    @classmethod
    def from_json(cls, text: str) -> Ranges:
        """Reads what `to_json` wrote; QuantizationError for anything else."""
        try:
            content = parse_json(text, MOST_CHARACTERS)
            version = content["version"]
            if version != FORMAT_VERSION:
                raise QuantizationError(
                    f"ranges have format version {version!r}; this is version {FORMAT_VERSION}"
                )
            tensors = {str(name): _entry(values) for name, values in content["tensors"].items()}
        except (ValueError, TypeError, KeyError, AttributeError, OverflowError) as error:
            if isinstance(error, QuantizationError):
                raise
            raise QuantizationError(f"not a file of calibration ranges: {error!r}") from error
        return cls(tensors)


def _entry(values: dict[str, Any]) -> TensorRange:
    octaves = tuple(Octave(int(e), int(n), float(m), float(s)) for e, n, m, s in values["octaves"])
    end = values.get("int8_end")
    return TensorRange(
        float(values["low"]), float(values["high"]), octaves, None if end is None else float(end)
    )


def observe(values: NDArray[np.float32], name: str, percentile: float | None = None) -> TensorRange:
    """The range of one array; values beyond the percentile of abs(x) count as that percentile.

    Raises QuantizationError when a value is NaN or infinite.
    """
    values = np.ascontiguousarray(values, dtype=np.float32)
    low, high = float(values.min()), float(values.max())
    if not (math.isfinite(low) and math.isfinite(high)):
        bad = values[~np.isfinite(values)][0]
        raise QuantizationError(f"tensor {name!r} takes the value {bad} during calibration")
    if percentile is not None:
        limit = np.float32(np.percentile(np.abs(values), percentile))
        values = np.clip(values, -limit, limit)
        low, high = float(values.min()), float(values.max())
    return TensorRange(low, high, _octaves(values))


def channel_magnitudes(values: NDArray[np.float32]) -> NDArray[np.float64]:
    """The largest absolute value of each channel of [B, C, ...]; [1] for a flat batch."""
    if values.ndim < 2:
        return np.abs(values).max(keepdims=True).astype(np.float64)
    axes = (0, *range(2, values.ndim))
    return np.abs(values).max(axis=axes).astype(np.float64)


def _octaves(values: NDArray[np.float32]) -> tuple[Octave, ...]:
    """Moments by float32 exponent; zeros and subnormals (exact enough at any Q-point) are left
    out."""
    flat = values.reshape(-1)
    counts = np.zeros(256, np.int64)
    sums: NDArray[Any] = np.zeros(256)
    squares: NDArray[Any] = np.zeros(256)
    for start in range(0, flat.size, BLOCK_VALUES):
        block = flat[start : start + BLOCK_VALUES]
        exponents = (block.view(np.int32) >> 23) & 0xFF
        magnitudes = np.abs(block).astype(np.float64)
        counts += np.bincount(exponents, minlength=256)
        # The sums so far come first: values are added one by one, in the order of one large array.
        places = np.concatenate([_EXPONENTS, exponents])
        sums = np.bincount(places, np.concatenate([sums, magnitudes]))
        squares = np.bincount(places, np.concatenate([squares, magnitudes * magnitudes]))
    return tuple(
        Octave(int(e) - 127, int(counts[e]), float(sums[e]), float(squares[e]))
        for e in np.flatnonzero(counts)
        if e > 0
    )


def calibrate(graph: Graph, samples: Samples, percentile: float | None = None) -> Ranges:
    """Runs the float graph on ``samples`` and records the range of every tensor; those whose scales
    the graph gives are cut as these cut them.

    A sample holds float32 arrays [B, *shape] by input name. ``percentile`` (0 to 100, for example
    99.99) cuts each tensor of each sample at that percentile of abs(x); the range is the widest
    over the samples. A graph and what `fuse` makes of it share tensor names and values, so ranges
    of either serve both. Raises QuantizationError without samples, for a percentile outside
    (0, 100] and for values that are not finite.
    """
    if percentile is not None and not 0.0 < percentile <= 100.0:
        raise QuantizationError(f"percentile {percentile} is outside (0, 100]")
    ranges: dict[str, TensorRange] = {}
    for sample in samples:
        with np.errstate(over="ignore", invalid="ignore"):
            for tensor, values in stream_float(graph, sample, cut=True):
                entry = observe(values, tensor, percentile)
                ranges[tensor] = ranges[tensor].merge(entry) if tensor in ranges else entry
    if not ranges:
        raise QuantizationError(f"graph {graph.name!r}: calibration needs at least one sample")
    return Ranges(ranges)


def synthetic_samples(graph: Graph, seed: int, count: int = 4) -> list[dict[str, FloatArray]]:
    """``count`` samples of one image each, standard normal, for use without calibration data."""
    generator = np.random.default_rng(seed)
    return [
        {
            name: generator.standard_normal((1, *graph.shapes[name]), dtype=np.float32)
            for name in graph.inputs
        }
        for _ in range(count)
    ]
