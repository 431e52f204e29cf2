"""What planners work out about a layer that holds on more than one machine, kept from one to the
next where somebody asks for it (`keeping`): a sweep does, whose machines come in an order in which
those that have it in common stand together (`Backend.common`).

One such set of machines is kept at a time. What does not fit is worked out again each time, so the
first of it stays: machines ask for the same layers in the same order, and what was used last is
what is wanted last.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, TypeVar

T = TypeVar("T")


class Kept:
    """At most ``most_bytes`` of arrays, of one ``common`` set of machines."""

    def __init__(self, most_bytes: int) -> None:
        self.most_bytes = most_bytes
        self.used_bytes = 0
        self._common: Hashable = None
        self._known: dict[Hashable, Any] = {}

    def get(self, common: Hashable, key: Hashable, make: Callable[[], T]) -> T:
        if common != self._common:
            self._common, self._known, self.used_bytes = common, {}, 0
        if key in self._known:
            found: T = self._known[key]
            return found
        made = make()
        size = sum(array.nbytes for array in made)  # type: ignore[attr-defined]
        if self.used_bytes + size <= self.most_bytes:
            self._known[key] = made
            self.used_bytes += size
        return made


_KEPT: ContextVar[Kept | None] = ContextVar("kept", default=None)


@contextmanager
def keeping(kept: Kept) -> Iterator[None]:
    """What is planned inside keeps in ``kept``, and takes from it."""
    token = _KEPT.set(kept)
    try:
        yield
    finally:
        _KEPT.reset(token)


def kept_or_made(common: Hashable, key: Hashable, make: Callable[[], T]) -> T:
    """A tuple of arrays that nobody writes to: what ``make`` gives for ``key`` on any of the
    machines that have ``common``."""
    kept = _KEPT.get()
    return make() if kept is None else kept.get(common, key, make)
