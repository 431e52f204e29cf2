"""A digest of a graph: of its layers with all their numbers."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from tvm_npu.codegen.graph.fixed import FixedGraph


def graph_digest(fixed: FixedGraph) -> str:
    """The same for graphs that are equal in everything, in whatever process they were made."""
    digest = hashlib.sha256()
    _feed(digest, fixed)
    return digest.hexdigest()


def _feed(digest: Any, value: Any) -> None:
    """Every part with its type and its length in front, so that no two values feed the same."""
    if isinstance(value, np.ndarray):
        digest.update(repr(("array", value.dtype.str, value.shape)).encode())
        digest.update(np.ascontiguousarray(value).tobytes())
    elif is_dataclass(value) and not isinstance(value, type):
        parts = [one.name for one in fields(value)]
        digest.update(repr((type(value).__qualname__, len(parts))).encode())
        for name in parts:
            _feed(digest, name)
            _feed(digest, getattr(value, name))
    elif isinstance(value, Mapping):
        digest.update(repr(("mapping", len(value))).encode())
        for key, entry in value.items():
            _feed(digest, key)
            _feed(digest, entry)
    elif isinstance(value, tuple | list):
        digest.update(repr((type(value).__name__, len(value))).encode())
        for entry in value:
            _feed(digest, entry)
    elif value is None or isinstance(value, str | int | float | bytes | Enum | np.generic):
        digest.update(repr((type(value).__name__, value)).encode())
    else:
        raise TypeError(f"a graph holds a {type(value).__name__}, which has no digest")
