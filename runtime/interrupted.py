"""Ctrl-C in Python that TVM has called."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


class Interrupted(KeyboardInterrupt, Exception):
    """An interrupt that TVM hands on to whoever called it. TVM 0.19's callbacks hand on `Exception`
    alone: after another interrupt it goes on with a result that was never made."""


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
    """Around calls of TVM: `Interrupted` becomes a KeyboardInterrupt again, which nobody takes for
    an error."""
    try:
        yield
    except Interrupted:
        raise KeyboardInterrupt from None
