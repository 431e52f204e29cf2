"""A study as a command: its options, its run from parts to files and tables, its exit code."""

from __future__ import annotations

import argparse
import importlib
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, is_dataclass
from pathlib import Path
from typing import Any, TypeVar

from studies.harness.drawing import FORMATS, check_plottable, format_of
from studies.harness.errors import StudyError
from studies.harness.parts import Work, compute, opened
from studies.harness.study import Study
from tvm_npu.cli.errors import CliError, UsageError
from tvm_npu.cli.files import check_writable, write_bytes, write_json
from tvm_npu.cli.terminal import open_terminal
from tvm_npu.codegen.errors import CodegenError
from tvm_npu.errors import NpuError
from tvm_npu.runtime.errors import RunError
from tvm_npu.sim.errors import SimError

DONE, FAILED, WRONG_USAGE, INTERRUPTED, TERMINATED = 0, 1, 2, 130, 143
EXIT_CODES = """\
exit codes: 0 done; 1 values are wrong, or a file cannot be written; 2 the command line is wrong;
            130 interrupted (with an output file, the same command goes on where it stopped)
"""
Result = TypeVar("Result")


def run_named(arguments: Sequence[str]) -> int:
    """``arguments``: the study's folder, then what its launcher was given."""
    folder, *rest = arguments
    study: Study[Any] = importlib.import_module(f"studies.{folder}.study").STUDY
    return main(study, rest)


def main(study: Study[Any], arguments: Sequence[str] | None = None) -> int:
    """The exit code; what went wrong is on stderr, after the study's name."""
    try:
        options = make_parser(study).parse_args(arguments)
        with _terminated_as_exit():
            run(study, options)
    except UsageError as error:
        return _told(study, str(error), WRONG_USAGE)
    except (StudyError, CliError, CodegenError, SimError, NpuError, RunError) as error:
        return _told(study, str(error), FAILED)
    except ModuleNotFoundError as error:
        if error.name not in ("tvm", "onnx"):
            raise
        return _told(study, f"this needs {error.name}: pip install '.[relay]'", FAILED)
    except KeyboardInterrupt as interrupt:
        left = interrupt.args[0] if interrupt.args else ""
        print(f"{study.name}: interrupted{left}", file=sys.stderr)
        return INTERRUPTED
    return DONE


def _told(study: Study[Any], message: str, code: int) -> int:
    print(f"{study.name}: error: {message}", file=sys.stderr)
    return code


def make_parser(study: Study[Any]) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=study.name,
        description=study.texts.description,
        epilog=f"{study.texts.epilog.rstrip()}\n\n{EXIT_CODES}".lstrip(),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    for file, text in study.texts.files.items():
        parser.add_argument(f"--{file}", type=Path, metavar="FILE", help=text)
    if study.draws:
        formats = ", ".join("." + one for one in FORMATS)
        parser.add_argument(
            "--plot", type=Path, metavar="FILE", help=f"draw it ({formats}); needs matplotlib"
        )
    parser.add_argument(
        "--restart", action="store_true",
        help="begin anew, also where an interrupted run with the same output file could go on",
    )  # fmt: skip
    parser.add_argument(
        "--verbose", action="store_true",
        help="tell each part that is done, and its seconds, on stderr (for logs of long runs)",
    )  # fmt: skip
    study.add_options(parser)
    return parser


def run(study: Study[Result], options: argparse.Namespace) -> None:
    """Raises StudyError, CliError and what the study's parts raise."""
    terminal = open_terminal()
    values = dict(vars(options))
    files: dict[str, Path | None] = {name: values.pop(name) for name in study.texts.files}
    plot: Path | None = values.pop("plot", None)
    restart: bool = values.pop("restart")
    tell = terminal.note if values.pop("verbose") else None
    outputs = [path for path in (*files.values(), plot) if path is not None]
    for path in outputs:
        check_writable(path)
    if plot is not None:
        check_plottable(plot)
    parts = study.parts(options)
    with opened(study, values, outputs, restart=restart) as work:
        if work.kept is not None and work.kept.values:
            terminal.note(
                f"going on from an interrupted run: {len(work.kept.values)} parts are done"
            )
        try:
            with terminal.steps(len(parts)) as steps:
                found = compute(parts, work, steps, tell)
        except KeyboardInterrupt as interrupt:
            raise KeyboardInterrupt(_left(work)) from interrupt
        result = study.collect(options, found)
        rows = study.rows(result)
        for name, file in files.items():
            if file is not None:
                write_json(file, [_plain(row) for row in rows[name]])
        if plot is not None:
            write_bytes(plot, study.draw(result, format_of(plot)))
        work.finished()
    study.show(terminal.out, result)
    study.check(result)


def _left(work: Work) -> str:
    if work.kept is None or not work.kept.values:
        return ""
    return f"; {len(work.kept.values)} parts are kept, the same command goes on from there"


def _plain(row: Any) -> Any:
    return asdict(row) if is_dataclass(row) and not isinstance(row, type) else row


@contextmanager
def _terminated_as_exit() -> Iterator[None]:
    """SIGTERM unwinds the stack, so that temporary files and processes go."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, lambda *_: sys.exit(TERMINATED))
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
