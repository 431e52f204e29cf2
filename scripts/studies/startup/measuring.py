"""CPU time of processes of their own."""

from __future__ import annotations

import os
import resource
import statistics
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from studies.harness.errors import StudyError
from tvm_npu.cli import main as command

MODEL = Path(command.__code__.co_filename).parents[1] / "models" / "data" / "digits_lenet.onnx"

QUICK = {
    "--help": ["--help"],
    "machines": ["machines"],
    "planners": ["planners"],
    "a mistyped argument": ["profile", "--mistyped"],
}
NO_BYTECODE = "PYTHONDONTWRITEBYTECODE"
PROFILE = ["profile", str(MODEL)]


@dataclass(frozen=True)
class Row:
    """``limit_cpu_s`` is what the project allows itself, on an idle computer."""

    what: str
    runs: int
    median_cpu_s: float
    least_cpu_s: float
    limit_cpu_s: float


def measure(what: str, arguments: list[str], runs: int, limit_s: float, cache: Path | None) -> Row:
    """User and system time of ``tvm-npu`` with ``arguments`` and of its children. ``cache``: an
    empty folder for the machine code of the only run; without one, a run before fills caches."""
    if cache is None:
        cpu_s(arguments, None)
    times = [cpu_s(arguments, cache) for _ in range(runs if cache is None else 1)]
    return Row(what, len(times), statistics.median(times), min(times), limit_s)


def cpu_s(arguments: list[str], cache: Path | None) -> float:
    """Of one process, which keeps Python's bytecode on disk, as it does unless it is told not to.
    Raises StudyError when it fails otherwise than by a wrong command line."""
    environment = {key: text for key, text in os.environ.items() if key != NO_BYTECODE}
    if cache is not None:
        environment["NUMBA_CACHE_DIR"] = str(cache)
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(
        [sys.executable, "-m", "tvm_npu.cli", *arguments],
        env=environment, capture_output=True, text=True,
    )  # fmt: skip
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode not in (0, 2):
        last = done.stderr.strip().rpartition("\n")[2]
        raise StudyError(f"tvm-npu {' '.join(arguments)}: exit code {done.returncode}: {last}")
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
