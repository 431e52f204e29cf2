"""Pools of concatenated tensors as pools of each of them: one can run behind or beside the
convolution that makes its part."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from tvm_npu.codegen.graph import FixedGraph, FixedLayer
from tvm_npu.codegen.ops import FixedConcat, FixedPool


@dataclass(frozen=True)
class PooledParts:
    """``pool`` alone reads what ``parts`` puts together, and does the same with every channel."""

    pool: FixedPool
    parts: FixedConcat


def pooled_parts(fixed: FixedGraph) -> Iterator[PooledParts]:
    """All of a graph, in the order of their pools."""
    made = {layer.outputs[0]: layer for layer in fixed.layers}
    for pool in fixed.layers:
        parts = made.get(pool.inputs[0]) if isinstance(pool, FixedPool) else None
        if not isinstance(pool, FixedPool) or not isinstance(parts, FixedConcat):
            continue
        whole = parts.outputs[0]
        readers = sum(whole in layer.inputs for layer in fixed.layers)
        if pool.slopes is not None or pool.rescaling is not None:
            continue
        if readers == 1 and whole not in fixed.outputs:
            yield PooledParts(pool, parts)


def with_pools_apart(
    fixed: FixedGraph, comes_apart: Callable[[FixedGraph, PooledParts], bool]
) -> FixedGraph:
    """``fixed`` with the concatenation behind the pools, where ``comes_apart`` says so."""
    for found in pooled_parts(fixed):
        if comes_apart(fixed, found):
            fixed = apart(fixed, found)
    return fixed


def apart(fixed: FixedGraph, found: PooledParts) -> FixedGraph:
    """``fixed`` with one of its `pooled_parts` apart."""
    pool, parts = found.pool, found.parts
    target = pool.outputs[0]
    pooled = tuple(f"{target}.{number}" for number in range(len(parts.inputs)))
    shapes, scales = dict(fixed.shapes), dict(fixed.scales)
    pools: list[FixedLayer] = []
    for number, (source, own) in enumerate(zip(parts.inputs, pooled, strict=True)):
        shapes[own] = (fixed.shapes[source][0], *fixed.shapes[target][1:])
        scales[own] = scales[target]
        name = f"{pool.name}.{number}"
        pools.append(replace(pool, name=name, inputs=(source,), outputs=(own,)))
    together = replace(parts, inputs=pooled, outputs=pool.outputs)
    layers: list[FixedLayer] = []
    for layer in fixed.layers:
        if layer is pool:
            layers += [*pools, together]
        elif layer is not parts:
            layers.append(layer)
    return replace(fixed, layers=tuple(layers), shapes=shapes, scales=scales)
