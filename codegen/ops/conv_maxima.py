"""A convolution and maxima of its results that run as one layer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tvm_npu.codegen.graph.layer import FixedLayer, Layer
from tvm_npu.codegen.ops.conv2d import Conv2dOperator, FixedConv
from tvm_npu.codegen.ops.max_feature_map import FixedMaxFeatureMap, MaxFeatureMapOperator
from tvm_npu.codegen.ops.operator import Arrays, Operator, Shapes
from tvm_npu.codegen.ops.pool import FixedPool, PoolOperator

_CONV = Conv2dOperator()
_BEHIND: Mapping[type[FixedLayer], Operator[Any, Any]] = {
    FixedPool: PoolOperator(), FixedMaxFeatureMap: MaxFeatureMapOperator(),
}  # fmt: skip


@dataclass(frozen=True, eq=False)
class FixedConvMaxima(FixedLayer):
    """A convolution and, behind it, a max feature map, a max pool, or the one and then the other:
    what lies between them is never a tensor. Inputs are the convolution's, the output is the last
    one's."""

    conv: FixedConv
    feature_map: FixedMaxFeatureMap | None = None
    pool: FixedPool | None = None

    @property
    def behind(self) -> tuple[FixedLayer, ...]:
        """What follows the convolution, in order."""
        return tuple(one for one in (self.feature_map, self.pool) if one is not None)


class ConvMaximaOperator(Operator[Layer, FixedConvMaxima]):
    fixed = FixedConvMaxima

    def shapes(self, layer: Layer | FixedConvMaxima, inputs: Shapes, declared: Shapes) -> Shapes:
        assert isinstance(layer, FixedConvMaxima)
        found = _CONV.shapes(layer.conv, inputs, ((1, 1, 1),))
        for one in layer.behind:
            found = _BEHIND[type(one)].shapes(one, found, declared)
        return found

    def run_fixed(
        self, layer: FixedConvMaxima, arrays: Arrays, shapes: Shapes, element_bytes: int
    ) -> Arrays:
        made = _CONV.shapes(layer.conv, [array.shape[1:] for array in arrays], ((1, 1, 1),))
        found = _CONV.run_fixed(layer.conv, arrays, made, element_bytes)
        for one in layer.behind:
            operator = _BEHIND[type(one)]
            made = operator.shapes(one, made, shapes)
            found = operator.run_fixed(one, found, made, element_bytes)
        return found

    def macs(self, layer: Layer | FixedConvMaxima, inputs: Shapes, outputs: Shapes) -> int:
        """Those of the convolution."""
        assert isinstance(layer, FixedConvMaxima)
        made = _CONV.shapes(layer.conv, inputs, ((1, 1, 1),))
        return _CONV.macs(layer.conv, inputs, made)

    def word(self, layer: FixedConvMaxima) -> str:
        behind = [_BEHIND[type(one)].word(one) for one in layer.behind]
        return "+".join((_CONV.word(layer.conv), *behind))
