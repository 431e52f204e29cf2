"""Programs that would be too long to emit."""

from __future__ import annotations

import pytest

from tests.report.small_runs import network
from tvm_npu.codegen.compile import compile_graph
from tvm_npu.codegen.errors import CapacityError
from tvm_npu.codegen.passes.calibrate import calibrate
from tvm_npu.codegen.tiles.emit import length
from tvm_npu.sim.machine_file import load_machine


@pytest.mark.parametrize("name", ("setup-a", "zynq-7020"))
def test_a_program_without_end_names_memories(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    graph, samples = network()
    ranges = calibrate(graph, [{"x": samples, "y": samples[::-1]}])
    machine = load_machine(name)
    program = compile_graph(graph, ranges, machine)
    size = program.code.nbytes
    monkeypatch.setattr(length, "MOST_CODE_BYTES", size)
    assert compile_graph(graph, ranges, machine).code.nbytes == size
    monkeypatch.setattr(length, "MOST_CODE_BYTES", size // 2)
    wanted = f"layer '.*'.*machine '{name}' .*_bytes = .*{size // 8:,} instructions"
    with pytest.raises(CapacityError, match=wanted):
        compile_graph(graph, ranges, machine)
