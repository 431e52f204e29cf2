"""How many bytes of activations are in use while each layer runs, from where its tensors lie."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from tvm_npu.codegen.backend import PlannedGraph
from tvm_npu.codegen.passes.storage import ALIGNMENT_BYTES
from tvm_npu.codegen.program.format import Program, Segment, TensorSlot
from tvm_npu.codegen.program.tables import slots_by_tensor


def live_bytes(planned: PlannedGraph, program: Program) -> tuple[int, ...]:
    """For each layer of a program of ``planned``: bytes that it writes, or that hold what it or a
    layer behind it reads, or an output. Of one image, in steps of `ALIGNMENT_BYTES`."""
    slots = slots_by_tensor(program, planned.storage)
    size = program.share_bytes(Segment.ACTIVATIONS)
    needed = np.zeros(-(-size // ALIGNMENT_BYTES), np.bool_)
    _mark(needed, (slots[tensor] for tensor in planned.storage.outputs))
    found = []
    for one in reversed(planned.layers):
        outputs = [slots[tensor] for tensor in one.layer.outputs]
        live = needed.copy()
        _mark(live, outputs)
        for slot in outputs:  # what lies in its first and last piece may be another tensor's
            begin, end = -(-slot.offset // ALIGNMENT_BYTES), slot.offset + slot.size_bytes
            needed[begin : end // ALIGNMENT_BYTES] = False
        inputs = [slots[tensor] for tensor in one.layer.inputs]
        _mark(live, inputs)
        _mark(needed, inputs)
        found.append(ALIGNMENT_BYTES * int(live.sum()))
    return tuple(reversed(found))


def _mark(pieces: NDArray[np.bool_], slots: Iterable[TensorSlot]) -> None:
    for slot in slots:
        end = slot.offset + slot.size_bytes
        pieces[slot.offset // ALIGNMENT_BYTES : -(-end // ALIGNMENT_BYTES)] = True
