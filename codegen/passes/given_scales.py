"""The scales that a quantized model says itself, out of its spelling.

Quantized models reach the graph as real numbers that are rounded to the integers of 8 bits between
layers, each time in four operators:

    before: a -> affine(1 / s) -> round -> clip(-128 - z, 127 - z) -> affine(s) -> y
    after:  a -> clip((-128 - z) s, (127 - z) s) -> y, whose scale is s with zero point z

The clip may come first, which gives the same values: that says that halves go to even.
What only moves, pools or clips numbers of a scale hands it on; the same scale a second time changes
nothing. A mean takes the scale to which it is rounded behind what moves it (a flatten). What moves
numbers of several scales to one (a concatenation) has that one itself. Calibration finds that of a
mean that nobody rounds.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from tvm_npu.codegen.graph import Clip, Graph, Layer, Scale
from tvm_npu.codegen.ops import Elementwise, ScaleShift, TableFunction
from tvm_npu.codegen.ops.registry import operator_of, tied_tensors
from tvm_npu.codegen.passes.rewriting import Uses
from tvm_npu.codegen.passes.scale_ranges import is_held

ROUND = "round"
STEPS = 255
"""Between the smallest and the largest integer of 8 bits."""
SMALLEST, LARGEST = -128, 127


@dataclass(frozen=True)
class _Rounding:
    """Four layers, ``root`` to the output of the last, that round to integers at a scale."""

    layers: tuple[Layer, ...]
    root: str
    scale: Scale
    clip: Clip

    @property
    def copy(self) -> Elementwise:
        """One layer in their place."""
        last = self.layers[-1]
        source = tuple(dict.fromkeys(name for layer in self.layers for name in layer.source))
        return Elementwise(
            last.name, (self.root,), last.outputs, "copy", self.clip, source=source
        )


def with_given_scales(graph: Graph) -> Graph:
    """``graph`` with the scales that it spells out; the graph itself where there are none."""
    uses = Uses(graph)
    found = {one.layers[0]: one for layer in graph.layers if (one := _rounding(layer, uses))}
    if not found:
        return graph
    gone = {layer for one in found.values() for layer in one.layers}
    scales = _input_scales(graph, uses, tuple(found.values()))
    means: dict[str, Scale] = {}
    for one in found.values():
        means.update(dict.fromkeys(_of_mean(one, uses), one.scale))
    layers: list[Layer] = []
    for layer in graph.layers:
        if layer in found:
            one = found[layer]
            copy = one.copy
            if _moves(uses.producer(one.root)) and uses.sole_reader(one.root) is layer:
                scales.setdefault(one.root, one.scale)
            if scales.get(one.root) == one.scale:
                copy = replace(copy, activation=Clip())
            scales[copy.output] = one.scale
            layers.append(copy)
        elif layer not in gone:
            layers.append(layer)
            kept = means.get(layer.outputs[0])
            if kept is None and not operator_of(layer).is_mean(layer):
                kept = _handed_on(layer, scales)
            if kept is not None:
                scales.update(dict.fromkeys(layer.outputs, kept))
    made = graph.with_layers(layers)
    return replace(made, scales={t: one for t, one in scales.items() if t in made.shapes})


def _input_scales(
    graph: Graph, uses: Uses, roundings: tuple[_Rounding, ...]
) -> dict[str, Scale]:
    """Of graph inputs of which nobody reads more than is left after one rounding."""
    by_root: dict[str, list[_Rounding]] = {}
    for one in roundings:
        by_root.setdefault(one.root, []).append(one)
    return {
        tensor: by_root[tensor][0].scale
        for tensor in graph.inputs
        if tensor in by_root
        and len(by_root[tensor]) == len(uses.readers(tensor))
        and len({one.scale for one in by_root[tensor]}) == 1
    }


def _of_mean(one: _Rounding, uses: Uses) -> list[str]:
    """The result of a mean, and what moves it to the rounding that alone reads it."""
    found: list[str] = []
    tensor, reader = one.root, one.layers[0]
    while uses.sole_reader(tensor) is reader:
        producer = uses.producer(tensor)
        if producer is None or len(producer.inputs) != 1 or not _moves(producer):
            break
        found.append(tensor)
        if operator_of(producer).is_mean(producer):
            return found
        tensor, reader = producer.inputs[0], producer
    return []


def _rounding(first: Layer, uses: Uses) -> _Rounding | None:
    """The four layers that begin with ``first``."""
    chain = [first]
    while len(chain) < 4:
        following = uses.follower(chain[-1])
        if following is None:
            return None
        chain.append(following)
    down, *middle, up = chain
    to_even = isinstance(middle[1], TableFunction)
    clips, rounds = middle if to_even else reversed(middle)
    step = _factor(up)
    down_factor = _factor(down)
    if step is None or down_factor is None or abs(down_factor * step - 1.0) > 1e-5:
        return None
    if not isinstance(rounds, TableFunction) or rounds.function != ROUND:
        return None
    clip = clips.activation if isinstance(clips, Elementwise) and clips.op == "copy" else None
    if not isinstance(clip, Clip) or not 0 <= clip.high - clip.low <= STEPS:
        return None
    low, high = round(clip.low), round(clip.high)
    zero_point = min(max(0, SMALLEST - low), LARGEST - high)
    if (low, high) != (clip.low, clip.high) or not SMALLEST <= zero_point <= LARGEST:
        return None
    scale = Scale.from_real([step], [zero_point], "even" if to_even else "up")
    return _Rounding(tuple(chain), down.inputs[0], scale, Clip(low * step, high * step))


def _factor(layer: Layer) -> float | None:
    """By which a layer multiplies every element, and nothing else."""
    if not isinstance(layer, ScaleShift) or np.any(layer.bias) or layer.scale[0] <= 0.0:
        return None
    return float(layer.scale[0]) if np.all(layer.scale == layer.scale[0]) else None


def _handed_on(layer: Layer, scales: dict[str, Scale]) -> Scale | None:
    """The scale of a layer's outputs that hold nothing but numbers of its inputs' one scale."""
    given = {scales.get(tensor) for tensor in layer.inputs}
    if len(given) != 1 or not layer.inputs or not operator_of(layer).takes_scales(layer):
        return None
    is_clip = isinstance(layer, Elementwise) and layer.op == "copy"
    scale = next(iter(given))
    fills = operator_of(layer).fills(layer)
    if scale is None or not all(is_held(value, scale) for value in fills):
        return None
    return scale if is_clip or _moves(layer) else None


def _moves(layer: Layer | None) -> bool:
    """Whether all that a layer reads and makes has one scale."""
    if layer is None:
        return False
    tensors = {*layer.inputs, *layer.outputs}
    return any(tensors.issubset(tied) for tied in tied_tensors(layer))

