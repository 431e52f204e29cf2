"""onnxruntime on this CPU."""

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


@dataclass(frozen=True)
class InSession:
    """A model in an onnxruntime.InferenceSession."""

    session: Any

    def run(self, inputs: Sample) -> list[NDArray[Any]]:
        return list(self.session.run(None, dict(inputs)))

    def cost(self, inputs: Sample, repeats: int) -> Cost:
        return measured_cost(lambda: self.run(inputs), repeats)

    def library_bytes(self, folder: Path) -> None:
        return None

    def about(self) -> Mapping[str, Any]:
        return {}


class OnnxRuntime:
    """See `tvm_npu.comparison.protocol.Runner`."""

    name = "onnxruntime"
    has_machines = False
    has_door = False
    tunes = False

    def missing(self) -> str | None:
        return None if find_spec("onnxruntime") else "onnxruntime: pip install '.[compare]'"

    def prepare(self, task: Task) -> None:
        import onnxruntime  # noqa: F401

    def build(self, task: Task) -> InSession:
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = task.threads
        options.inter_op_num_threads = 1
        with phase("onnxruntime"):
            session = onnxruntime.InferenceSession(
                task.model, options, providers=["CPUExecutionProvider"]
            )
        return InSession(session)


RUNNER = OnnxRuntime()
