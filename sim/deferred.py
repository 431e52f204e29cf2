"""Blocks that Ctrl-C does not cut in two."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def deferred() -> Iterator[None]:
    """In the main thread SIGINT waits for the end of the block, where its handler gets its turn.
    In other threads, which signals do not reach, nothing. For blocks that take a moment."""
    handler = signal.getsignal(signal.SIGINT)
    if not callable(handler) or threading.current_thread() is not threading.main_thread():
        yield
        return
    came: list[Any] = []
    signal.signal(signal.SIGINT, lambda *which: came.append(which))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, handler)
        if came:
            handler(*came[0])
