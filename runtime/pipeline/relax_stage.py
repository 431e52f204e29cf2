"""A library for Relax's virtual machine as a stage, regions on an NPU included."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tvm_npu.runtime.lean_tvm import import_tvm
from tvm_npu.runtime.pipeline.artifact import StageArtifact
from tvm_npu.runtime.pipeline.stage import Tensors
from tvm_npu.runtime.pipeline.tvm_stage import TvmStage, library_of


class MachineExecutor:
    """The function ``main`` of a library."""

    def __init__(self, machine: Any, tensor: Any) -> None:
        self._main = machine["main"]
        self._tensor = tensor
        count = machine.module["get_function_arity"]("main")
        name_of = machine.module["get_function_param_name"]
        self.inputs = tuple(str(name_of("main", number)) for number in range(count))

    def run(self, inputs: Tensors) -> Sequence[Any]:
        result = self._main(*(self._tensor(inputs[name]) for name in self.inputs))
        return [result] if hasattr(result, "numpy") else list(result)


def load(artifact: StageArtifact) -> TvmStage:
    """Runs one frame of zeros, as `tvm_stage.load` does."""
    tvm = import_tvm()
    from tvm.runtime.vm import VirtualMachine

    machine = VirtualMachine(library_of(artifact), tvm.cpu())
    return TvmStage.ready(artifact, MachineExecutor(machine, tvm.runtime.tensor))
