"""Where tensors live: views, gathering in place, copies, reuse of memory.

An operator says whether its outputs are computed, are views of its input, or gather its inputs
(`codegen.ops.operator.Placement`). What is gathered is made inside the output's buffer where it
can be; where it cannot (a graph input, a tensor that already lies somewhere else, a graph output),
a copy layer is put in front. Graph inputs and outputs own their memory for the whole run;
everything else shares by liveness, largest first. States lie in memory of their own that nothing
else shares.

Tensors lie as their shapes say, channels outside; or channels inside (`channels_last`), where a
gathered or sliced tensor is a run of channels of every pixel of its buffer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from math import prod
from typing import Literal

from tvm_npu.codegen.graph import FixedGraph, FixedLayer
from tvm_npu.codegen.graph.fixed import Width, precision_of_width
from tvm_npu.codegen.ops.elementwise import fixed_copy
from tvm_npu.codegen.ops.operator import Placement
from tvm_npu.codegen.ops.registry import operator_of
from tvm_npu.codegen.passes.channels_last import Settled, is_view, settle
from tvm_npu.sim.arithmetic import aligned
from tvm_npu.sim.machine_parts import ELEMENT_BYTES, Precision

ALIGNMENT_BYTES = 128

Layout = Literal["channels first", "channels last"]
"""How tensors of three dimensions lie in memory."""


@dataclass(frozen=True)
class PixelForm:
    """A tensor whose channels lie beside each other: ``planes`` elements a pixel, from one pixel to
    the next ``pitch`` elements (more than ``planes`` where it lies inside of another tensor)."""

    planes: int
    pitch: int


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
    tensor in ACTIVATIONS; ``outputs`` the tensor that holds each graph output; ``state_offsets``
    the byte offset of every state in STATES; ``forms`` how each tensor lies where channels are
    inside (empty: as its shape says); ``widths`` the bytes of an element's number in every
    tensor."""

    layers: tuple[FixedLayer, ...]
    shapes: dict[str, tuple[int, ...]]
    offsets: dict[str, int]
    outputs: tuple[str, ...]
    size_bytes: int
    state_offsets: dict[str, int] = field(default_factory=dict)
    state_bytes: int = 0
    forms: dict[str, PixelForm] = field(default_factory=dict)
    widths: dict[str, Width] = field(default_factory=dict)

    def precision_of(self, layer: FixedLayer) -> Precision:
        """What an executed layer computes with: that of its operands."""
        return precision_of_width(self.widths[layer.inputs[0]])


class _Places:
    """Tensors as (buffer, byte offset), found through chains of parents. ``stored`` are the bytes
    that an element takes in memory, ``behind`` is how many bytes further the next tensor of a
    gathered one begins."""

    def __init__(
        self,
        shapes: Mapping[str, tuple[int, ...]],
        stored: Mapping[str, int],
        settled: Settled | None,
    ) -> None:
        self.stored = dict(stored)
        self.sizes = {t: prod(s) * stored[t] for t, s in shapes.items()}
        self.parents: dict[str, tuple[str, int]] = {}
        self.behind = dict(self.sizes)
        if settled is not None:
            self.behind = {t: n * stored[t] for t, n in settled.planes.items()}

    def find(self, tensor: str) -> tuple[str, int]:
        offset = 0
        while tensor in self.parents:
            tensor, further = self.parents[tensor]
            offset += further
        return tensor, offset


def plan_storage(
    fixed: FixedGraph,
    stored_bytes: Callable[[Precision], int] = ELEMENT_BYTES.__getitem__,
    layout: Layout = "channels first",
    beside: int = 0,
) -> Storage:
    """Decides views and copies and gives every buffer its place. Deterministic.

    ``stored_bytes`` are those that an element of a precision takes in memory (left out: as many as
    its number). A layer may run at the same time as ``beside`` layers behind it."""
    settled = settle(fixed) if layout == "channels last" else None
    if settled is not None:
        fixed = replace(fixed, layers=settled.layers, shapes=settled.shapes)
    shapes = dict(fixed.shapes)
    stored = {t: stored_bytes(precision_of_width(fixed.width_of(t))) for t in shapes}
    places = _Places(shapes, stored, settled)
    _place_views(fixed, places, settled)

    copies: dict[int, list[FixedLayer]] = {}
    layers = list(fixed.layers)
    widths = {tensor: fixed.width_of(tensor) for tensor in shapes}

    def copy(tensor: str, name: str, position: int) -> str:
        """A copy of ``tensor`` under a new name, made before layer ``position``."""
        while name in shapes:
            name += "'"
        made = fixed_copy(name, tensor, name, widths[tensor], _source(fixed, tensor))
        copies.setdefault(position, []).append(made)
        shapes[name], widths[name] = shapes[tensor], widths[tensor]
        for known in (places.sizes, places.behind, places.stored):
            known[name] = known[tensor]
        return name

    outputs, owned = _place_outputs(fixed, places, copy)
    for position in reversed(range(len(layers))):
        layer = layers[position]
        if operator_of(layer).placement is Placement.GATHERED:
            inputs = _gather(fixed, layer, position, places, owned, copy)
            layers[position] = replace(layer, inputs=inputs)

    executed: list[FixedLayer] = []
    for position, layer in enumerate(layers):
        executed += copies.get(position, [])
        if _placement(layer, settled) is Placement.COMPUTED:
            executed.append(layer)
    executed += copies.get(len(layers), [])

    lifetimes = _lifetimes(executed, places, (*fixed.inputs, *outputs), beside)
    buffers, size_bytes = first_fit(lifetimes)
    placed = {}
    for tensor in shapes:
        buffer, offset = places.find(tensor)
        if buffer in buffers:
            placed[tensor] = buffers[buffer] + offset
    states, state_bytes = _place_states(executed, places)
    forms = _pixel_forms(shapes, places) if settled is not None else {}
    return Storage(
        tuple(executed), shapes, placed, outputs, size_bytes, states, state_bytes, forms, widths
    )


