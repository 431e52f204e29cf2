"""Types of the fields of objects that files hold: dataclasses do not look at them."""

from __future__ import annotations

import types
from collections.abc import Collection, Mapping
from numbers import Integral, Real
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import numpy as np

from tvm_npu.sim.texts import shown

_NUMBERS: dict[Any, type] = {int: Integral, float: Real}
"""Scalars of NumPy's are such, too."""


def check_fields(made: type, values: Mapping[str, Any]) -> None:
    """Raises ValueError unless each of ``values`` is of the type of the class's field. Names that
    the class does not have are its own to refuse."""
    for name, hint in get_type_hints(made).items():
        if name in values and not _fits(values[name], hint):
            found = values[name]
            what = shown(found) if isinstance(found, str | int | float) else type(found).__name__
            raise ValueError(f"{made.__name__}.{name} is {what}; expected {_name(hint)}")


def _fits(value: Any, hint: Any) -> bool:
    origin, inner = get_origin(hint), get_args(hint)
    if hint is Any:
        return True
    if hint is None or hint is type(None):
        return value is None
    if origin in (Union, types.UnionType):
        return any(_fits(value, one) for one in inner)
    if origin is Literal:
        return any(type(value) is type(one) and value == one for one in inner)
    kind = origin or hint
    if not isinstance(kind, type):
        return True
    if kind in _NUMBERS:
        return isinstance(value, _NUMBERS[kind]) and not isinstance(value, bool)
    if not isinstance(value, kind):
        return False
    return kind is np.ndarray or _parts_fit(value, kind, inner)


def _parts_fit(value: Any, kind: type, inner: tuple[Any, ...]) -> bool:
    if issubclass(kind, tuple) and inner and inner[-1] is not Ellipsis:
        return len(value) == len(inner) and all(map(_fits, value, inner))
    if issubclass(kind, Mapping) and inner:
        key, item = inner
        return all(_fits(one, key) and _fits(other, item) for one, other in value.items())
    if issubclass(kind, Collection) and inner:
        return all(_fits(one, inner[0]) for one in value)
    return True


def _name(hint: Any) -> str:
    return hint.__name__ if isinstance(hint, type) and not get_args(hint) else str(hint)
