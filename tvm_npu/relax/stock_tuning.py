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
"""Candidates of one task between two fits of the cost model."""
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
    ms.relax_integration.tune_relax(
        mod,
        {},
        target,
        str(log),
        max_trials_global=trials - done,
        num_trials_per_iter=min(TRIALS_AT_ONCE, trials - done),
        builder=ms.builder.LocalBuilder(
            max_workers=1, timeout_sec=BUILD_LIMIT_S, initializer=import_cpu_intrinsics
        ),
        runner=ms.runner.LocalRunner(
            evaluator_config=ms.runner.EvaluatorConfig(
                number=1, repeat=3, min_repeat_ms=SMALLEST_RUN_MS
            )
        ),
        database=database,
        measure_callbacks=[*ms.MeasureCallback.create("default"), _Count(count, done)],
        seed=0,
    )
    write_whole(count, str(trials).encode())


@derived_object
class _Count(ms.measure_callback.PyMeasureCallback):
    """Writes how many trials have been made as soon as they are, for one that is interrupted."""

    def __init__(self, file: Path, done: int) -> None:
        super().__init__()
        self._file, self._done = file, done

    def apply(
        self,
        task_scheduler: Any,
        task_id: int,
        measure_candidates: Sequence[Any],
        builder_results: Sequence[Any],
        runner_results: Sequence[Any],
    ) -> None:
        self._done += len(measure_candidates)
        write_whole(self._file, str(self._done).encode())
