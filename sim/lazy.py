"""Properties that are computed once."""

from __future__ import annotations

import functools
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any, TypeVar

Value = TypeVar("Value")


def cached_property(function: Callable[[Any], Value]) -> functools.cached_property[Value]:
    """`functools.cached_property` as it is from Python 3.12 on. Before, all instances of a class
    share a lock, which another thread may hold when a process forks: the child waits for ever."""
    made = functools.cached_property(function)
    if "lock" in vars(made):
        vars(made)["lock"] = nullcontext()
    return made
