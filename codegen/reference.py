"""The plain NumPy meaning of an NPU graph, float and fixed: the golden model.

What a layer computes its operator says (`codegen.ops`); here layers run one after the other.
Every simulator must agree with `run_fixed` to the bit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tvm_npu.codegen.errors import GraphError, InputError
from tvm_npu.codegen.fixed_point import ELEMENT_TYPE, element_limits
from tvm_npu.codegen.graph import Array, FixedGraph, FixedLayer, Graph, Layer, Scale, Shape
from tvm_npu.codegen.ops.registry import operator_of

Ready = Mapping[str, Callable[[Sequence[Array]], Sequence[Array]]]
"""What runs layers, from inputs to outputs, by the names of their first outputs."""
NONE_READY: Ready = {}
FLOAT_NOISE = 1e-4
"""Of a step: how far from a half float32 may bring a value that lies on it."""


def run_float(graph: Graph, inputs: Mapping[str, Array]) -> dict[str, NDArray[np.float32]]:
    """Every tensor of ``graph``, float32 [B, *shape], for float32 inputs [B, *shape].

    Raises InputError for missing, unknown or misshapen inputs and GraphError for layers that
    contradict their tensors' shapes.
    """
    return dict(stream_float(graph, inputs, keep=True))


def run_rounded(graph: Graph, inputs: Mapping[str, Array]) -> dict[str, NDArray[np.float32]]:
    """`run_float` of a quantized model as it says itself: tensors whose scales ``graph`` gives are
    rounded to integers of 8 bits as these say, halves up also as their operators say. Raises as
    `run_float`."""

    def rounded(tensor: str, values: Array, halves_away: bool = False) -> Array:
        scale = graph.scales.get(tensor)
        if scale is None:
            return values
        if halves_away and scale.halves == "up":
            return scale.dequantize(_halves_away(values, scale))
        return scale.dequantize(scale.quantize(values, 1))

    def apply(layer: Layer, arrays: Sequence[Array], shapes: list[Shape]) -> Sequence[Array]:
        operator = operator_of(layer)
        made = zip(layer.outputs, operator.run_float(layer, arrays, shapes), strict=True)
        return [rounded(tensor, values, operator.halves_away) for tensor, values in made]

    _check_inputs(dict.fromkeys(graph.inputs, np.dtype(np.float32)), graph.shapes, inputs)
    entry = {tensor: rounded(tensor, inputs[tensor]) for tensor in graph.inputs}
    return dict(_run(graph.layers, graph.shapes, graph.inputs, entry, apply, keep=True))


def _halves_away(values: Array, scale: Scale) -> Array:
    """The integers of averages, for the one step of a quantized model's tensor."""
    exact = values.astype(np.float64) / scale.steps[0] + scale.zero_points[0]
    halves = np.rint(2 * exact) / 2
    exact = np.where(np.abs(exact - halves) < FLOAT_NOISE, halves, exact)
    rounded = np.copysign(np.floor(np.abs(exact) + 0.5), exact)
    return np.clip(rounded, *element_limits(1)).astype(ELEMENT_TYPE[1])


def run_fixed(fixed: FixedGraph, inputs: Mapping[str, Array]) -> dict[str, Array]:
    """Every tensor of ``fixed``, int16 or int8 [B, *shape], exactly as a machine must make it.

    Inputs are integers of the tensors' element types at their scales. Raises as `run_float`.
    """
    return dict(stream_fixed(fixed, inputs, keep=True))


def stream_fixed(
    fixed: FixedGraph, inputs: Mapping[str, Array], keep: bool = False, instead: Ready = NONE_READY
) -> Iterator[tuple[str, Array]]:
    """(tensor, values) of `run_fixed` in execution order; without ``keep`` a tensor is freed after
    its last reader. ``instead`` runs layers in another way, by their first outputs."""
    types = {tensor: ELEMENT_TYPE[fixed.width_of(tensor)] for tensor in fixed.inputs}
    _check_inputs(types, fixed.shapes, inputs)

    def apply(layer: FixedLayer, arrays: Sequence[Array], shapes: list[Shape]) -> Sequence[Array]:
        if layer.outputs[0] in instead:
            return instead[layer.outputs[0]](arrays)
        return operator_of(layer).run_fixed(layer, arrays, shapes, fixed.width_of(layer.inputs[0]))

    return _run(fixed.layers, fixed.shapes, fixed.inputs, inputs, apply, keep)


