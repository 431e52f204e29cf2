"""Starts measuring processes, of this Python or of another one."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import tvm_npu
from tvm_npu.comparison.task import Measured, Task
from tvm_npu.errors import ComparisonError
from tvm_npu.temporary import temporary_folder

MODULE = "tvm_npu.comparison.worker"


def measured(task: Task, python: str = sys.executable) -> Measured:
    """Raises ComparisonError with the last line of what the process said."""
    with temporary_folder("tvm-npu-compare-") as folder:
        asked, answer = folder / "task.json", folder / "result.json"
        asked.write_text(json.dumps(task.to_dict()), "utf-8")
        done = _run(["-m", MODULE, str(asked), str(answer)], task.threads, python)
        if done.returncode or not answer.exists():
            raise ComparisonError(_reason(done))
        return Measured.from_json(answer.read_text("utf-8"))


def door_of(python: str) -> str:
    """The name of the door that ``python`` has. ComparisonError when it has none."""
    code = "from tvm_npu.door.find import door_name; print(door_name())"
    done = _run(["-c", code], 1, python)
    if done.returncode:
        raise ComparisonError(f"{python!r}: {_reason(done)}")
    return done.stdout.strip()


def _run(arguments: list[str], threads: int, python: str) -> subprocess.CompletedProcess[str]:
    """A process of ``python``, which takes this package from here when this is a checkout, and its
    own otherwise; everything in it computes with ``threads``. ComparisonError when there is no such
    interpreter."""
    root = Path(tvm_npu.__file__).parents[1]
    environment = dict(os.environ)
    environment.pop("PYTHONPATH", None)
    if (root / "pyproject.toml").is_file():
        environment["PYTHONPATH"] = str(root)
    for name in ("TVM_NUM_THREADS", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        environment[name] = str(threads)
    environment.setdefault("TOPHUB_LOCATION", "NONE")
    command = [python, "-W", "ignore", *arguments]
    try:
        return subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False,
            env=environment,
        )  # fmt: skip
    except OSError as error:
        raise ComparisonError(f"cannot run {python!r}: {error.strerror or error}") from error


def _reason(done: subprocess.CompletedProcess[str]) -> str:
    if done.returncode < 0:
        return f"the process was ended by signal {-done.returncode}"
    lines = [line.strip() for line in done.stderr.splitlines() if line.strip()]
    errors = [line for line in lines if "Error" in line.split(":")[0]]
    last = (errors or lines or [f"exit code {done.returncode}"])[-1]
    return last[:400]
