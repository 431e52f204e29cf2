"""Bytes of activations in use, against a slow count of every byte of every tensor."""

from __future__ import annotations

import numpy as np
import pytest

from tests.runtime.networks import machine, network
from tvm_npu.codegen.compile import fixed_graph, generate_quantized
from tvm_npu.codegen.passes.calibrate import calibrate
from tvm_npu.codegen.program.format import Segment
from tvm_npu.codegen.program.tables import slots_by_tensor
from tvm_npu.report.dram import live_bytes
from tvm_npu.sim.machine_file import load_machine


@pytest.mark.parametrize("name", ("nmp", "setup-a", "zynq-7020", "snowflake-1cc"))
def test_bytes_are_live_from_their_write_to_their_last_read(name: str) -> None:
    where = machine() if name == "nmp" else load_machine(name)
    graph, samples = network()
    ranges = calibrate(graph, [{"x": samples, "y": samples[::-1]}])
    generated = generate_quantized(fixed_graph(graph, ranges, where), where)
    program, planned = generated.program(), generated.planned
    found = live_bytes(planned, program)
    slots, layers = slots_by_tensor(program, planned.storage), [one.layer for one in planned.layers]

    def bytes_of(tensors: object) -> set[int]:
        spans = [(slots[t].offset, slots[t].size_bytes) for t in tensors]  # type: ignore[attr-defined]
        return {byte for begin, size in spans for byte in range(begin, begin + size)}

    writes = [bytes_of(layer.outputs) for layer in layers]
    reads = [bytes_of(layer.inputs) for layer in layers] + [bytes_of(planned.storage.outputs)]
    size = program.segments[Segment.ACTIVATIONS].size_bytes
    assert len(found) == len(layers) and max(found) <= size
    for number, live in enumerate(found):
        exact = set(writes[number])
        for byte in set().union(*reads[number:]):
            until = min(k for k in range(number, len(reads)) if byte in reads[k])
            if not any(byte in writes[k] for k in range(number, until)):
                exact.add(byte)
        # Every tensor begins at a multiple of 128 bytes: only its last piece is not full.
        assert len(exact) <= live <= len(exact) + 128 * len(slots)
    assert len(set(found)) > 1 and np.argmax(found) < len(found) - 1
