"""An engine in this process."""

from __future__ import annotations

from concurrent.futures import Executor, ThreadPoolExecutor
from pathlib import Path

from tvm_npu.sweep.engines import Shared


class Threads:
    """One worker, a thread of this process."""

    workers = 1

    def share(self, file: Path) -> Shared:
        return str(file)

    def executor(self) -> Executor:
        return ThreadPoolExecutor(1)

    def stop(self) -> None:
        pass
