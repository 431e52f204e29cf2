"""Stock TVM with all cores on every layer (fork and join), in a process of its own.

Run as ``python -m studies.pipeline.layer_parallel LIBRARY PINNING CORES``: answers a line
``FRAMES`` on stdin with a line of seconds on stdout, again and again; sleeps in between.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import IO

from studies.harness.processes import module_command, module_environment
from studies.pipeline.errors import BenchError

FREE, PINNED = "free", "pinned"
ONE_CORE_PER_THREAD = -2
"""TVM's thread pool mode in which thread n is bound to the n-th listed core."""


class LayerParallel:
    """A thread a core. ``pinning``: ``free`` as TVM does by itself, ``pinned`` each to its core."""

    def __init__(self, library: Path, cores: Sequence[int], pinning: str) -> None:
        self._what = f"stock TVM ({pinning})"
        self._process = subprocess.Popen(
            module_command(__name__, str(library), pinning, ",".join(map(str, cores))),
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1,
            env=module_environment(TVM_NUM_THREADS=str(len(cores))),
        )  # fmt: skip
        self._ask(1)

    def throughput(self, frames: int) -> float:
        """Frames a second, one after the other."""
        return frames / self._ask(frames)

    def _ask(self, frames: int) -> float:
        try:
            _stream(self._process.stdin).write(f"{frames}\n")
            answer = _stream(self._process.stdout).readline()
        except OSError:
            answer = ""
        if not answer:
            raise BenchError(f"{self._what} ended with exit code {self._process.wait()}")
        return float(answer)

    def close(self) -> None:
        _stream(self._process.stdin).close()
        self._process.wait()
        _stream(self._process.stdout).close()

    def __enter__(self) -> LayerParallel:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:  # fmt: skip
        self.close()


def _stream(stream: IO[str] | None) -> IO[str]:
    assert stream is not None
    return stream


def main(library: str, pinning: str, cores: str) -> None:
    import tvm
    from tvm.contrib import graph_executor

    os.sched_setaffinity(0, {int(core) for core in cores.split(",")})
    loaded = tvm.runtime.load_module(library)
    executor = graph_executor.GraphModule(loaded["default"](tvm.cpu()))
    if pinning == PINNED:
        configure = tvm.get_global_func("runtime.config_threadpool")
        configure(ONE_CORE_PER_THREAD, len(cores.split(",")), cores.split(","))
    executor.run()
    for line in sys.stdin:
        begin = time.perf_counter()
        for _ in range(int(line)):
            executor.run()
        print(time.perf_counter() - begin, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
