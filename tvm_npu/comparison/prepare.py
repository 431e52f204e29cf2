"""A model and its samples as files that measuring processes read."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tvm_npu.calibration import Sample, images_of_run, samples_from, synthetic
from tvm_npu.comparison.inputs import onnx_inputs, write_samples
from tvm_npu.comparison.task import Task
from tvm_npu.door.given_inputs import given_shapes
from tvm_npu.door.onnx.model import load_model
from tvm_npu.sim.limits import DEFAULT, Limits


@dataclass(frozen=True)
class Asked:
    """A task without a runner, and what it is about."""

    task: Task
    digest: str
    images: int


def prepared(
    folder: Path,
    model: Any,
    images: Any,
    calibration: Any,
    shapes: Mapping[str, tuple[int, ...]] | None,
    threads: int,
    repeats: int,
    limits: Limits = DEFAULT,
) -> Asked:
    """Model and samples as files in ``folder``. ``model`` is a path or an onnx.ModelProto; for
    the rest see `tvm_npu.compare`. Raises CliError, CalibrationError and
    PartitionError."""
    from tvm_npu.cli.onnx_file import input_shapes, read_onnx

    proto = load_model(read_onnx(Path(model)) if isinstance(model, str | Path) else model)
    known, _ = input_shapes(proto, given_shapes(shapes))
    inputs = onnx_inputs(proto, known)
    content = proto.SerializeToString()
    path = folder / "model.onnx"
    path.write_bytes(content)
    samples: list[Sample] = list(
        synthetic(inputs, seed=0, count=1) if images is None else samples_from(images, inputs)
    )
    write_samples(folder / "samples.npz", samples)
    ranges = images if calibration is None else calibration
    if ranges is not None:
        write_samples(folder / "calibration.npz", samples_from(ranges, inputs))
    each = images_of_run(inputs)
    task = Task(
        runner="",
        model=str(path),
        shapes=known,
        samples=str(folder / "samples.npz"),
        outputs=str(folder / "outputs.npz"),
        calibration=None if ranges is None else str(folder / "calibration.npz"),
        images=each,
        threads=threads,
        repeats=repeats,
        limits=limits,
    )
    digest = hashlib.sha256(content).hexdigest()[:12]
    return Asked(task, digest, each * len(samples))
