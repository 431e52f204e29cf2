"""What every tensor of a program should be, and where it lies: the reference, layer by layer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tvm_npu.codegen.backend import PlannedGraph
from tvm_npu.codegen.graph import Array
from tvm_npu.codegen.program.format import Program, Segment, TensorSlot
from tvm_npu.codegen.program.tables import slots_by_tensor
from tvm_npu.codegen.reference import run_fixed


@dataclass(frozen=True)
class LayerTensors:
    """The tensors that an executed layer reads and makes."""

    name: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]


@dataclass(frozen=True, eq=False)
class Reference:
    """``inputs`` of the program; ``layers`` in the order of its layer table; ``values`` are those
    of one image, by tensor, as the reference computes them; ``slots`` say where in memory each
    is."""

    inputs: tuple[str, ...]
    layers: tuple[LayerTensors, ...]
    values: Mapping[str, Array]
    slots: Mapping[str, TensorSlot]

    @staticmethod
    def of(planned: PlannedGraph, program: Program, inputs: Mapping[str, Array]) -> Reference:
        """Of a program of ``planned``, for ``inputs`` [1, *shape]. Raises InputError for inputs
        that are not those of the graph."""
        fixed, storage = planned.fixed, planned.storage
        values = {name: array[0] for name, array in run_fixed(fixed, inputs).items()}
        layers = [one.layer for one in planned.layers]
        for layer in layers:  # copies that only storage knows
            for tensor in layer.outputs:
                if tensor not in values:
                    values[tensor] = values[layer.inputs[0]]
        slots = slots_by_tensor(program, storage)
        entries = tuple(LayerTensors(one.name, one.inputs, one.outputs) for one in layers)
        return Reference(fixed.inputs, entries, values, slots)

    def live(self, tensor: str) -> tuple[int, int]:
        """The layer that makes a tensor (-1: it is an input) and the last one that reads it (that
        behind the last layer for what nobody reads: it is an output). What no layer makes under
        its name lies where others do: the last of them that is made before it is read counts."""
        read = [n for n, one in enumerate(self.layers) if tensor in one.inputs]
        makes = [
            n
            for n, one in enumerate(self.layers)
            if tensor in one.outputs
            or (
                tensor not in self.inputs
                and read
                and n < read[0]
                and any(self._overlap(tensor, other) for other in one.outputs)
            )
        ]
        return max(makes, default=-1), max(read, default=len(self.layers))

    def _overlap(self, one: str, other: str) -> bool:
        a, b = self.slots[one], self.slots[other]
        return a.offset < b.offset + b.size_bytes and b.offset < a.offset + a.size_bytes


class Places:
    """Bytes of tensors in the activations, counted from the begin of that segment."""

    def __init__(self, program: Program, reference: Reference) -> None:
        self._reference = reference
        self.size_bytes = program.segments[Segment.ACTIVATIONS].size_bytes

    def mask(self, tensors: tuple[str, ...]) -> NDArray[np.bool_]:
        """Which bytes are of one of the tensors."""
        marked = np.zeros(self.size_bytes, np.uint8)
        for tensor in tensors:
            slot = self._reference.slots[tensor]
            slot.view(marked, slot.offset)[...] = -1
        return marked != 0

    def wanted(self, tensors: tuple[str, ...]) -> NDArray[np.uint8]:
        """What those bytes should be; zero elsewhere."""
        found = np.zeros(self.size_bytes, np.uint8)
        for tensor in tensors:
            slot, values = self._reference.slots[tensor], self._reference.values[tensor]
            view = slot.view(found, slot.offset)
            view[...] = values.reshape(view.shape)
        return found

    def element(self, tensor: str, byte: int) -> tuple[int, ...]:
        """Indices of the element that a byte of a tensor belongs to."""
        slot = self._reference.slots[tensor]
        number = (byte - slot.offset) // slot.stored_bytes
        if slot.planes:
            pixel, plane = divmod(number, slot.pitch)
            number = plane * (int(np.prod(slot.shape)) // slot.planes) + pixel
        return tuple(int(one) for one in np.unravel_index(number, slot.shape))

    def owner(self, byte: int, tensors: tuple[str, ...]) -> str | None:
        """Which of the tensors a byte belongs to."""
        return next((one for one in tensors if self.mask((one,))[byte]), None)
