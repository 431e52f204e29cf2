"""Ctrl-C in Python that TVM has called.

TVM 0.19's callbacks hand on `Exception` alone: after another interrupt TVM goes on with a result
that was never made, until it crashes.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

CALLBACK = ("cfun", "tvm", "_ffi", "_ctypes", "packed_func.py")
"""The function that TVM 0.19 calls Python by, and its file."""
_AGAIN_S = 0.001
_coming = threading.Event()
"""An interrupt comes again, `_AGAIN_S` after one that would have been lost."""


class Interrupted(KeyboardInterrupt, Exception):
    """An interrupt that TVM hands on to whoever called it."""


@contextmanager
def handed_on() -> Iterator[None]:
    """Around what TVM calls: interrupts become `Interrupted`."""
    try:
        yield
    except Interrupted:
        raise
    except KeyboardInterrupt as error:
        raise Interrupted from error


@contextmanager
def taken_back() -> Iterator[None]:
    """Around calls of TVM: Ctrl-C comes where TVM hands it on, unless the process has a handler of
    its own for it, and `Interrupted` becomes a KeyboardInterrupt again, which nobody takes for an
    error."""
    is_ours = (
        threading.current_thread() is threading.main_thread()
        and signal.getsignal(signal.SIGINT) is signal.default_int_handler
    )
    try:
        if is_ours:
            signal.signal(signal.SIGINT, _interrupt)
        yield
    except Interrupted:
        raise KeyboardInterrupt from None
    finally:
        if is_ours:
            signal.signal(signal.SIGINT, signal.default_int_handler)


def is_called_from_tvm(frame: FrameType | None) -> bool:
    return _callback(frame) is not None


def _callback(frame: FrameType | None) -> FrameType | None:
    """The innermost frame by which TVM has called Python."""
    while frame is not None:
        if (frame.f_code.co_name, *frame.f_code.co_filename.split(os.sep)[-4:]) == CALLBACK:
            return frame
        frame = frame.f_back
    return None


def _interrupt(number: int, frame: FrameType | None) -> None:
    called = _callback(frame)
    if _is_lost(frame, called):
        if not _coming.is_set():
            _coming.set()
            threading.Timer(_AGAIN_S, _again, (number,)).start()
    elif called is not None:
        raise Interrupted
    else:
        raise KeyboardInterrupt


def _again(number: int) -> None:
    _coming.clear()
    main = threading.main_thread().ident
    assert main is not None
    signal.pthread_kill(main, number)


def _is_lost(frame: FrameType | None, called: FrameType | None) -> bool:
    """An exception in a finalizer, and one in ``called`` itself outside of its ``try``."""
    if called is not None and (
        frame is called or "pyargs" not in called.f_locals or {"rv", "err"} & called.f_locals.keys()
    ):
        return True
    while frame is not None and frame is not called:
        if frame.f_code.co_name == "__del__":
            return True
        frame = frame.f_back
    return False
