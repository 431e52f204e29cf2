"""Which pairs of pointwise convolutions, one of which adds what the other makes, run as one.

A residual block whose shortcut is a convolution ends in such a pair. As one layer the sums of the
first come to their end on chip and wait there for those of the second, so that what the first makes
is neither stored nor loaded. It costs tiles that leave room for that. The pairs are found here; a
backend decides which of them it takes (`codegen.passes.joined`).
"""

from __future__ import annotations

from collections import Counter

from tvm_npu.codegen.graph import FixedGraph
from tvm_npu.codegen.ops import FixedConv, FixedConvSum


def possible_sums(fixed: FixedGraph) -> list[FixedConvSum]:
    """All pairs of a graph: the first is nobody else's."""
    uses = Counter(tensor for layer in fixed.layers for tensor in layer.inputs)
    makers = {tensor: layer for layer in fixed.layers for tensor in layer.outputs}
    found = []
    for second in fixed.layers:
        if not isinstance(second, FixedConv) or len(second.inputs) != 2:
            continue
        first = makers.get(second.inputs[1])
        if not isinstance(first, FixedConv) or len(first.inputs) != 1:
            continue
        if uses[first.output] != 1 or first.output in fixed.outputs:
            continue
        if _multiplies_places(first) and first.stride == (1, 1) and _multiplies_places(second):
            found.append(
                FixedConvSum(
                    f"{first.name}+{second.name}", (*first.inputs, second.inputs[0]),
                    second.outputs, source=(*first.source, *second.source), first=first,
                    second=second,
                )
            )  # fmt: skip
    return found


def _multiplies_places(layer: FixedConv) -> bool:
    """Every element of the OFM comes from one place of the IFM, and from all its channels; no
    number of the layer is for it alone but weights, biases and shifts."""
    return (
        layer.weight.shape[2:] == (1, 1)
        and layer.groups == 1
        and not any(layer.padding)
        and not layer.is_dense
        and layer.out_bytes is None
        and layer.table is None
        and layer.slopes is None
        and layer.rescaling is None
    )
