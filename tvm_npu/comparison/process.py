"""Starts measuring processes, of this Python or of another one."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO

import tvm_npu
from tvm_npu.comparison.task import Measured, Task
from tvm_npu.errors import ComparisonError
from tvm_npu.sim.texts import cause
from tvm_npu.temporary import temporary_folder

MODULE = "tvm_npu.comparison.worker"


_OWN_ERROR = re.compile(r"^tvm_npu\.[\w.]+: ")


def measured(task: Task, python: str = sys.executable) -> Measured:
    """Raises ComparisonError with the last line of what the process said."""
    with temporary_folder("tvm-npu-compare-") as folder:
        asked, answer = folder / "task.json", folder / "result.json"
        asked.write_text(json.dumps(task.to_dict()), "utf-8")
        done = _run(["-m", MODULE, str(asked), str(answer)], task.threads, python, folder)
        if done.returncode or not answer.exists():
            raise ComparisonError(_reason(done))
        return Measured.from_json(answer.read_text("utf-8"))


def door_of(python: str) -> str:
    """The name of the door that ``python`` has. ComparisonError when it has none."""
    code = "from tvm_npu.door.find import door_name; print(door_name())"
    return _said(python, code)


def missing_from(python: str, runner: str) -> str | None:
    """What ``python`` has to install for ``runner``."""
    code = "from tvm_npu.comparison.runners import runner_called; import sys; "
    code += "print(runner_called(sys.argv[1]).missing() or '')"
    return _said(python, code, runner) or None


def _said(python: str, code: str, *arguments: str) -> str:
    """What ``code`` prints in ``python``. ComparisonError where it fails."""
    done = _run(["-c", code, *arguments], 1, python)
    if done.returncode:
        reason = _reason(done)
        if reason.startswith("ModuleNotFoundError"):
            reason += f". In the checkout, {python} -m pip install '.[relay]' or '.[relax]'"
        raise ComparisonError(f"{python!r}: {reason}")
    return done.stdout.strip()


def _run(
    arguments: list[str], threads: int, python: str, temporary: Path | None = None
) -> subprocess.CompletedProcess[str]:
    """A process of ``python``, which takes this package from here when this is a checkout, and its
    own otherwise; everything in it computes with ``threads``. However this ends, its group of
    processes does, too: tuners start more, which outlive an interrupt, and hold the files that it
    writes to. Their temporary files are in ``temporary``. ComparisonError when there is no such
    interpreter."""
    root = Path(tvm_npu.__file__).parents[1]
    environment = dict(os.environ)
    environment.pop("PYTHONPATH", None)
    if (root / "pyproject.toml").is_file():
        environment["PYTHONPATH"] = str(root)
    for name in ("TVM_NUM_THREADS", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        environment[name] = str(threads)
    environment.setdefault("TOPHUB_LOCATION", "NONE")
    if temporary is not None:
        environment["TMPDIR"] = str(temporary)
    command = [python, "-W", "ignore", *arguments]
    with _text_file(temporary) as out, _text_file(temporary) as said:
        try:
            process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=out, stderr=said, env=environment,
                start_new_session=True,
            )  # fmt: skip
        except OSError as error:
            raise ComparisonError(f"cannot run {python!r}: {cause(error)}") from error
        with process:  # its stdin is open as long as this process is there
            try:
                os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
            finally:  # until somebody waits for the process, its number is that of the group
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
        out.seek(0)
        said.seek(0)
        return subprocess.CompletedProcess(command, process.returncode, out.read(), said.read())


def _text_file(folder: Path | None) -> IO[str]:
    return TemporaryFile("w+", encoding="utf-8", errors="replace", dir=folder)


def _reason(done: subprocess.CompletedProcess[str]) -> str:
    if done.returncode < 0:
        return f"the process was ended by signal {-done.returncode}"
    lines = [line.strip() for line in done.stderr.splitlines() if line.strip()]
    errors = [line for line in lines if "Error" in line.split(":")[0]]
    last = (errors or lines or [f"exit code {done.returncode}"])[-1]
    return _OWN_ERROR.sub("", last)[:400]
