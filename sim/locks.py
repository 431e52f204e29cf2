"""Locks that a forked child finds open.

At a fork only the thread that forks goes on in the child. A lock that another thread held would
never be given back there.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable
from typing import Any

_every: weakref.WeakSet[ForkedLock] = weakref.WeakSet()


class ForkedLock:
    """As `threading.Lock`, or what else ``make`` makes, in a ``with`` statement."""

    def __init__(self, make: Callable[[], Any] = threading.Lock) -> None:
        self._make = make
        self.reopen()
        _every.add(self)

    def reopen(self) -> None:
        self._lock = self._make()

    def is_held(self) -> bool:
        return bool(self._lock.locked())

    def __enter__(self) -> None:
        lock = self._lock
        lock.acquire()
        self._held = lock  # the thread that forks gives back the one that it has

    def __exit__(self, *_: object) -> None:
        self._held.release()


def _reopen_all() -> None:
    for lock in list(_every):
        lock.reopen()


os.register_at_fork(after_in_child=_reopen_all)
