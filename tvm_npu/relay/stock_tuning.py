"""Stock TVM's own tuner under Relay: AutoTVM with the XGBoost cost model."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tvm import autotvm
from tvm.autotvm.tuner import XGBTuner

from tvm_npu.relay.stock import read_stock

SMALLEST_RUN_MS = 50
"""How long a candidate is repeated for its time."""


def tune(
    model: Any, shapes: Mapping[str, tuple[int, ...]], target: str, trials: int, log: Path
) -> None:
    """Measures schedules of an onnx.ModelProto's tasks until ``log`` has ``trials`` of them, as
    evenly over the tasks as can be, failed ones included. Raises whatever TVM raises."""
    mod, params = read_stock(model, shapes)
    tasks = autotvm.task.extract_from_program(mod["main"], target=target, params=params)
    done = _measured(log)
    options = autotvm.measure_option(
        builder=autotvm.LocalBuilder(n_parallel=1),
        runner=autotvm.LocalRunner(number=1, repeat=3, min_repeat_ms=SMALLEST_RUN_MS),
    )
    for task, share in zip(tasks, _shares(trials, len(tasks)), strict=True):
        missing = min(share, len(task.config_space)) - done[task.workload]
        if missing <= 0:
            continue
        tuner = XGBTuner(task)
        if done[task.workload]:
            tuner.load_history(autotvm.record.load_from_file(str(log)))
        tuner.tune(
            n_trial=missing,
            measure_option=options,
            callbacks=[autotvm.callback.log_to_file(str(log))],
        )


def _shares(trials: int, tasks: int) -> list[int]:
    return [trials // tasks + (number < trials % tasks) for number in range(tasks)]


def _measured(log: Path) -> Counter[Any]:
    """Measurements by workload."""
    if not log.exists():
        return Counter()
    return Counter(entry.task.workload for entry, _ in autotvm.record.load_from_file(str(log)))
