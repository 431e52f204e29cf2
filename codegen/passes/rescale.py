"""Changes of a float graph that make it easier to quantize and leave its meaning.

Channels can be multiplied by factors: a convolution's filters take those of its output, weights of
its readers the inverse ones. Pools, sums and copies hand factors on: such tensors form a group with
one factor a channel.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tvm_npu.codegen.errors import GraphError
from tvm_npu.codegen.graph import Clip, Graph, Layer, Slopes
from tvm_npu.codegen.ops import Conv2d, Dense, Elementwise, Pool, Reshape

Factors = NDArray[np.float64]


@dataclass
class Group:
    """Tensors that must have the same factors. ``limit`` is the upper bound of the activations
    that make them (inf: none); ``is_free`` is False where something else reads or makes one."""

    tensors: list[str]
    channels: int
    is_free: bool = True
    limits: set[float] = field(default_factory=set)

    @property
    def limit(self) -> float:
        return min(self.limits, default=math.inf)


def groups(graph: Graph) -> list[Group]:
    """The groups of a fused graph in the order of their first tensors. Free is one that only
    convolutions and fully connected layers, pools, sums and copies make and read, under
    activations that commute with positive factors but for one upper bound."""
    found = {t: Group([t], graph.shapes[t][0]) for t in graph.tensors}
    for tensor in (*graph.inputs, *graph.outputs, *graph.scales):
        found[tensor].is_free = False
    for layer in graph.layers:
        tied, is_known = _ties(graph, layer)
        for tensor in tied[1:]:
            _merge(found, tied[0], tensor)
        if not is_known:
            for tensor in (*layer.inputs, *layer.outputs):
                found[tensor].is_free = False
        limit = _limit(layer)
        for tensor in layer.outputs:
            if limit is None:
                found[tensor].is_free = False
            elif limit < math.inf:
                found[tensor].limits.add(limit)
    distinct = {id(group): group for group in found.values()}
    for group in distinct.values():
        group.is_free = group.is_free and len(group.limits) <= 1
    return list(distinct.values())


def _merge(found: dict[str, Group], first: str, second: str) -> None:
    one, other = found[first], found[second]
    if one is other:
        return
    one.tensors += other.tensors
    one.is_free = one.is_free and other.is_free and one.channels == other.channels
    one.limits |= other.limits
    for tensor in other.tensors:
        found[tensor] = one


def _ties(graph: Graph, layer: Layer) -> tuple[tuple[str, ...], bool]:
    """(tensors that the layer keeps in one group, whether it can take factors at all)."""
    if isinstance(layer, Conv2d | Dense):
        return (layer.output, *layer.inputs[1:]), True
    if isinstance(layer, Pool) or (isinstance(layer, Elementwise) and layer.op in ("add", "copy")):
        return (layer.output, *layer.inputs), True
    if isinstance(layer, Reshape):
        shapes = [graph.shapes[tensor] for tensor in (layer.output, *layer.inputs)]
        if all(math.prod(shape[1:]) == 1 for shape in shapes):
            return (layer.output, *layer.inputs), True
    return (), False


def _limit(layer: Layer) -> float | None:
    """The upper bound of a layer's activation; None for one that does not commute with factors."""
    activation = getattr(layer, "activation", Clip())
    if isinstance(activation, Slopes):
        return math.inf
    if not isinstance(activation, Clip) or activation.low not in (0.0, -math.inf):
        return None
    return activation.high if activation.high > 0.0 else None


@dataclass(frozen=True)
class Adjustments:
    """What calibration changes in a region's float layers. ``factors`` of channels and ``limits``,
    the new upper bounds of activations, by tensor; then ``biases``, added to those of the layer
    that writes a tensor. Those of a `Group` must be the same."""

    factors: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    limits: Mapping[str, float] = field(default_factory=dict)
    biases: Mapping[str, tuple[float, ...]] = field(default_factory=dict)

    def to_json(self) -> str:
        return json.dumps(asdict(self), allow_nan=False)

    @classmethod
    def from_json(cls, text: str) -> Adjustments:
        """Reads what `to_json` wrote."""
        values = json.loads(text)
        return cls(
            {tensor: tuple(found) for tensor, found in values["factors"].items()},
            values["limits"],
            {tensor: tuple(found) for tensor, found in values["biases"].items()},
        )

    def apply(self, graph: Graph) -> Graph:
        """A fused graph with these changes. GraphError for numbers that do not fit their tensor."""
        if self == NO_ADJUSTMENTS:
            return graph
        for tensor, values in (*self.factors.items(), *self.biases.items()):
            if tensor not in graph.shapes or len(values) != graph.shapes[tensor][0]:
                raise GraphError(f"{len(values)} numbers do not fit tensor {tensor!r}")
        for tensor, values in self.factors.items():
            if not all(0.0 < value < math.inf for value in values):
                raise GraphError(f"factors of tensor {tensor!r} must be positive and finite")
        factors = {tensor: np.array(values) for tensor, values in self.factors.items()}
        return graph.with_layers(self._layer(layer, factors) for layer in graph.layers)

    def _layer(self, layer: Layer, factors: Mapping[str, Factors]) -> Layer:
        changes: dict[str, Any] = {}
        tensor = layer.outputs[0]
        activation = getattr(layer, "activation", None)
        if tensor in self.limits and isinstance(activation, Clip) and activation.high < math.inf:
            changes["activation"] = Clip(activation.low, self.limits[tensor])
        if isinstance(layer, Conv2d | Dense):
            weight, bias = layer.weight.astype(np.float64), layer.bias.astype(np.float64)
            columns = (*weight.shape[:2], *[1] * (weight.ndim - 2))
            if layer.inputs[0] in factors:
                weight = weight / _by_filter(layer, factors[layer.inputs[0]]).reshape(columns)
            if tensor in factors:
                weight = weight * factors[tensor].reshape(-1, *[1] * (weight.ndim - 1))
                bias = bias * factors[tensor]
            if tensor in self.biases:
                bias = bias + np.array(self.biases[tensor])
            changes |= {"weight": weight.astype(np.float32), "bias": bias.astype(np.float32)}
        return replace(layer, **changes) if changes else layer


NO_ADJUSTMENTS = Adjustments()


def _by_filter(layer: Conv2d | Dense, factors: Factors) -> Factors:
    """The factors of the input channels of each filter, [M, N / groups]."""
    groups_ = layer.groups if isinstance(layer, Conv2d) else 1
    return np.repeat(factors.reshape(groups_, -1), len(layer.weight) // groups_, axis=0)
