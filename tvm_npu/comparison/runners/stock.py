"""Stock TVM on this CPU, as it comes: its own frontend, all optimisations on, nothing tuned."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from tvm_npu.calibration import Sample
from tvm_npu.codegen.phases import phase
from tvm_npu.comparison.task import Cost, Task
from tvm_npu.comparison.timing import measured_cost
from tvm_npu.door.find import door
from tvm_npu.door.onnx.model import read_model
from tvm_npu.door.protocol import Executable


@dataclass(frozen=True)
class OnCpu:
    """What a door has built, and no region in it."""

    executable: Executable

    def run(self, inputs: Sample) -> list[NDArray[Any]]:
        return self.executable.run(inputs)

    def cost(self, inputs: Sample, repeats: int) -> Cost:
        return measured_cost(lambda: self.run(inputs), repeats)

    def library_bytes(self, folder: Path) -> int:
        return exported_bytes(self.executable, folder)

    def about(self) -> Mapping[str, Any]:
        return {}


def exported_bytes(executable: Executable, folder: Path) -> int:
    """Size of the shared library that holds code and weights."""
    path = folder / "library.so"
    executable.library.export_library(str(path))
    return path.stat().st_size


def missing_tvm() -> str | None:
    """What to install where there is no TVM."""
    return None if find_spec("tvm") else "TVM: pip install '.[relay]' or '.[relax]'"


class StockRunner:
    """See `tvm_npu.comparison.protocol.Runner`."""

    name = "stock"
    has_machines = False
    has_door = True
    tunes = False

    def missing(self) -> str | None:
        return missing_tvm()

    def prepare(self, task: Task) -> None:
        door()

    def build(self, task: Task) -> OnCpu:
        with phase("stock TVM"):
            return OnCpu(door().stock(read_model(task.model), task.shapes, task.threads))


RUNNER = StockRunner()
