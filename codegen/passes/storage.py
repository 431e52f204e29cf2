"""Where tensors live: views, concatenation in place, copies, reuse of memory.

Reshapes and channel slices are views. The inputs of a concatenation are made inside its buffer
where they can be; where one cannot (a graph input, a tensor that already lies somewhere else, a
graph output), a copy layer is put in front of the concatenation. Graph inputs and outputs own
their memory for the whole run; everything else shares by liveness, largest first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from math import prod

from tvm_npu.codegen.fixed import (
    FixedChannelSlice,
    FixedConcat,
    FixedElementwise,
    FixedGraph,
    FixedLayer,
    FixedReshape,
)
from tvm_npu.codegen.fixed_point import element_limits
from tvm_npu.codegen.graph import chw

ALIGNMENT_BYTES = 128
LAYOUT_ONLY = (FixedReshape, FixedChannelSlice, FixedConcat)


@dataclass(frozen=True)
class Lifetime:
    """A buffer of ``size_bytes`` that is needed from layer ``begin`` to layer ``end``."""

    name: str
    size_bytes: int
    begin: int
    end: int


@dataclass(frozen=True)
class Storage:
    """``layers`` are what must be executed, in order; ``offsets`` the byte offset of every
    tensor in ACTIVATIONS; ``outputs`` the tensor that holds each graph output."""

    layers: tuple[FixedLayer, ...]
    shapes: dict[str, tuple[int, ...]]
    offsets: dict[str, int]
    outputs: tuple[str, ...]
    size_bytes: int


class _Places:
    """Tensors as (buffer, byte offset), found through chains of parents."""

    def __init__(self, fixed: FixedGraph, element_bytes: int) -> None:
        self.sizes = {t: prod(s) * element_bytes for t, s in fixed.shapes.items()}
        self.parents: dict[str, tuple[str, int]] = {}

    def find(self, tensor: str) -> tuple[str, int]:
        offset = 0
        while tensor in self.parents:
            tensor, further = self.parents[tensor]
            offset += further
        return tensor, offset


def plan_storage(fixed: FixedGraph, stored_bytes: int | None = None) -> Storage:
    """Decides views and copies and gives every buffer its place. Deterministic.

    ``stored_bytes`` are those that an element takes in memory (None: as many as its numbers)."""
    shapes = dict(fixed.shapes)
    element_bytes = fixed.element_bytes if stored_bytes is None else stored_bytes
    places = _Places(fixed, element_bytes)
    plane = {t: prod(chw(s)[1:]) * element_bytes for t, s in shapes.items()}
    for layer in fixed.layers:
        if isinstance(layer, FixedReshape):
            places.parents[layer.output] = (layer.inputs[0], 0)
        elif isinstance(layer, FixedChannelSlice):
            source = layer.inputs[0]
            places.parents[layer.output] = (source, layer.begin * plane[source])

    copies: dict[int, list[FixedLayer]] = {}
    layers = list(fixed.layers)

    def copy(tensor: str, name: str, position: int) -> str:
        """A copy of ``tensor`` under a new name, made before layer ``position``."""
        while name in shapes:
            name += "'"
        low, high = element_limits(fixed.element_bytes)
        made = FixedElementwise(
            name, (tensor,), name, source=_source(fixed, tensor), shift=0, low=low, high=high,
            op="copy",
        )  # fmt: skip
        copies.setdefault(position, []).append(made)
        shapes[name], places.sizes[name] = shapes[tensor], places.sizes[tensor]
        return name

    outputs, owned = _place_outputs(fixed, places, copy)
    for position in reversed(range(len(layers))):
        layer = layers[position]
        if isinstance(layer, FixedConcat):
            inputs = _place_concat(fixed, layer, position, places, owned, copy)
            layers[position] = replace(layer, inputs=inputs)

    executed: list[FixedLayer] = []
    for position, layer in enumerate(layers):
        executed += copies.get(position, [])
        if not isinstance(layer, LAYOUT_ONLY):
            executed.append(layer)
    executed += copies.get(len(layers), [])

    lifetimes = _lifetimes(executed, places, (*fixed.inputs, *outputs))
    buffers, size_bytes = first_fit(lifetimes)
    offsets = {}
    for tensor in shapes:
        buffer, offset = places.find(tensor)
        if buffer in buffers:
            offsets[tensor] = buffers[buffer] + offset
    return Storage(tuple(executed), shapes, offsets, outputs, size_bytes)


def _source(fixed: FixedGraph, tensor: str) -> tuple[str, ...]:
    return next((layer.source for layer in fixed.layers if layer.output == tensor), ())


Copy = Callable[[str, str, int], str]
"""(tensor, name of the copy, position of the layer before which it is made) -> tensor."""


def _place_outputs(
    fixed: FixedGraph, places: _Places, copy: Copy
) -> tuple[tuple[str, ...], set[str]]:
    """(tensor of each output, buffers that outputs own): an output that lies in a graph input or
    in another output's buffer is copied."""
    outputs = []
    made: dict[str, str] = {}
    owned: dict[str, str] = {}
    for name in fixed.outputs:
        if name not in made:
            buffer, _ = places.find(name)
            if buffer in fixed.inputs or buffer in owned:
                tensor = copy(name, f"{name}@output", len(fixed.layers))
                buffer = tensor
            else:
                tensor = name
            made[name], owned[buffer] = tensor, name
        outputs.append(made[name])
    return tuple(outputs), set(owned)


