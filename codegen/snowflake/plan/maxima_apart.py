"""Maxima of concatenated tensors as maxima of each of them, so that those of early ones can run
beside the convolutions that make the others."""

from __future__ import annotations

from tvm_npu.codegen.graph import FixedGraph
from tvm_npu.codegen.ops import FixedConv
from tvm_npu.codegen.passes.pools_apart import PooledParts, with_pools_apart
from tvm_npu.codegen.snowflake.plan.transfers import UNIT_WORDS


def with_maxima_apart(fixed: FixedGraph) -> FixedGraph:
    """``fixed`` with the concatenation behind the maxima."""
    return with_pools_apart(fixed, _comes_apart)


def _comes_apart(fixed: FixedGraph, found: PooledParts) -> bool:
    """Every part of a pixel is whole units of the memory, and convolutions run behind the one that
    makes the first part."""
    sources = found.parts.inputs
    if found.pool.kind != "max" or any(fixed.shapes[part][0] % UNIT_WORDS for part in sources):
        return False
    makers = [
        layer for layer in fixed.layers
        if isinstance(layer, FixedConv) and layer.outputs[0] in sources
    ]  # fmt: skip
    return len(makers) > 1
