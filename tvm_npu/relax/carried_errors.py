"""Errors that pass through TVM: its FFI keeps an error's message, and its class only where it knows
that by name. What ours know beside (a layer, sizes) would be lost."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Any

import tvm_ffi

from tvm_npu.sim.interrupted import handed_on

_raised = threading.local()


def carried(function: Callable[..., Any]) -> Callable[..., Any]:
    """``function``, for TVM to call: what it raises is what `own_errors` raises."""

    @wraps(function)
    def call(*args: Any) -> Any:
        try:
            with handed_on():
                return function(*args)
        except Exception as error:
            _raised.last = error
            _register(type(error))
            raise

    return call


@contextmanager
def own_errors() -> Iterator[None]:
    """Around a call of TVM that calls functions of ours."""
    _raised.last = None
    try:
        yield
    except Exception as error:
        last = _raised.last
        if last is None or last is error or str(last) not in str(error):
            raise
        raise last from None
    finally:
        _raised.last = None


def _register(kind: type[Exception]) -> None:
    """For who calls TVM without `own_errors`: the same class, where a message makes one."""
    if kind in tvm_ffi.core.ERROR_TYPE_TO_NAME:
        return
    try:
        kind("")
    except TypeError:
        return
    tvm_ffi.register_error(kind)
