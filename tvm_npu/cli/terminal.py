"""What the commands write to: tables on stdout, notes and progress on stderr."""

from __future__ import annotations

import errno
import os
import re
import sys
import threading
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tvm_npu.cli.shown import one_line, shown

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress

WIDTH_OF_A_FILE = 400
"""Columns when stdout is no terminal and COLUMNS is not set: every table fits unshortened."""
_EXTENT = re.compile("[1-9][0-9]{0,4}")
"""Of a terminal, in the environment; Rich takes all that Unicode calls digits for a number."""
PATIENCE_S = 5.0
"""Most simulations are done by then, unless numba has to compile the simulator."""
COMPILING = (
    "still simulating: the first simulation after an installation compiles the simulator, which "
    "takes about a minute"
)


@dataclass(frozen=True)
class Terminal:
    """``out`` for results, ``err`` for everything about the way there."""

    out: Console
    err: Console

    def note(self, text: str) -> None:
        self.err.print(f"note: {one_line(text)}", soft_wrap=True)

    def write_lines(self, lines: Iterable[str]) -> None:
        """Plain text in any amount to stdout: Rich lays out nothing of it, and keeps nothing."""
        self.out.file.writelines(f"{line}\n" for line in lines)

    def wrote(self, path: Path) -> None:
        """Says which file there is now, and its size."""
        from tvm_npu.report.page.numbers import data

        self.err.print(f"wrote {one_line(str(path))} ({data(path.stat().st_size)})", soft_wrap=True)

    @contextmanager
    def steps(self, total: int | None = None) -> Iterator[Steps]:
        """A progress bar while the block runs; nothing at all unless stderr is a terminal."""
        if not self.err.is_terminal:
            yield Steps(None, total)
            return
        from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

        columns = TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn()
        with Progress(*columns, console=self.err, transient=True) as progress:
            yield Steps(progress, total)

    @contextmanager
    def simulating(self) -> Iterator[None]:
        """A note when the block, a simulation, takes long; a terminal's progress bar says so."""
        with after(PATIENCE_S, lambda: None if self.err.is_terminal else self.note(COMPILING)):
            yield

    @contextmanager
    def warnings_as_notes(self, everybody: bool) -> Iterator[None]:
        """The project's warnings become notes, each text once; those of libraries show up only if
        asked for."""
        with warnings.catch_warnings():
            show = warnings.showwarning
            # The project's warnings say something about this model; none may be lost to "once".
            warnings.simplefilter("always")
            said: set[str] = set()

            def as_note(
                message: Warning | str, category: type[Warning], *rest: Any, **named: Any
            ) -> None:
                if category.__module__.split(".")[0] == "tvm_npu":
                    if str(message) not in said:
                        self.note(str(message))
                    said.add(str(message))
                elif everybody:
                    show(message, category, *rest, **named)

            warnings.showwarning = as_note
            yield


class Steps:
    """A bar with a known number of steps once `expect` has said it; without ``progress`` none."""

    def __init__(self, progress: Progress | None, total: int | None) -> None:
        self._progress = progress
        self._task = None if progress is None else progress.add_task("", total=total)

    def expect(self, total: int) -> None:
        self._update(total=total)

    def begin(self, text: str) -> None:
        self._update(description=shown(text), refresh=True)

    def done(self) -> None:
        self._update(advance=1)

    def reach(self, completed: int, total: int) -> None:
        self._update(completed=completed, total=total)

    def _update(self, **fields: Any) -> None:
        if self._progress is not None and self._task is not None:
            self._progress.update(self._task, **fields)


def open_terminal() -> Terminal:
    """Consoles on the process's streams. Names of layers are text, never markup, and steer no
    terminal."""
    from rich.console import Console

    class Escaping(Console):
        def print(self, *objects: Any, **options: Any) -> None:
            texts = (shown(one, "\n\t") if isinstance(one, str) else one for one in objects)
            super().print(*texts, **options)

        def on_broken_pipe(self) -> None:
            """Rich would end the process with exit code 1."""
            raise BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE))

    environment = {
        name: value
        for name, value in os.environ.items()
        if not name.endswith(("COLUMNS", "LINES")) or _EXTENT.fullmatch(value)
    }
    width = None
    if not sys.stdout.isatty() and "COLUMNS" not in environment:
        width = WIDTH_OF_A_FILE
    plain: dict[str, Any] = {
        "markup": False, "emoji": False, "highlight": False, "_environ": environment,
    }  # fmt: skip
    return Terminal(Escaping(width=width, **plain), Escaping(stderr=True, **plain))


@contextmanager
def after(seconds: float, action: Callable[[], object]) -> Iterator[None]:
    """Calls ``action``, in a thread of its own, once the block has run for ``seconds``."""
    timer = threading.Timer(seconds, action)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


