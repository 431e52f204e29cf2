"""How numba finds out what an operator does on some types: cheaper.

It tries each version that is registered, tens of them, until one takes the types, and writes a
message for each that does not, with colours where colorama is installed. A simulator has ten
thousand operators, all on the same few types of numbers.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from numba.core import errors, types
from numba.core.types.functions import BaseFunction

_KNOWN: dict[tuple[Any, ...], Any] = {}
"""Signatures by typing context, function and types of numbers."""


class _Plain:
    """Texts of messages as they are, in the place of numba's scheme of colours."""

    def __getattr__(self, part: str) -> Any:
        return lambda message: message


@contextmanager
def cheap_attempts() -> Iterator[None]:
    """Operators on numbers are resolved once, and messages of attempts have no colours, inside.
    For holders of numba's compiler lock."""
    resolve, colours = BaseFunction.get_call_type, errors._termcolor_inst  # type: ignore[attr-defined]

    def resolve_once(self: Any, context: Any, args: Any, kws: Any) -> Any:
        if kws or not _is_operator(self) or not all(map(_is_number, args)):
            return resolve(self, context, args, kws)
        key = (context, self, args)
        if key not in _KNOWN:
            _KNOWN[key] = resolve(self, context, args, kws)
        return _KNOWN[key]

    BaseFunction.get_call_type = resolve_once  # type: ignore[method-assign]
    errors._termcolor_inst = _Plain()  # type: ignore[attr-defined]
    try:
        yield
    finally:
        BaseFunction.get_call_type = resolve  # type: ignore[method-assign]
        errors._termcolor_inst = colours  # type: ignore[attr-defined]


def _is_operator(function: Any) -> bool:
    return getattr(function.typing_key, "__module__", None) == "_operator"


def _is_number(kind: Any) -> bool:
    return isinstance(kind, (types.Number, types.Boolean))