def stream_float(
    graph: Graph,
    inputs: Mapping[str, Array],
    keep: bool = False,
    cut: bool = False,
    instead: Ready = NONE_READY,
) -> Iterator[tuple[str, NDArray[np.float32]]]:
    """(tensor, values) in execution order; without ``keep`` a tensor is freed after its last
    reader, which bounds the memory of calibration. States come with all values that are
    computed in their formats, [B, n, *shape], where their operators say them. With ``cut``, tensors
    whose scales the graph gives are cut as integers of 8 bits cut them. ``instead`` is that of
    `stream_fixed`."""
    _check_inputs(dict.fromkeys(graph.inputs, np.dtype(np.float32)), graph.shapes, inputs)
    states: dict[str, Array] = {}

    def held(tensor: str, values: Array) -> Array:
        scale = graph.scales.get(tensor) if cut else None
        return values if scale is None else scale.held(values, 1)

    def apply(layer: Layer, arrays: Sequence[Array], shapes: list[Shape]) -> Sequence[Array]:
        states.update(operator_of(layer).states_float(layer, arrays))
        if layer.outputs[0] in instead:
            made = instead[layer.outputs[0]](arrays)
        else:
            made = operator_of(layer).run_float(layer, arrays, shapes)
        return [held(tensor, one) for tensor, one in zip(layer.outputs, made, strict=True)]

    def all_states() -> Iterator[tuple[str, Array]]:
        yield from states.items()

    entry = {tensor: held(tensor, inputs[tensor]) for tensor in graph.inputs}
    tensors = _run(graph.layers, graph.shapes, graph.inputs, entry, apply, keep)
    return chain(tensors, all_states())


def _check_inputs(
    types: Mapping[str, np.dtype[Any]], shapes: Mapping[str, Shape], inputs: Mapping[str, Array]
) -> None:
    """``types`` by name are those that the inputs must have."""
    missing = [name for name in types if name not in inputs]
    unknown = [name for name in inputs if name not in types]
    if missing or unknown:
        raise InputError(f"inputs missing: {missing}, unknown: {unknown}; expected {list(types)}")
    batches: dict[int, str] = {}
    for name, dtype in types.items():
        value = inputs[name]
        if not isinstance(value, np.ndarray) or value.dtype != dtype:
            kind = value.dtype if isinstance(value, np.ndarray) else type(value).__name__
            raise InputError(f"input {name!r} has type {kind}; expected an array of {dtype}")
        if value.ndim < 1 or value.shape[1:] != shapes[name] or value.shape[0] < 1:
            raise InputError(
                f"input {name!r} has shape {value.shape}; expected a batch >= 1 of {shapes[name]}"
            )
        batches.setdefault(value.shape[0], name)
    if len(batches) > 1:
        raise InputError(f"inputs differ in batch: { ({v: k for k, v in batches.items()}) }")


def _run(
    layers: Sequence[Any],
    shapes: Mapping[str, Shape],
    names: tuple[str, ...],
    inputs: Mapping[str, Array],
    apply: Callable[[Any, Sequence[Array], list[Shape]], Sequence[Array]],
    keep: bool,
) -> Iterator[tuple[str, Array]]:
    last_reader = {tensor: i for i, layer in enumerate(layers) for tensor in layer.inputs}
    tensors = {name: inputs[name] for name in names}
    yield from tensors.items()
    for index, layer in enumerate(layers):
        wanted = [shapes[tensor] for tensor in layer.outputs]
        try:
            results = apply(layer, [tensors[tensor] for tensor in layer.inputs], wanted)
        except ValueError as error:
            raise GraphError(f"layer {layer.name!r}: {error}") from error
        if len(results) != len(wanted):
            raise GraphError(
                f"layer {layer.name!r} makes {len(results)} tensors; it has {len(wanted)} outputs"
            )
        for tensor, shape, result in zip(layer.outputs, wanted, results, strict=True):
            if result.shape[1:] != shape:
                raise GraphError(
                    f"layer {layer.name!r} makes {result.shape[1:]}, but its output {tensor!r} "
                    f"has shape {shape}"
                )
            tensors[tensor] = result
            yield tensor, result
        if not keep:
            for tensor in layer.inputs:
                if last_reader[tensor] == index:
                    tensors.pop(tensor, None)
