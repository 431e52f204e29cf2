"""A worker process with a limit of time a case; a case that ends it does not end the run."""

from __future__ import annotations

import json
import select
import subprocess

from studies.conformance.rows import CRASHED, LATE, Row
from studies.harness.processes import module_command, module_environment

START_S = 120.0
"""More time for the first case of a process: it imports TVM and compiles simulators."""


class Worker:
    """Started when first asked; ``limit_s`` seconds a case."""

    def __init__(self, limit_s: float) -> None:
        self.limit_s = limit_s
        self._process: subprocess.Popen[str] | None = None

    def run(self, name: str, group: str) -> Row:
        """CRASHED or LATE for a case that ended its process, or had to be ended with it."""
        limit = self.limit_s
        if self._process is None:
            limit += START_S
            self._process = subprocess.Popen(
                module_command("studies.conformance.worker"), stdin=subprocess.PIPE,
                stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, bufsize=1,
                env=module_environment(TOPHUB_LOCATION="NONE", TVM_NUM_THREADS="1"),
            )  # fmt: skip
        assert self._process.stdin is not None and self._process.stdout is not None
        try:
            self._process.stdin.write(name + "\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            pass
        ready, _, _ = select.select([self._process.stdout], [], [], limit)
        line = self._process.stdout.readline() if ready else ""
        if line:
            return Row(**json.loads(line))
        self.close()
        if not ready:
            return Row(name, group, LATE, LATE, reason=f"more than {limit:.0f} s")
        return Row(name, group, CRASHED, CRASHED, reason="the process died")

    def close(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None
