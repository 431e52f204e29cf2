"""Stock TVM's own tuner under Relax: MetaSchedule with the XGBoost cost model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

from tvm import relax
from tvm.ir.utils import derived_object
from tvm.s_tir import meta_schedule as ms

from tvm_npu.door.find import ANOTHER_FFI, of_the_crashing_ffi
from tvm_npu.errors import ComparisonError
from tvm_npu.relax.cpu_intrinsics import import_cpu_intrinsics
from tvm_npu.relax.stock import read_stock
from tvm_npu.sim.whole_files import write_whole

SMALLEST_RUN_MS = 50
"""How long a candidate is repeated for its time."""
TRIALS_AT_ONCE = 16
"""At most so many candidates of one task between two fits of the cost model."""
BUILD_LIMIT_S = 300.0
"""For a candidate: a new process imports TVM for it; on a busy computer that takes a minute."""
COUNT = "trials"
"""File of the log's folder: how many trials have been made, failed ones included."""


def tune(
    model: Any, shapes: Mapping[str, tuple[int, ...]], target: Any, trials: int, log: Path
) -> None:
    """Measures schedules of an onnx.ModelProto until the database in the folder ``log`` has seen
    ``trials`` of them; MetaSchedule says of which task. Raises whatever TVM raises, and
    ComparisonError beside an apache-tvm-ffi with which it would end the process."""
    ffi = metadata.version("apache-tvm-ffi")
    if of_the_crashing_ffi(ffi):
        raise ComparisonError(
            f"stock TVM cannot be tuned beside apache-tvm-ffi {ffi}, which ends the process where "
            f"TVM writes a type as JSON: pip install {ANOTHER_FFI}"
        )
    count = log / COUNT
    database = ms.database.JSONDatabase(work_dir=str(log))
    done = int(count.read_text()) if count.exists() else 0
    done = max(done, len(database.get_all_tuning_records()))
    if done >= trials:
        return
    import_cpu_intrinsics()
    with target:
        mod = relax.get_pipeline("zero")(read_stock(model, shapes))
    tasks = ms.relax_integration.extract_tasks(mod, target)
    counter = _Count(count, done)
    untried = _untried(tasks, database)
    if 0 < len(untried) < len(tasks):
        _tune_tasks(untried, trials - counter.done, TRIALS_AT_ONCE, log, database, counter)
    if counter.done < trials:
        _tune_tasks(tasks, trials - counter.done, None, log, database, counter)
    write_whole(count, str(trials).encode())


def at_once(trials: int, tasks: int) -> int:
    """Candidates of one task at a turn. MetaSchedule gives every task a turn, one after the other,
    before it looks who needs one: with larger turns the last tasks would have none."""
    return max(1, min(TRIALS_AT_ONCE, trials // tasks))


def _untried(tasks: Sequence[Any], database: Any) -> list[Any]:
    """Those without a measured candidate. MetaSchedule begins with the first task whenever it is
    called: one that is interrupted again and again would never come to the last."""
    tried = [record.workload for record in database.get_all_tuning_records()]

    def is_tried(mod: Any) -> bool:
        if not database.has_workload(mod):
            return False
        workload = database.commit_workload(mod)  # the one that is there
        return any(workload.same_as(one) for one in tried)

    return [task for task in tasks if not is_tried(task.dispatched[0])]


def _tune_tasks(
    tasks: Sequence[Any],
    trials: int,
    most_of_a_task: int | None,
    log: Path,
    database: Any,
    counter: _Count,
) -> None:
    contexts, weights = ms.relax_integration.extracted_tasks_to_tune_contexts(
        list(tasks), str(log), seed=0
    )
    ms.tune_tasks(
        tasks=contexts,
        task_weights=weights,
        work_dir=str(log),
        max_trials_global=trials,
        max_trials_per_task=most_of_a_task,
        num_trials_per_iter=at_once(trials, len(tasks)),
        builder=ms.builder.LocalBuilder(
            max_workers=1, timeout_sec=BUILD_LIMIT_S, initializer=import_cpu_intrinsics
        ),
        runner=ms.runner.LocalRunner(
            evaluator_config=ms.runner.EvaluatorConfig(
                number=1, repeat=3, min_repeat_ms=SMALLEST_RUN_MS
            )
        ),
        database=database,
        measure_callbacks=[*ms.MeasureCallback.create("default"), counter],
    )


@derived_object
class _Count(ms.measure_callback.PyMeasureCallback):
    """Writes how many trials have been made as soon as they are, for one that is interrupted."""

    def __init__(self, file: Path, done: int) -> None:
        super().__init__()
        self._file, self.done = file, done

    def apply(
        self,
        task_scheduler: Any,
        task_id: int,
        measure_candidates: Sequence[Any],
        builder_results: Sequence[Any],
        runner_results: Sequence[Any],
    ) -> None:
        self.done += len(measure_candidates)
        write_whole(self._file, str(self.done).encode())
