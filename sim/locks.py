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
    """Gives the lock to enter, as `threading.Lock`, or what else ``make`` makes: ``with lock():``.

    What is entered is the interpreter's own lock: between taking it and the block, and between the
    block and giving it back, Python runs nothing, so no signal's exception can leave it held. The
    thread that forks gives back the one that it has."""

    def __init__(self, make: Callable[[], Any] = threading.Lock) -> None:
        self._make = make
        self.reopen()
        _every.add(self)

    def reopen(self) -> None:
        self._lock = self._make()

    def is_held(self) -> bool:
        return bool(self._lock.locked())

    def __call__(self) -> Any:
        return self._lock


def _reopen_all() -> None:
    for lock in list(_every):
        lock.reopen()


os.register_at_fork(after_in_child=_reopen_all)
