"""The float graph of a region."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from tvm_npu.codegen.errors import GraphError
from tvm_npu.codegen.graph.layer import FixedLayer, Layer
from tvm_npu.codegen.graph.scale import Scale
from tvm_npu.codegen.graph.tensors import Shape


@dataclass(frozen=True, eq=False)
class Graph:
    """A region: layers in execution order, every tensor's batch-free shape (states included),
    inputs, outputs, and the scales of tensors that the model itself fixes (a quantized model;
    calibration finds the others). Raises GraphError when these contradict each other."""

    layers: tuple[Layer, ...]
    shapes: dict[str, Shape]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    name: str = "npu"
    scales: dict[str, Scale] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_tensors(self.layers, self.shapes, self.inputs, self.outputs)
        for tensor in self.scales:
            if tensor not in self.shapes:
                raise GraphError(f"tensor {tensor!r} has a scale and no shape")

    def producer(self, tensor: str) -> Layer | None:
        """The layer that writes ``tensor``; None for a graph input."""
        return next((layer for layer in self.layers if tensor in layer.outputs), None)

    def consumers(self, tensor: str) -> tuple[Layer, ...]:
        return tuple(layer for layer in self.layers if tensor in layer.inputs)

    @property
    def tensors(self) -> tuple[str, ...]:
        """Graph inputs and layer outputs in the order in which they are made; no states."""
        return (*self.inputs, *(tensor for layer in self.layers for tensor in layer.outputs))

    def with_layers(self, layers: Iterable[Layer], shapes: dict[str, Shape] | None = None) -> Graph:
        """This graph with other layers; shapes of tensors no longer used are dropped."""
        kept = tuple(layers)
        merged = {**self.shapes, **(shapes or {})}
        used = {*self.inputs}
        for layer in kept:
            used.update(layer.outputs, (state.tensor for state in layer.states))
        return replace(
            self,
            layers=kept,
            shapes={t: merged[t] for t in merged if t in used},
            scales={t: self.scales[t] for t in self.scales if t in used},
        )


def check_tensors(
    layers: Sequence[Layer] | Sequence[FixedLayer],
    shapes: Mapping[str, Shape],
    inputs: tuple[str, ...],
    outputs: tuple[str, ...],
) -> None:
    """GraphError when a tensor is read before it is made, made twice, or has no usable shape."""
    known = set(inputs)
    for layer in layers:
        for tensor in layer.inputs:
            if tensor not in known:
                raise GraphError(f"layer {layer.name!r} reads {tensor!r}, which nothing made")
        if not layer.outputs:
            raise GraphError(f"layer {layer.name!r} has no output")
        for tensor in (*layer.outputs, *(state.tensor for state in layer.states)):
            if tensor in known:
                raise GraphError(f"tensor {tensor!r} is written twice ({layer.name!r})")
            known.add(tensor)
    memories = {state.tensor for layer in layers for state in layer.states}
    for tensor in outputs:
        if tensor not in known or tensor in memories:
            raise GraphError(f"output {tensor!r} is made by no layer")
    for tensor in known:
        shape = shapes.get(tensor)
        if shape is None:
            raise GraphError(f"tensor {tensor!r} has no shape")
        if not shape or any(extent < 1 for extent in shape):
            raise GraphError(f"tensor {tensor!r} has shape {shape}; every extent must be >= 1")
    for layer in layers:
        _check_states(layer, shapes, memories)


def _check_states(
    layer: Layer | FixedLayer, shapes: Mapping[str, Shape], memories: set[str]
) -> None:
    read = memories.intersection(layer.inputs)
    if read:
        raise GraphError(
            f"layer {layer.name!r} reads the state {min(read)!r}; only a state's final value, an "
            "output of its layer, is read by others"
        )
    for state in layer.states:
        for end, tensor, among in (
            ("initial", state.initial, layer.inputs), ("final", state.final, layer.outputs),
        ):  # fmt: skip
            if tensor is None:
                continue
            if tensor not in among:
                raise GraphError(
                    f"layer {layer.name!r}: the {end} value {tensor!r} of state {state.tensor!r} "
                    f"is not among {among}"
                )
            if shapes[tensor] != shapes[state.tensor]:
                raise GraphError(
                    f"layer {layer.name!r}: state {state.tensor!r} has shape "
                    f"{shapes[state.tensor]}, its {end} value {tensor!r} has {shapes[tensor]}"
                )
