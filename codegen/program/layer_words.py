"""Regions whose layers become words one after another: what such backends need not write anew."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from tvm_npu.codegen.program.code import Code
from tvm_npu.codegen.program.constants import Constants
from tvm_npu.codegen.program.parts import DEBUG, WORD_BYTES, CodeRange
from tvm_npu.sim.isa.disassembler import disassemble
from tvm_npu.sim.isa.table import Isa

if TYPE_CHECKING:
    from tvm_npu.codegen.backend import PlannedGraph
    from tvm_npu.codegen.plan.layers import PlannedLayer

BIAS_TYPE: np.dtype[Any] = np.dtype("<i4")


@dataclass(frozen=True)
class Operands:
    """Where a layer's tensors and constants lie: byte offsets in ACTIVATIONS (``inputs``,
    ``outputs``) and, of what has weights, in CONSTANTS (``weight``, ``bias``)."""

    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    weight: int = 0
    bias: int = 0

    @property
    def output(self) -> int:
        return self.outputs[0]


WriteLayer = Callable[["PlannedLayer", Operands], Sequence[int]]
"""The words of a layer; layers are written once, in order."""


def operands_of(one: PlannedLayer, planned: PlannedGraph, constants: Constants) -> Operands:
    """The places of a layer's tensors; its weights and biases are added to ``constants``."""
    layer, offsets, weight, bias = one.layer, planned.storage.offsets, 0, 0
    if hasattr(layer, "weight"):
        stored = planned.machine.stored_element_bytes(planned.precision)
        name = f"layer {layer.name!r}"
        weight = constants.add(layer.weight, np.dtype(f"<i{stored}"), f"{name}, weights")
        bias = constants.add(layer.bias, BIAS_TYPE, f"{name}, biases")  # type: ignore[attr-defined]
    inputs, outputs = ([offsets[name] for name in names] for names in (layer.inputs, layer.outputs))
    return Operands(tuple(inputs), tuple(outputs), weight, bias)


class LayerWords:
    """`backend.Emitted`: ``write`` makes the words of each layer, ``end`` come behind the last."""

    def __init__(
        self, planned: PlannedGraph, isa: Isa, write: WriteLayer, end: Sequence[int]
    ) -> None:
        self._planned, self._isa, self._end = planned, isa, end
        self._constants = Constants()
        self._layers = [
            tuple(write(one, operands_of(one, planned, self._constants))) for one in planned.layers
        ]

    def text(self, layer: int) -> str:
        return "".join(f"  {disassemble(word, self._isa)}\n" for word in self._layers[layer])

    def assemble(self) -> Code:
        parts: list[tuple[CodeRange, ...]] = []
        layer_of: list[int] = []
        words: list[int] = []
        for index, layer in enumerate(self._layers):
            begin = WORD_BYTES * len(words)
            words += layer
            parts.append((CodeRange(begin, WORD_BYTES * len(words)),))
            layer_of += [index] * len(layer)
        debug = np.zeros(len(words) + len(self._end), DEBUG)
        debug["layer"] = layer_of + [-1] * len(self._end)
        self._constants.pad()
        return Code(
            words=np.array([*words, *self._end], np.uint32),
            layers=tuple(parts),
            constants=self._constants.data,
            activation_bytes=self._planned.storage.size_bytes,
            debug=debug,
        )
