"""Which pointwise convolutions run behind the convolution, or the cascade, that feeds them.

A block saves the store of what its head makes and the loads of the pointwise convolution. It costs
smaller tiles, and that the TLTs that share a place wait for each other. The blocks are found here;
a backend decides which of them it takes (`codegen.passes.joined`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from tvm_npu.codegen.graph import FixedGraph
from tvm_npu.codegen.ops import FixedBlock, FixedCascade, FixedConv


def blocks_behind(
    fixed: FixedGraph, heads: Iterable[FixedConv | FixedCascade]
) -> list[FixedBlock]:
    """A block for each of ``heads`` whose output only a pointwise convolution reads, as what it
    multiplies. Heads that add a residual are left out."""
    uses = Counter(tensor for layer in fixed.layers for tensor in layer.inputs)
    readers = {layer.inputs[0]: layer for layer in fixed.layers if layer.inputs}
    found = []
    for head in heads:
        point = readers.get(head.output)
        if uses[head.output] != 1 or head.output in fixed.outputs or len(head.inputs) > 1:
            continue
        if isinstance(point, FixedConv) and is_pointwise(point):
            found.append(
                FixedBlock(
                    f"{head.name}+{point.name}", (*head.inputs, *point.inputs[1:]), point.outputs,
                    source=(*head.source, *point.source), head=head, point=point,
                )
            )  # fmt: skip
    return found


def is_pointwise(layer: FixedConv) -> bool:
    """Every element of the OFM comes from one place of the IFM, and from all its channels."""
    return (
        layer.weight.shape[2:] == (1, 1)
        and layer.groups == 1
        and layer.stride == (1, 1)
        and not any(layer.padding)
        and not layer.is_dense
    )
