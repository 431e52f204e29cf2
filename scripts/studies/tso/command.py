"""How a reproduction or benchmark begins and ends as a command: files that it can write, its exit
code, mistakes in one line."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from studies.tso.drawing import check_plottable
from studies.tso.errors import ReproductionError
from tvm_npu.cli.errors import CliError
from tvm_npu.cli.files import check_writable

DONE, FAILED, INTERRUPTED = 0, 1, 130


def check_outputs(files: Sequence[Path | None], plot: Path | None) -> None:
    """CliError or ReproductionError, before the work, for ``files`` and a ``plot`` that could not
    be written after it; None is not asked for."""
    for path in (*files, plot):
        if path is not None:
            check_writable(path)
    if plot is not None:
        check_plottable(plot)


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
