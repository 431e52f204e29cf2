"""Moves of elements take over the reshapes around them.

Where channels lie beside each other a reshape of an image is a move of its own, from one order of
elements to another; a move says which element goes where by their numbers, and these are the same
in front of a reshape and behind it.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from tvm_npu.codegen.graph import FixedGraph, FixedLayer
from tvm_npu.codegen.ops import FixedMove, FixedReshape


def with_joined_reshapes(fixed: FixedGraph) -> FixedGraph:
    """``fixed`` with moves that read what reshapes read, and make what those behind them make."""
    if not any(isinstance(layer, FixedMove) for layer in fixed.layers):
        return fixed
    targets = _behind_moves(fixed)
    gone = set(targets.values())
    sources = {
        layer.output: layer.inputs[0]
        for layer in fixed.layers
        if isinstance(layer, FixedReshape) and layer.output not in gone
    }
    layers: list[FixedLayer] = []
    for layer in fixed.layers:
        if isinstance(layer, FixedMove):
            layers.append(_joined(layer, sources, targets, fixed))
        elif layer.outputs[0] not in gone:
            layers.append(layer)
    return replace(fixed, layers=_needed(layers, fixed.outputs))


def _behind_moves(fixed: FixedGraph) -> dict[str, str]:
    """Results of reshapes, by that of the move in front, which nothing else reads; and on."""
    reads = Counter(tensor for layer in fixed.layers for tensor in layer.inputs)
    found: dict[str, str] = {}
    made = {layer.output for layer in fixed.layers if isinstance(layer, FixedMove)}
    for layer in fixed.layers:
        source = layer.inputs[0]
        if isinstance(layer, FixedReshape) and source in made and source not in fixed.outputs:
            if reads[source] == 1:
                found[source] = layer.output
                made.add(layer.output)
    return found


def _joined(
    layer: FixedMove, sources: dict[str, str], targets: dict[str, str], fixed: FixedGraph
) -> FixedMove:
    inputs = tuple(_last(tensor, sources) for tensor in layer.inputs)
    output = _last(layer.output, targets)
    shapes = tuple(fixed.shapes[tensor] for tensor in (*inputs, output))
    return replace(layer, inputs=inputs, outputs=(output,), shapes=shapes)


def _last(tensor: str, following: dict[str, str]) -> str:
    while tensor in following:
        tensor = following[tensor]
    return tensor


def _needed(layers: list[FixedLayer], outputs: tuple[str, ...]) -> tuple[FixedLayer, ...]:
    """Without reshapes that nothing reads."""
    read = set(outputs)
    found: list[FixedLayer] = []
    for layer in reversed(layers):
        if isinstance(layer, FixedReshape) and layer.output not in read:
            continue
        read.update(layer.inputs)
        found.append(layer)
    return tuple(reversed(found))
