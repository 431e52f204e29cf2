"""Ctrl-C ends a command within a second, whatever runs.

Python hears a signal when it gets its turn. Passes of TVM and LLVM, and the compilation of machine
code, may keep it for minutes, and libraries may take an interrupt for an error of theirs. So a
thread that the signal itself wakes gives the command `PATIENCE_S` to end. Then it removes what the
process would remove at its end, such as temporary folders, and ends it.

Where TVM's C++ has called Python through ctypes, an interrupt would be lost, and TVM would go on
with a result that was never made, until it crashes. There the process is ended at once.
"""

from __future__ import annotations

import atexit
import os
import signal
import sys
import threading
from contextlib import suppress
from types import FrameType, TracebackType
from typing import Any

from tvm_npu.sim.interrupted import is_called_from_tvm

INTERRUPTED = 130
PATIENCE_S = 0.7
CLEANING_S = 0.2
"""How long removing may take."""


class Interrupts:
    """Around a command, in the main thread: SIGINT raises KeyboardInterrupt, and `seen` says so
    whatever becomes of that. Elsewhere, and where a shell has made SIGINT be ignored, nothing.
    ``to_the_end``: the process only ends afterwards, which nothing needs to interrupt."""

    def __init__(self, to_the_end: bool) -> None:
        self._to_the_end = to_the_end
        self.command = ""
        self.seen = False
        self._said = threading.Lock()
        self._before: Any = None
        self._hook: Any = None
        self._wakeup = -1
        self._gone = threading.Event()

    def __enter__(self) -> Interrupts:
        ignored = signal.getsignal(signal.SIGINT) is signal.SIG_IGN
        if threading.current_thread() is not threading.main_thread() or ignored:
            return self
        self._reads, self._writes = os.pipe()
        os.set_blocking(self._writes, False)
        threading.Thread(target=self._watch, name="interrupts", daemon=True).start()
        self._hook, sys.unraisablehook = sys.unraisablehook, self._unraisable
        self._wakeup = signal.set_wakeup_fd(self._writes, warn_on_full_buffer=False)
        self._before = signal.signal(signal.SIGINT, self._interrupt)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:  # fmt: skip
        if self._before is None:
            return
        if self.seen and self._to_the_end:  # nobody waits for libraries to take themselves down
            self._end()
        signal.signal(signal.SIGINT, signal.SIG_IGN if self._to_the_end else self._before)
        signal.set_wakeup_fd(self._wakeup)
        sys.unraisablehook = self._hook
        self._gone.set()
        os.close(self._writes)  # the thread ends

    def say(self) -> int:
        """One line, once; the exit code."""
        if self._said.acquire(blocking=False):
            name = f"tvm-npu {self.command}".rstrip()
            with suppress(OSError):  # who reads it may have left
                os.write(2, f"{name}: interrupted\n".encode())
        return INTERRUPTED

    def _interrupt(self, number: int, frame: FrameType | None) -> None:
        self.seen = True
        if is_called_from_tvm(frame):
            self._end()
        raise KeyboardInterrupt

    def _unraisable(self, problem: Any) -> None:
        """What a finalizer raises is told, but for an interrupt, which the thread sees to."""
        if not issubclass(problem.exc_type, KeyboardInterrupt):
            self._hook(problem)

    def _watch(self) -> None:
        while said := os.read(self._reads, 1):
            if said[0] == signal.SIGINT and not self._gone.wait(PATIENCE_S):
                self._end()
        os.close(self._reads)

    def _end(self) -> None:
        """Ends the process, with its children that hold on to it and its temporary files."""
        last = threading.Timer(CLEANING_S, os._exit, (INTERRUPTED,))
        last.daemon = True
        last.start()
        self.say()
        if sys.stderr.isatty():
            with suppress(OSError):
                os.write(2, b"\x1b[?25h")  # a progress bar hides the cursor
        atexit._run_exitfuncs()
        os._exit(INTERRUPTED)