def _placement(layer: FixedLayer, settled: Settled | None) -> Placement:
    """Its operator's, unless pixels cannot be seen through it as they lie."""
    placement = operator_of(layer).placement
    if placement is Placement.VIEW and settled is not None and not is_view(layer, settled):
        return Placement.COMPUTED
    return placement


def _place_views(fixed: FixedGraph, places: _Places, settled: Settled | None) -> None:
    """Puts the outputs of views into their inputs."""
    for layer in fixed.layers:
        if _placement(layer, settled) is Placement.VIEW:
            source = layer.inputs[0]
            size = prod(fixed.shapes[source])
            pixels = 1 if settled is None else size // settled.planes[source]
            offsets = operator_of(layer).view_offsets(layer, fixed.shapes)
            for tensor, elements in zip(layer.outputs, offsets, strict=True):
                places.parents[tensor] = (source, elements // pixels * places.stored[source])


def _pixel_forms(tensors: Iterable[str], places: _Places) -> dict[str, PixelForm]:
    planes = {tensor: size // places.stored[tensor] for tensor, size in places.behind.items()}
    return {tensor: PixelForm(planes[tensor], planes[places.find(tensor)[0]]) for tensor in tensors}


def _place_states(layers: Iterable[FixedLayer], places: _Places) -> tuple[dict[str, int], int]:
    """(offset of each state, size of them all), one after the other."""
    offsets = {}
    size_bytes = 0
    for layer in layers:
        for state in layer.states:
            offsets[state.tensor] = size_bytes
            size_bytes = aligned(size_bytes + places.sizes[state.tensor], ALIGNMENT_BYTES)
    return offsets, size_bytes


def _source(fixed: FixedGraph, tensor: str) -> tuple[str, ...]:
    return next((layer.source for layer in fixed.layers if tensor in layer.outputs), ())


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


def _gather(
    fixed: FixedGraph,
    layer: FixedLayer,
    position: int,
    places: _Places,
    owned: set[str],
    copy: Copy,
) -> tuple[str, ...]:
    """Puts the inputs of a gathering layer into its output's buffer, or the output into theirs.

    Returns the inputs, copies in place of those that could not be moved."""
    leaves = _leaves(fixed, layer)
    buffer, begin = places.find(leaves[0])
    together = True
    expected = begin
    for leaf in leaves:
        together = together and places.find(leaf) == (buffer, expected)
        expected += places.behind[leaf]
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
        at += places.behind[tensor]
    return tuple(inputs)


def _leaves(fixed: FixedGraph, layer: FixedLayer) -> list[str]:
    """The tensors that a gathered one consists of, seen through the gathered ones it reads."""
    gathered = (one for one in fixed.layers if operator_of(one).placement is Placement.GATHERED)
    made = {one.output: one for one in gathered}
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
    layers: Iterable[FixedLayer], places: _Places, permanent: tuple[str, ...], beside: int
) -> list[Lifetime]:
    """Buffers with the layers between which they hold data, and ``beside`` more."""
    spans: dict[str, tuple[int, int]] = {}
    count = 0
    for index, layer in enumerate(layers):
        for tensor in (*layer.inputs, *layer.outputs):
            buffer, _ = places.find(tensor)
            begin, _ = spans.get(buffer, (index, index))
            spans[buffer] = (begin, index + beside)
        count = index + 1 + beside
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
            offset = max(offset, aligned(at + other.size_bytes, ALIGNMENT_BYTES))
        placed.append((one, offset))
        total = max(total, aligned(offset + one.size_bytes, ALIGNMENT_BYTES))
    return {one.name: offset for one, offset in placed}, total
