"""Which two convolutions of one tensor lead a block together.

A *fire module* of SqueezeNet squeezes a tensor by a pointwise convolution, expands that by two
others, a pointwise one and one with larger windows, and puts their results together; the squeeze of
the next module, or a pool and then that, reads only this. The two expansions, the pool and the
squeeze can run as one block (`codegen.ops.block`): what is put together, the largest tensor of the
network, is never one then. The triples are found here; a backend decides which of them it takes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from tvm_npu.codegen.graph import FixedGraph, FixedLayer, Shape
from tvm_npu.codegen.ops import FixedBlock, FixedCascade, FixedConcat, FixedConv, FixedPool
from tvm_npu.codegen.passes.blocks import is_pointwise
from tvm_npu.codegen.passes.cascades import window_of


@dataclass(frozen=True)
class TwinBlock:
    """``block`` does what ``members`` do, the layers that make these tensors, and one of them puts
    ``together`` what the convolutions make. The last of them is the block's own output."""

    block: FixedBlock
    members: tuple[str, ...]
    together: str


def twin_blocks(fixed: FixedGraph) -> Iterator[TwinBlock]:
    """All of a graph, in its order."""
    uses = Counter(tensor for layer in fixed.layers for tensor in layer.inputs)
    makers = {tensor: layer for layer in fixed.layers for tensor in layer.outputs}
    readers = {layer.inputs[0]: layer for layer in fixed.layers if layer.inputs}

    def is_inner(tensor: str) -> bool:
        return uses[tensor] == 1 and tensor not in fixed.outputs

    for parts in fixed.layers:
        if not isinstance(parts, FixedConcat) or len(parts.inputs) != 2:
            continue
        together = parts.outputs[0]
        if not all(map(is_inner, (*parts.inputs, together))):
            continue
        first, second = (makers.get(tensor) for tensor in parts.inputs)
        pair = _pair(first, second, fixed.shapes)
        behind: FixedLayer | None = readers.get(together)
        pool = behind if isinstance(behind, FixedPool) else None
        if pool is not None:
            if window_of(pool, fixed.shapes) is None or not is_inner(pool.outputs[0]):
                continue
            behind = readers.get(pool.outputs[0])
        if pair is not None and isinstance(behind, FixedConv) and is_pointwise(behind):
            block = _block(*pair, pair[1].output == parts.inputs[0], parts, pool, behind)
            inner = () if pool is None else pool.outputs
            members = (*parts.inputs, together, *inner, *block.outputs)
            yield TwinBlock(block, members, together)


def with_twin_block(fixed: FixedGraph, found: TwinBlock) -> FixedGraph:
    """``fixed`` with the block in the place of its last member."""
    layers: list[FixedLayer] = []
    for layer in fixed.layers:
        if layer.outputs == found.block.outputs:
            layers.append(found.block)
        elif layer.outputs[0] not in found.members:
            layers.append(layer)
    return replace(fixed, layers=tuple(layers))


def _pair(
    one: FixedLayer | None, other: FixedLayer | None, shapes: Mapping[str, Shape]
) -> tuple[FixedConv, FixedConv] | None:
    """The convolution with larger windows and its twin: a pointwise one of the same tensor, with as
    many filters and windows inside of the other's."""
    if not isinstance(one, FixedConv) or not isinstance(other, FixedConv):
        return None
    for wide, point in ((one, other), (other, one)):
        reach = zip(wide.weight.shape[2:], wide.dilation, wide.padding[:2], strict=True)
        if (
            wide.inputs == point.inputs
            and len(wide.inputs) == 1
            and shapes[wide.output] == shapes[point.output]
            and is_pointwise(point)
            and wide.stride == (1, 1)
            and wide.groups == 1
            and not wide.is_dense
            and all(0 <= before <= (taps - 1) * apart for taps, apart, before in reach)
        ):
            return wide, point
    return None


def _block(
    wide: FixedConv,
    twin: FixedConv,
    twin_leads: bool,
    parts: FixedConcat,
    pool: FixedPool | None,
    point: FixedConv,
) -> FixedBlock:
    head: FixedConv | FixedCascade = wide
    inner: list[FixedLayer] = [twin, parts] if pool is None else [twin, parts, pool]
    if pool is not None:
        window = replace(pool, inputs=wide.outputs)
        head = FixedCascade(
            f"{wide.name}+{pool.name}", wide.inputs, pool.outputs,
            source=(*wide.source, *pool.source), out_bytes=pool.out_bytes, conv=wide,
            window=window,
        )  # fmt: skip
    names = [one.name for one in (twin, head, point)]
    source = tuple(name for one in (wide, *inner, point) for name in one.source)
    return FixedBlock(
        "+".join(names), (*wide.inputs, *point.inputs[1:]), point.outputs, source=source,
        head=head, point=point, twin=twin, twin_leads=twin_leads,
    )  # fmt: skip
