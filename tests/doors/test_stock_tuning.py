"""Stock TVM's own tuner, through the door of the installed TVM: real trials, a log that is kept."""

from __future__ import annotations

import logging
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

tvm = pytest.importorskip("tvm", reason="neither the relay nor the relax extra is installed")
for needed in ("onnxruntime", "xgboost", "psutil", "cloudpickle", "tornado"):
    pytest.importorskip(needed)
from onnx import TensorProto, helper, numpy_helper  # noqa: E402

from tvm_npu.comparison import compare  # noqa: E402
from tvm_npu.door.find import door_name  # noqa: E402

TRIALS = 2
LOGS = ("autotvm.log", "database_tuning_record.json")
"""A line a trial."""


def product() -> Any:
    weights = np.random.default_rng(0).normal(size=(16, 8)).astype(np.float32)
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["y"])], "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 16])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 8])],
        [numpy_helper.from_array(weights, "w")],
    )  # fmt: skip
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)


def test_trials_are_made_once(tmp_path: Path) -> None:
    model, log = product(), tmp_path / "log"

    def tuned() -> Any:
        _, row = compare(
            model, runners=["onnxruntime", "stock-tuned"], trials=TRIALS, tuning_log=log,
            threads=1, repeats=2,
        ).rows  # fmt: skip
        return row

    first = tuned()
    assert (first.error, first.door, first.trials) == (None, door_name(), TRIALS)
    assert first.sqnr_db is None or first.sqnr_db > 100  # None: the very bits of the reference
    (kept,) = [path for path in log.rglob("*") if path.name in LOGS]
    lines = kept.read_bytes()
    assert lines.count(b"\n") >= TRIALS
    assert tuned().error is None
    assert kept.read_bytes() == lines


