"""Stock TVM's library of a model, compiled in a process of its own beside other work.

Run as ``python -m studies.pipeline.stock MODEL TARGET FILE``.
"""

from __future__ import annotations

import logging
import subprocess
import sys
from pathlib import Path

from studies.harness.processes import module_command, module_environment
from studies.pipeline.errors import BenchError


def start_stock(model: str, target: str, path: Path) -> subprocess.Popen[bytes]:
    """Begins to compile a model of `tvm_npu.models` into ``path``."""
    return subprocess.Popen(
        module_command(__name__, model, target, str(path)),
        stdin=subprocess.DEVNULL,
        env=module_environment(),
    )


def finish_stock(process: subprocess.Popen[bytes], model: str) -> None:
    """Waits for it. Raises BenchError when it failed."""
    if process.wait() != 0:
        raise BenchError(
            f"{model}: stock TVM's compilation ended with exit code {process.returncode}"
        )


def main(model: str, target: str, path: str) -> None:
    from tvm_npu.door.models import build_stock
    from tvm_npu.models import build

    logging.getLogger("autotvm").setLevel(logging.ERROR)
    build_stock(build(model), target).export_library(path)


if __name__ == "__main__":
    main(*sys.argv[1:])
