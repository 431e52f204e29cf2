"""Blocks that follow each other and run as one layer."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from tvm_npu.codegen.graph.layer import FixedLayer, Layer
from tvm_npu.codegen.ops.block import BlockOperator, FixedBlock
from tvm_npu.codegen.ops.operator import Arrays, Operator, Shapes

_BLOCK = BlockOperator()


@dataclass(frozen=True, eq=False)
class FixedRun(FixedLayer):
    """Each of ``blocks`` takes what the one before it makes, which is never a tensor: nobody else
    reads it. Inputs are those of the first block, then the tensors that later ones add, if these
    are not what they take; the output is that of the last."""

    blocks: tuple[FixedBlock, ...]


class RunOperator(Operator[Layer, FixedRun]):
    fixed = FixedRun

    def shapes(self, layer: Layer | FixedRun, inputs: Shapes, declared: Shapes) -> Shapes:
        assert isinstance(layer, FixedRun)
        *_, (_, _, made) = _walk(layer, inputs)
        return (made,)

    def run_fixed(
        self, layer: FixedRun, arrays: Arrays, shapes: Shapes, element_bytes: int
    ) -> Arrays:
        known = dict(zip(layer.inputs, arrays, strict=True))
        for block, _, made in _walk(layer, [array.shape[1:] for array in arrays]):
            operands = [known[tensor] for tensor in block.inputs]
            (found,) = _BLOCK.run_fixed(block, operands, (made,), element_bytes)
            known[block.output] = found
        return (known[layer.output],)

    def macs(self, layer: Layer | FixedRun, inputs: Shapes, outputs: Shapes) -> int:
        assert isinstance(layer, FixedRun)
        return sum(_BLOCK.macs(block, own, (made,)) for block, own, made in _walk(layer, inputs))

    def word(self, layer: FixedRun) -> str:
        return f"run_of_{len(layer.blocks)}"


def _walk(layer: FixedRun, inputs: Sequence[Any]) -> Iterator[tuple[FixedBlock, Shapes, Any]]:
    """Every block with the shapes of its inputs and of its output."""
    known = dict(zip(layer.inputs, inputs, strict=True))
    for block in layer.blocks:
        own = [known[tensor] for tensor in block.inputs]
        (made,) = _BLOCK.shapes(block, own, ((1, 1, 1),))
        known[block.output] = made
        yield block, own, made