@pytest.mark.skipif(door_name() != "relax", reason="MetaSchedule is Relax's")
def test_an_interrupted_tuner_knows_how_many_trials_it_has_made(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Failed ones too, which are in no database."""
    from tvm.ir.utils import derived_object
    from tvm.s_tir import meta_schedule as ms

    from tvm_npu.relax import stock_tuning

    @derived_object
    class Break(ms.measure_callback.PyMeasureCallback):
        def apply(self, *_: Any) -> None:
            raise RuntimeError("pulled the plug")

    @derived_object
    class NoBuilder(ms.builder.PyBuilder):
        def build(self, build_inputs: Any) -> Any:
            return [ms.builder.BuilderResult(None, "no") for _ in build_inputs]

    def broken(*args: Any, measure_callbacks: Any, **options: Any) -> None:
        options["builder"] = NoBuilder()
        tune(*args, measure_callbacks=[*measure_callbacks, Break()], **options)

    tune = ms.tune_tasks
    monkeypatch.setattr(ms, "tune_tasks", broken)
    target = tvm.target.Target({"kind": "llvm", "num-cores": 1})
    for trials in (2, 3):
        with pytest.raises(RuntimeError, match="pulled the plug"):
            stock_tuning.tune(product(), {}, target, trials, tmp_path)
        assert (tmp_path / stock_tuning.COUNT).read_text() == str(trials)


@pytest.mark.skipif(door_name() != "relax", reason="MetaSchedule is Relax's")
def test_a_tuner_that_goes_on_begins_with_tasks_not_tried(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from tvm.s_tir import meta_schedule as ms

    from tvm_npu.relax import stock_tuning

    begun: list[tuple[list[str], int]] = []

    def tune(tasks: Any, trials: int, _: Any, log: Path, database: Any, counter: Any) -> None:
        """One measured candidate of the first task."""
        begun.append(([one.task_name for one in tasks], trials))
        mod = tasks[0].dispatched[0]
        record = ms.database.TuningRecord(
            tvm.s_tir.Schedule(mod).trace, database.commit_workload(mod), [1.0], target,
            ms.arg_info.ArgInfo.from_entry_func(mod),
        )  # fmt: skip
        database.commit_tuning_record(record)
        counter.done += 1

    target = tvm.target.Target({"kind": "llvm", "num-cores": 1})
    model = product()
    model.graph.node[0].output[0] = "h"
    model.graph.node.append(helper.make_node("Softmax", ["h"], ["y"]))
    monkeypatch.setattr(stock_tuning, "_tune_tasks", tune)
    for trials in (1, 3):
        stock_tuning.tune(model, {}, target, trials, tmp_path)
    (every, _), *later = begun
    assert len(every) > 1 and later == [(every[1:], 2), (every, 1)]


@pytest.mark.skipif(door_name() != "relax", reason="MetaSchedule is Relax's")
def test_few_trials_are_shared_by_all_tasks(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """By MetaSchedule's own scheduler; builds fail, which takes no time."""
    from tvm.ir.utils import derived_object
    from tvm.s_tir import meta_schedule as ms

    from tvm_npu.relax import stock_tuning

    turns: list[tuple[int, int]] = []

    @derived_object
    class Note(ms.measure_callback.PyMeasureCallback):
        def apply(self, scheduler: Any, task: int, candidates: Any, *_: Any) -> None:
            turns.append((task, len(candidates)))

    @derived_object
    class NoBuilder(ms.builder.PyBuilder):
        def build(self, build_inputs: Any) -> Any:
            return [ms.builder.BuilderResult(None, "no") for _ in build_inputs]

    tasks = 0

    def noted(*args: Any, measure_callbacks: Any, **options: Any) -> None:
        nonlocal tasks
        tasks = len(options["tasks"])
        options["builder"] = NoBuilder()
        tune(*args, measure_callbacks=[*measure_callbacks, Note()], **options)

    tune = ms.tune_tasks
    monkeypatch.setattr(ms, "tune_tasks", noted)
    # pytest's own handler, which gets there by the second test, has no name: TVM wants one.
    monkeypatch.setattr(logging.getLogger("tvm.s_tir.meta_schedule"), "handlers", [])
    model = product()
    model.graph.node[0].output[0] = "h"
    model.graph.node.append(helper.make_node("Softmax", ["h"], ["y"]))
    target = tvm.target.Target({"kind": "llvm", "num-cores": 1})
    stock_tuning.tune(model, {}, target, 5, tmp_path)
    assert tasks > 1 and {task for task, _ in turns} == set(range(tasks))
    assert 5 <= sum(count for _, count in turns) < 5 + stock_tuning.at_once(5, tasks)
    for trials, share in ((1, 1), (tasks, 1), (7 * tasks, 7), (100 * tasks, 16)):
        assert stock_tuning.at_once(trials, tasks) == share


@pytest.mark.skipif(door_name() != "relay", reason="AutoTVM is Relay's")
def test_a_tuner_that_goes_on_tries_nothing_twice(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """All configurations but one are in the log: that one is left to try."""
    from tvm import autotvm

    from tvm_npu.relay import stock_tuning

    model, log = product(), tmp_path / "log"
    mod, params = stock_tuning.read_stock(model, {})
    tasks = autotvm.task.extract_from_program(mod["main"], target="llvm", params=params)
    task = min(tasks, key=lambda one: len(one.config_space))
    size, last = len(task.config_space), len(task.config_space) - 1
    result = autotvm.MeasureResult([1e-3], 0, 0.1, 0.0)
    with log.open("w") as file:
        for index in range(last):
            entry = autotvm.MeasureInput(task.target, task, task.config_space.get(index))
            file.write(autotvm.record.encode(entry, result) + "\n")
    tried: list[int] = []

    def tune(tuner: Any, n_trial: int, **_: Any) -> None:
        tried.extend(config.index for config in tuner.next_batch(n_trial))

    monkeypatch.setattr(stock_tuning.XGBTuner, "tune", tune)
    monkeypatch.setattr(autotvm.task, "extract_from_program", lambda *_, **__: [task])
    stock_tuning.tune(model, {}, "llvm", size, log)
    assert tried == [last]


def test_intrinsics_of_other_devices_are_left_out_and_stay_importable() -> None:
    """In a process of its own: whoever has imported them keeps them."""
    if door_name() != "relax":
        pytest.skip("MetaSchedule's import, of today's TVM")
    program = """
import importlib.util, sys
import tvm
from tvm_npu.relax import cpu_intrinsics as ours
ours.import_cpu_intrinsics()
ours.import_cpu_intrinsics()
package = sys.modules[ours.PACKAGE]
from tvm.s_tir import TensorIntrin
assert TensorIntrin.get("dot_16x4_vnni") is not None
for name in ours.OF_OTHER_DEVICES:
    assert f"{ours.PACKAGE}.{name}" not in sys.modules and not hasattr(package, name), name
    assert importlib.util.find_spec(f"{ours.PACKAGE}.{name}") is not None, name
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
