"""How a reproduction or benchmark ends as a command: its exit code, mistakes in one line."""

from __future__ import annotations

import sys
from collections.abc import Callable

from tvm_npu.cli.errors import CliError
from tvm_npu.reproduce.errors import ReproductionError

DONE, FAILED, INTERRUPTED = 0, 1, 130


def exit_code(name: str, run: Callable[[], None]) -> int:
    """The exit code of ``run``; what went wrong is on stderr, after ``name``."""
    try:
        run()
    except (ReproductionError, CliError) as error:
        print(f"{name}: error: {error}", file=sys.stderr)
        return FAILED
    except ModuleNotFoundError as error:
        if error.name not in ("tvm", "onnx"):
            raise
        print(f"{name}: error: this needs {error.name}: pip install '.[relay]'", file=sys.stderr)
        return FAILED
    except KeyboardInterrupt:
        print(f"{name}: interrupted", file=sys.stderr)
        return INTERRUPTED
    return DONE
