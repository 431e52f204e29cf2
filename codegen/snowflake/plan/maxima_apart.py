"""Maxima of concatenated tensors as maxima of each of them, so that those of early ones can run
beside the convolutions that make the others."""

from __future__ import annotations

from dataclasses import replace

from tvm_npu.codegen.graph import FixedGraph, FixedLayer
from tvm_npu.codegen.ops import FixedConcat, FixedConv, FixedPool
from tvm_npu.codegen.snowflake.plan.transfers import UNIT_WORDS


def with_maxima_apart(fixed: FixedGraph) -> FixedGraph:
    """``fixed`` with the concatenation behind the maxima."""
    layers: list[FixedLayer] = []
    shapes, scales = dict(fixed.shapes), dict(fixed.scales)
    made = {layer.outputs[0]: layer for layer in fixed.layers}
    dropped = set()
    for layer in fixed.layers:
        parts = made.get(layer.inputs[0])
        if (
            not isinstance(layer, FixedPool) or not isinstance(parts, FixedConcat)
            or not _comes_apart(layer, parts, fixed)
        ):  # fmt: skip
            layers.append(layer)
            continue
        dropped.add(parts.outputs[0])
        pooled = tuple(f"{layer.outputs[0]}.{number}" for number in range(len(parts.inputs)))
        for number, (source, target) in enumerate(zip(parts.inputs, pooled, strict=True)):
            shapes[target] = (fixed.shapes[source][0], *fixed.shapes[layer.outputs[0]][1:])
            scales[target] = scales[layer.outputs[0]]
            name = f"{layer.name}.{number}"
            layers.append(replace(layer, name=name, inputs=(source,), outputs=(target,)))
        layers.append(replace(parts, inputs=pooled, outputs=layer.outputs))
    if not dropped:
        return fixed
    kept = tuple(layer for layer in layers if layer.outputs[0] not in dropped)
    return replace(fixed, layers=kept, shapes=shapes, scales=scales)


def _comes_apart(pool: FixedPool, parts: FixedConcat, fixed: FixedGraph) -> bool:
    """Nothing else reads what is put together, every part of a pixel is whole units of the memory,
    and convolutions run behind the one that makes the first part."""
    whole = parts.outputs[0]
    readers = [layer for layer in fixed.layers if whole in layer.inputs]
    if pool.kind != "max" or len(readers) > 1 or whole in fixed.outputs:
        return False
    if any(fixed.shapes[part][0] % UNIT_WORDS for part in parts.inputs):
        return False
    makers = [
        number for number, layer in enumerate(fixed.layers)
        if isinstance(layer, FixedConv) and layer.outputs[0] in parts.inputs
    ]  # fmt: skip
    return len(makers) > 1
