"""Paths that callers give, checked before the system sees them."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from tvm_npu.sim.texts import shown


def as_path(given: object, what: str, error: Callable[[str], Exception]) -> Path:
    """``given`` as a path. Raises ``error``, with ``what`` in front of its message, for other types
    and for texts with characters that no path can have."""
    name = os.fspath(given) if isinstance(given, os.PathLike) else given
    if not isinstance(name, str):
        raise error(f"{what} is a {type(given).__name__}; expected a text or a Path")
    try:
        known = "\0" not in os.fsdecode(os.fsencode(name))
    except UnicodeEncodeError:
        known = False
    if not known:
        raise error(
            f"{what} is {shown(name)}; no path has NUL characters or halves of surrogate pairs"
        )
    return Path(name)
