"""The tables of a program that every code generator fills alike: tensors, plans, sizes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import MISSING, asdict, fields
from typing import Any, Literal

import numpy as np

from tvm_npu.codegen.errors import CapacityError
from tvm_npu.codegen.graph import FixedGraph
from tvm_npu.codegen.graph.fixed import precision_of_width
from tvm_npu.codegen.passes.storage import ALIGNMENT_BYTES, Storage
from tvm_npu.codegen.program.format import Program, Segment, SegmentSize, TensorSlot
from tvm_npu.sim.description import MachineDescription
from tvm_npu.sim.machine_parts import Precision

Slots = tuple[TensorSlot, ...]
StoredBytes = Callable[[Precision], Literal[1, 2, 4]]
"""Of a machine: what an element of a precision takes in its memories."""


def tensor_slots(
    fixed: FixedGraph, storage: Storage, stored_bytes: StoredBytes
) -> tuple[Slots, Slots, Slots]:
    """Inputs, outputs, and the tensors between them (states: `state_slots`)."""

    def slot(name: str, tensor: str) -> TensorSlot:
        precision = precision_of_width(storage.widths[tensor])
        return TensorSlot(
            name, tuple(fixed.shapes.get(name, storage.shapes[tensor])),
            fixed.scales[_original(fixed, storage, tensor)], precision,
            Segment.ACTIVATIONS, storage.offsets[tensor], stored_bytes(precision),
            *_form(storage, tensor),
        )  # fmt: skip

    shown = {*fixed.inputs, *storage.outputs}
    rest = [tensor for tensor in storage.offsets if tensor not in shown]
    return (
        tuple(slot(name, name) for name in fixed.inputs),
        tuple(slot(*pair) for pair in zip(fixed.outputs, storage.outputs, strict=True)),
        tuple(slot(tensor, tensor) for tensor in rest),
    )


def slots_by_tensor(program: Program, storage: Storage) -> dict[str, TensorSlot]:
    """Where a program of ``storage`` has its tensors, by the names that layers know."""
    slots = {slot.name: slot for slot in (*program.inputs, *program.intermediates)}
    return slots | dict(zip(storage.outputs, program.outputs, strict=True))


def state_slots(fixed: FixedGraph, storage: Storage, stored_bytes: StoredBytes) -> Slots:
    """What layers keep from step to step."""
    return tuple(
        TensorSlot(
            state, tuple(fixed.shapes[state]), fixed.scales[state], fixed.precision,
            Segment.STATES, offset, stored_bytes(fixed.precision),
            *_form(storage, state),
        )
        for state, offset in storage.state_offsets.items()
    )  # fmt: skip


def _form(storage: Storage, tensor: str) -> tuple[int, int]:
    """(planes, pitch) of a tensor whose channels are inside; (0, 0) of another."""
    form = storage.forms.get(tensor)
    return (0, 0) if form is None else (form.planes, form.pitch)


def segment_sizes(
    code_bytes: int,
    constant_bytes: int,
    activation_bytes: int,
    state_bytes: int = 0,
    alignment_bytes: int = ALIGNMENT_BYTES,
) -> dict[Segment, SegmentSize]:
    """Aligned segments; one without states takes no room at all."""
    sizes = (code_bytes, constant_bytes, activation_bytes, state_bytes)
    return {
        segment: SegmentSize(size, 1 if segment is Segment.STATES and not size else alignment_bytes)
        for segment, size in zip(Segment, sizes, strict=True)
    }


def _original(fixed: FixedGraph, storage: Storage, tensor: str) -> str:
    """The tensor of the graph that ``tensor`` is, or is a copy of."""
    while tensor not in fixed.scales:
        tensor = next(layer.inputs[0] for layer in storage.layers if tensor in layer.outputs)
    return tensor


def choices(plan: Any) -> dict[str, object]:
    """What a plan (a dataclass) chooses, defaults of optional choices left out."""
    return {
        field.name: getattr(plan, field.name)
        for field in fields(plan)
        if field.name not in ("prediction", "cycles", "planner")
        and (field.default is MISSING or getattr(plan, field.name) != field.default)
    }


def plain(plan: Any) -> dict[str, Any]:
    """A plan (a dataclass) as values that can be written as JSON."""
    result: dict[str, Any] = _plain(asdict(plan))
    return result


def _plain(value: Any) -> Any:
    """Numbers of array libraries as plain ones, tuples as lists."""
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, tuple | list):
        return [_plain(item) for item in value]
    return value.item() if isinstance(value, np.generic) else value


def check_capacity(program: Program, machine: MachineDescription) -> None:
    """CapacityError when the machine's DRAM does not hold the program."""
    capacity = machine.dram.capacity_bytes
    if program.size_bytes > capacity:
        raise CapacityError(
            f"program {program.name!r} needs {program.size_bytes} bytes of DRAM; machine "
            f"{machine.name!r} has dram.capacity_bytes = {capacity}",
            program.size_bytes,
            capacity,
        )
