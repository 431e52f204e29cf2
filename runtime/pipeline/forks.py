"""Processes that code forks beside a pipeline: they must not hold its connections open.

The ends of queues, channels and lifelines say by their closing that a process is gone. A copy in
a forked child says the contrary for as long as the child lives: a stage that died would be waited
for without end, and stages would outlive the process of their pipeline.
"""

from __future__ import annotations

import os
from typing import Protocol
from weakref import WeakSet


class Forked(Protocol):
    def leave(self) -> None:
        """Called in a child: closes what it has copies of, and does nothing to the originals."""


_open: WeakSet[Forked] = WeakSet()


def leaves_when_forked(one: Forked) -> None:
    """Lets every child that this process forks from now on call ``one.leave``."""
    _open.add(one)


def _leave_all() -> None:
    for one in list(_open):
        one.leave()
    _open.clear()


os.register_at_fork(after_in_child=_leave_all)
