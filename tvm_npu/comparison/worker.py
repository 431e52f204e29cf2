"""One measurement, in a process of its own: `python -m tvm_npu.comparison.worker TASK RESULT`."""

from __future__ import annotations

import hashlib
import json
import os
import resource
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from dataclasses import asdict
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np

from tvm_npu.codegen.phases import timed
from tvm_npu.comparison.inputs import read_samples, write_samples
from tvm_npu.comparison.memory import forget_peak, peak_resident_bytes, resident_bytes
from tvm_npu.comparison.runners import runner_called
from tvm_npu.comparison.task import Measured, Task
from tvm_npu.ending import end_process
from tvm_npu.sim.making_code import machine_code_cpu_seconds, machine_code_seconds

VERSIONS = ("xtc-tvm-python-bindings", "apache-tvm", "onnx", "onnxruntime", "numpy")


def measure(task: Task) -> Measured:
    """Builds and runs; writes the outputs for all samples to ``task.outputs``."""
    import onnx

    runner = runner_called(task.runner)
    runner.prepare(task)
    forget_peak()
    imports_rss = resident_bytes()
    made, made_cpu = machine_code_seconds(), machine_code_cpu_seconds()
    begin, begin_cpu = time.perf_counter(), _cpu_seconds()
    with timed() as phases:
        built = runner.build(task)
    made = machine_code_seconds() - made
    compile_s = time.perf_counter() - begin - made
    compile_cpu_s = _cpu_seconds() - begin_cpu - (machine_code_cpu_seconds() - made_cpu)
    compile_rss = peak_resident_bytes()
    samples = list(read_samples(Path(task.samples)))
    first = built.run(samples[0])
    cost = built.cost(samples[0], task.repeats)
    outputs = [first, *(built.run(sample) for sample in samples[1:])]
    write_samples(Path(task.outputs), (_named(one) for one in outputs))
    peak_rss = peak_resident_bytes()
    with tempfile.TemporaryDirectory(prefix="tvm-npu-compare-") as folder:
        library_bytes = built.library_bytes(Path(folder))
    return Measured(
        cost=cost,
        compile_s=compile_s,
        compile_cpu_s=compile_cpu_s,
        phases_s={name: round(seconds, 6) for name, seconds in phases.seconds.items()},
        machine_code_s=made,
        library_bytes=library_bytes,
        imports_rss_bytes=imports_rss,
        compile_rss_bytes=compile_rss,
        peak_rss_bytes=peak_rss,
        weight_bytes=_weight_bytes(onnx.load(task.model)),
        output_sha256=digest(first),
        versions=_versions(),
        **built.about(),
    )


def _cpu_seconds() -> float:
    """Of all threads, and of the processes that it started and that have ended."""
    kinds = (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    return sum(spent.ru_utime + spent.ru_stime for spent in map(resource.getrusage, kinds))


def _named(outputs: Sequence[Any]) -> dict[str, Any]:
    return {f"{number:04}": np.asarray(values) for number, values in enumerate(outputs)}


def digest(outputs: Sequence[Any]) -> str:
    """SHA-256 of shapes, types and bits."""
    found = hashlib.sha256()
    for values in map(np.ascontiguousarray, outputs):
        found.update(f"{values.shape} {values.dtype}".encode() + values.tobytes())
    return found.hexdigest()


def _weight_bytes(model: Any) -> int:
    """Of all initializers of numbers, as they lie in memory."""
    from onnx.helper import tensor_dtype_to_np_dtype

    size = 0
    for tensor in model.graph.initializer:
        item = tensor_dtype_to_np_dtype(tensor.data_type).itemsize
        size += item * int(np.prod(tensor.dims, dtype=np.int64))
    return size


def _versions() -> dict[str, str]:
    found = {}
    for name in VERSIONS:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found


def end_with_the_parent() -> None:
    """The parent holds the other end of stdin: when that is closed, by whatever, nobody waits for
    this group of processes any more."""

    def wait() -> None:
        while os.read(0, 1):
            pass
        os.killpg(0, signal.SIGKILL)

    threading.Thread(target=wait, name="parent", daemon=True).start()


def main(arguments: Sequence[str]) -> None:
    if os.getpgrp() == os.getpid():
        end_with_the_parent()
    task_file, result_file = map(Path, arguments)
    measured = measure(Task.from_json(task_file.read_text("utf-8")))
    result_file.write_text(json.dumps(asdict(measured), allow_nan=False), "utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
    end_process(0)
