"""The measurements of one model: each a process of the Python that has the door."""

from __future__ import annotations

import shutil
import time
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from studies.harness.study import Bench
from studies.shared.bench_models import cases, image_input
from tvm_npu.comparison.compare import row_of
from tvm_npu.comparison.judge import judge, read_outputs
from tvm_npu.comparison.prepare import Asked, prepared
from tvm_npu.sim.description import MachineDescription

Figures = dict[str, Any]
REFERENCE = "reference.npz"
"""The first answers for a model, in its folder: what all others are compared with."""


@dataclass(frozen=True)
class Place:
    """A door and the interpreter that has its TVM; ``door`` "" where none is needed."""

    door: str
    python: str


@dataclass(frozen=True)
class Setting:
    """What one row is of. ``machine`` and ``precision`` are the NPU's."""

    model: str
    place: Place
    runner: str
    machine: MachineDescription | None = None
    trials: int = 0

    @property
    def key(self) -> tuple[str, ...]:
        machine = (self.machine.name,) if self.machine else ()
        return (self.model, self.runner, *filter(None, (self.place.door,)), *machine)


def measure(setting: Setting, threads: int, repeats: int, logs: Path, bench: Bench) -> Figures:
    """One row. The tuner's log lies in ``logs``, which outlives the run. ``whole_s`` is what the
    measurement took in all: imports, compilation, inferences."""
    folder = bench.scratch / setting.model
    asked = _asked(setting.model, folder, threads, repeats)
    task = replace(asked.task, runner=setting.runner)
    if setting.machine is not None:
        machine = setting.machine
        task = replace(
            task, machine=machine.model_dump(), precision=machine.default_precision,
            planner="exact",
        )  # fmt: skip
    if setting.trials:
        log = logs / f"{asked.digest}-{setting.place.door}"
        task = replace(task, trials=setting.trials, log=str(log.absolute()))
    begin = time.perf_counter()
    row, outputs = row_of(task, setting.place.door, setting.place.python)
    whole_s = round(time.perf_counter() - begin, 3)
    reference = folder / REFERENCE
    if outputs is not None and not reference.exists():
        shutil.copy(task.outputs, reference)
    elif outputs is not None:
        row = replace(row, **asdict(judge(outputs, read_outputs(reference), None)))
    return {"model": setting.model, **row.to_dict(), "whole_s": whole_s}


@lru_cache(maxsize=1)
def _asked(model: str, folder: Path, threads: int, repeats: int) -> Asked:
    """Files of the model with one image and its calibration data, written once for all of its
    measurements in a run."""
    case = cases()[model]
    folder.mkdir(exist_ok=True)
    inputs, proto = case.inputs(), case.model()
    return prepared(
        folder, proto, inputs.images[:1], {image_input(proto).name: inputs.calibration},
        {}, threads, repeats,
    )  # fmt: skip