def _place_concat(
    fixed: FixedGraph,
    layer: FixedConcat,
    position: int,
    places: _Places,
    owned: set[str],
    copy: Copy,
) -> tuple[str, ...]:
    """Puts the inputs of a concatenation into its buffer, or the concatenation into theirs.

    Returns the inputs, copies in place of those that could not be moved."""
    leaves = _leaves(fixed, layer)
    buffer, begin = places.find(leaves[0])
    together = True
    expected = begin
    for leaf in leaves:
        together = together and places.find(leaf) == (buffer, expected)
        expected += places.sizes[leaf]
    if together and layer.output not in places.parents and layer.output not in owned:
        places.parents[layer.output] = (buffer, begin)
        return layer.inputs

    home, _ = places.find(layer.output)
    inputs = []
    at = 0
    for index, tensor in enumerate(layer.inputs):
        size = places.sizes[tensor]
        buffer, offset = places.find(tensor)
        movable = (
            buffer not in fixed.inputs
            and buffer not in owned
            and buffer != home
            and offset == 0
            and places.sizes[buffer] == size
        )
        if not movable:
            tensor = buffer = copy(tensor, f"{layer.output}@{index}", position)
        places.parents[buffer] = (layer.output, at)
        inputs.append(tensor)
        at += size
    return tuple(inputs)


def _leaves(fixed: FixedGraph, layer: FixedConcat) -> list[str]:
    """The tensors that a concatenation consists of, seen through the concatenations it reads."""
    made = {one.output: one for one in fixed.layers if isinstance(one, FixedConcat)}
    leaves: list[str] = []
    waiting = list(reversed(layer.inputs))
    while waiting:
        tensor = waiting.pop()
        if tensor in made:
            waiting += reversed(made[tensor].inputs)
        else:
            leaves.append(tensor)
    return leaves


def _lifetimes(
    layers: Iterable[FixedLayer], places: _Places, permanent: tuple[str, ...]
) -> list[Lifetime]:
    """Buffers with the layers between which they hold data."""
    spans: dict[str, tuple[int, int]] = {}
    count = 0
    for index, layer in enumerate(layers):
        for tensor in (*layer.inputs, layer.output):
            buffer, _ = places.find(tensor)
            begin, _ = spans.get(buffer, (index, index))
            spans[buffer] = (begin, index)
        count = index + 1
    for tensor in permanent:
        spans[places.find(tensor)[0]] = (-1, count)
    return [Lifetime(name, places.sizes[name], *span) for name, span in spans.items()]


def first_fit(lifetimes: Iterable[Lifetime]) -> tuple[dict[str, int], int]:
    """(offset of each buffer, total size): largest first, each at the lowest offset where no
    buffer that lives at the same time lies."""
    placed: list[tuple[Lifetime, int]] = []
    total = 0
    order = sorted(lifetimes, key=lambda one: (-one.size_bytes, one.begin, one.name))
    for one in order:
        offset = 0
        for other, at in sorted(placed, key=lambda entry: entry[1]):
            if other.end < one.begin or one.end < other.begin:
                continue
            if offset + one.size_bytes <= at:
                break
            offset = max(offset, _aligned(at + other.size_bytes))
        placed.append((one, offset))
        total = max(total, _aligned(offset + one.size_bytes))
    return {one.name: offset for one, offset in placed}, total


def _aligned(size_bytes: int) -> int:
    return -(-size_bytes // ALIGNMENT_BYTES) * ALIGNMENT_BYTES
