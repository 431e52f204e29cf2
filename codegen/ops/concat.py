"""Concatenation along the channels."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tvm_npu.codegen.errors import GraphError
from tvm_npu.codegen.graph.layer import FixedLayer, Layer
from tvm_npu.codegen.ops.elementwise import FixedElementwise
from tvm_npu.codegen.ops.operator import Arrays, Numbers, Operator, Placement, Shapes


@dataclass(frozen=True, eq=False)
class Concat(Layer):
    """Concatenation along the channels (the first axis of the batch-free shape)."""


@dataclass(frozen=True, eq=False)
class FixedConcat(FixedLayer):
    """Layout only: all inputs and the output share one scale."""


class ConcatOperator(Operator[Concat, FixedConcat]):
    layer = Concat
    fixed = FixedConcat
    placement = Placement.GATHERED

    def shapes(self, layer: Concat | FixedConcat, inputs: Shapes, declared: Shapes) -> Shapes:
        if not inputs or any(shape[1:] != inputs[0][1:] for shape in inputs):
            raise GraphError(
                f"layer {layer.name!r} puts {list(inputs)} together; all but the channels must "
                "be equal"
            )
        return ((sum(shape[0] for shape in inputs), *inputs[0][1:]),)

    def run_float(self, layer: Concat, arrays: Arrays, shapes: Shapes) -> Arrays:
        return (np.concatenate(arrays, axis=1),)

    def run_fixed(
        self, layer: FixedConcat, arrays: Arrays, shapes: Shapes, element_bytes: int
    ) -> Arrays:
        return (np.concatenate(arrays, axis=1),)

    def ties(self, layer: Concat) -> tuple[tuple[str, ...], ...]:
        return ((*layer.inputs, *layer.outputs),)

    def takes_scales(self, layer: Concat) -> bool:
        return True

    def quantize(self, layer: Concat, numbers: Numbers) -> FixedConcat:
        return FixedConcat(layer.name, layer.inputs, layer.outputs, source=layer.source)

    def word(self, layer: FixedConcat) -> str:
        return "concat"

    def emitted(self, layer: type[Layer] | type[FixedLayer]) -> frozenset[type[FixedLayer]]:
        """Inputs that cannot be made inside the output are copied there."""
        return frozenset({FixedElementwise})
