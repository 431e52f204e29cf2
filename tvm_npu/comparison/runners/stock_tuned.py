"""Stock TVM on this CPU, its schedules tuned by its own tuner for a number of trials."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

from tvm_npu.codegen.phases import phase
from tvm_npu.comparison.runners.stock import OnCpu, StockRunner
from tvm_npu.comparison.task import Task
from tvm_npu.door.find import door
from tvm_npu.door.onnx.model import read_model

NEEDED = ("xgboost", "psutil", "cloudpickle", "tornado")
"""What TVM's tuners import."""


class TunedRunner(StockRunner):
    """Trials that the log has are not tried again; ``compile_s`` holds the time of the others."""

    name = "stock-tuned"
    tunes = True

    def missing(self) -> str | None:
        absent = [name for name in NEEDED if not find_spec(name)]
        if absent:
            return f"{', '.join(absent)}: pip install '.[compare]'"
        return super().missing()

    def prepare(self, task: Task) -> None:
        # TVM looks for it once, when it is imported.
        import xgboost  # noqa: F401

        super().prepare(task)

    def build(self, task: Task) -> OnCpu:
        assert task.log is not None
        folder = Path(task.log)
        folder.mkdir(parents=True, exist_ok=True)
        with phase("stock TVM's tuner"):
            door().tune(read_model(task.model), task.shapes, task.threads, task.trials, folder)
        with phase("stock TVM"):
            model = read_model(task.model)
            return OnCpu(door().stock(model, task.shapes, task.threads, folder))


RUNNER = TunedRunner()
