"""Stock TVM's own tuner under Relay: AutoTVM with the XGBoost cost model."""

from __future__ import annotations

from collections import defaultdict
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
    known = _measured(log)
    options = autotvm.measure_option(
        builder=autotvm.LocalBuilder(n_parallel=1),
        runner=autotvm.LocalRunner(number=1, repeat=3, min_repeat_ms=SMALLEST_RUN_MS),
    )
    for task, share in zip(tasks, _shares(trials, len(tasks)), strict=True):
        done = known[task.workload]
        missing = min(share, len(task.config_space)) - len(done)
        if missing <= 0:
            continue
        tuner = XGBTuner(task)
        if done:  # so that none of them is tried again; `load_history` would not see to that
            inputs = [autotvm.MeasureInput(task.target, task, config) for config, _ in done]
            tuner.update(inputs, [result for _, result in done])
        tuner.tune(
            n_trial=missing,
            measure_option=options,
            callbacks=[autotvm.callback.log_to_file(str(log))],
        )


def _shares(trials: int, tasks: int) -> list[int]:
    return [trials // tasks + (number < trials % tasks) for number in range(tasks)]


def _measured(log: Path) -> dict[Any, list[tuple[Any, Any]]]:
    """Configurations and what came of them, by workload."""
    found: dict[Any, list[tuple[Any, Any]]] = defaultdict(list)
    if log.exists():
        for entry, result in autotvm.record.load_from_file(str(log)):
            found[entry.task.workload].append((entry.config, result))
    return found
