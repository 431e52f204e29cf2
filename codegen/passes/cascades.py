"""Which pools and depthwise convolutions run behind the convolution that feeds them.

The pairs are found here; a backend decides which of them become cascades. A cascade saves the
store of the convolution's OFM and the loads of the layer behind it. It costs what overlapping
windows compute twice, and smaller tiles, which leave room for both layers. Both ways are planned,
and the faster one is taken.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace

from tvm_npu.codegen.graph import FixedGraph, FixedLayer, Shape, chw
from tvm_npu.codegen.ops import FixedCascade, FixedConv, FixedPool
from tvm_npu.codegen.plan.problem import Window


def window_of(layer: FixedLayer, shapes: Mapping[str, Shape]) -> Window | None:
    """``layer`` as a window, None where it is no pool or depthwise convolution or where some
    window would lie outside of its input altogether."""
    if isinstance(layer, FixedPool):
        kernel, has_weights = layer.kernel, False
    elif isinstance(layer, FixedConv) and _is_depthwise(layer):
        kernel, has_weights = (layer.weight.shape[2], layer.weight.shape[3]), True
    else:
        return None
    if not sees_input(layer, kernel, shapes):
        return None
    _, rows, columns = chw(shapes[layer.output])
    padding = (layer.padding[0], layer.padding[1])
    return Window(rows, columns, kernel, layer.stride, padding, has_weights)


def sees_input(
    layer: FixedConv | FixedPool, reach: tuple[int, int], shapes: Mapping[str, Shape]
) -> bool:
    """No window, which reaches over so many rows and columns, lies in the padding altogether, and
    the first ones leave out no row or column in front (padding of less than nothing)."""
    out, inside = chw(shapes[layer.output]), chw(shapes[layer.inputs[0]])
    for axis in (0, 1):
        front = layer.padding[axis]
        last = (out[1 + axis] - 1) * layer.stride[axis] - front
        if not 0 <= front < reach[axis] or last >= inside[1 + axis]:
            return False
    return True


def _is_depthwise(layer: FixedConv) -> bool:
    filters, channels = layer.weight.shape[:2]
    return (
        layer.groups == filters
        and channels == 1
        and len(layer.inputs) == 1
        and layer.dilation == (1, 1)
        and not layer.is_dense
    )


def candidates(fixed: FixedGraph) -> list[FixedCascade]:
    """All pairs that could be a cascade: a dense-channel convolution whose OFM only the layer
    behind it reads."""
    uses = Counter(tensor for layer in fixed.layers for tensor in layer.inputs)
    makers = {tensor: layer for layer in fixed.layers for tensor in layer.outputs}
    found = []
    for layer in fixed.layers:
        conv = makers.get(layer.inputs[0]) if layer.inputs else None
        if not isinstance(conv, FixedConv) or conv.groups != 1 or conv.is_dense:
            continue
        if len(conv.inputs) > 1:  # a residual tile would be the window's box, borders and all
            continue
        if uses[conv.output] != 1 or conv.output in fixed.outputs:
            continue
        if window_of(layer, fixed.shapes) is None:
            continue
        assert isinstance(layer, FixedPool | FixedConv)
        if isinstance(layer, FixedConv) and layer.weight.shape[0] != conv.weight.shape[0]:
            continue
        found.append(
            FixedCascade(
                f"{conv.name}+{layer.name}", conv.inputs, layer.outputs,
                source=(*conv.source, *layer.source), out_bytes=layer.out_bytes, conv=conv,
                window=layer,
            )
        )  # fmt: skip
    return found


def with_cascades(fixed: FixedGraph, chosen: list[FixedCascade]) -> FixedGraph:
    """The graph with cascades in place of their two layers, where the second was."""
    first = {cascade.conv.output for cascade in chosen}
    second = {cascade.output: cascade for cascade in chosen}
    layers: list[FixedLayer] = []
    for layer in fixed.layers:
        if first.isdisjoint(layer.outputs):
            layers.append(second.get(layer.outputs[0], layer))
    return replace(fixed, layers=tuple(layers))
