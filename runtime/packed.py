"""The packed function ``tvm_npu.run`` that compiled TVM modules call, and the open sessions.

One session is opened for each program, by the digest that the compiled code passes along: equal
programs that run under the same limits share one, whatever module they came in. Knows nothing of
TVM's IR; `Any` tensors are TVM's n-dimensional arrays, which convert with ``numpy()`` and
``copyfrom()``.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

import numpy as np

from tvm_npu.codegen.errors import ProgramError
from tvm_npu.codegen.program.format import Program
from tvm_npu.sim.interrupted import Interrupted, handed_on
from tvm_npu.sim.limits import DEFAULT, Limits, check_limits
from tvm_npu.sim.locks import ForkedLock

RUN = "tvm_npu.run (import tvm_npu.runtime first)"
"""The name, which TVM quotes where nobody has registered the function."""
OLD_RUN = "tvm_npu.run"
"""The name in libraries that were compiled before the one above."""


class _Open:
    """A session, the regions that use it, and the lock under which it runs."""

    def __init__(self, session: Any) -> None:
        self.session = session
        self.symbols: list[str] = []
        self.lock = ForkedLock()


@dataclass
class _Limited:
    """A block under `limited`, and the error that a region in it ended with."""

    limits: Limits
    error: Exception | None = None


_open: dict[tuple[str, Limits], _Open] = {}
_block: ContextVar[_Limited | None] = ContextVar("limited", default=None)
_lock = ForkedLock()
_last: list[Any] = []


def register_packed(tvm: Any) -> None:
    """Registers the packed function with ``tvm``, the module."""
    register = getattr(tvm, "register_global_func", None) or tvm.register_func
    for name in (RUN, OLD_RUN):
        register(name, run_packed, override=True)
    ffi = sys.modules.get("tvm_ffi")
    if ffi is not None:  # today's TVM makes errors anew, those that it knows by name
        ffi.register_error(Interrupted)


@contextmanager
def limited(limits: Limits) -> Iterator[None]:
    """Regions of compiled modules that this thread runs inside of the block take at most
    ``limits``. What a region raises leaves the block as it is: Relax's machine would make a
    RuntimeError of it. Raises LimitError for what are no limits."""
    check_limits(limits)
    block = _Limited(limits)
    before = _block.set(block)
    try:
        yield
    except Exception as error:
        if block.error is None or error is block.error:
            raise
        raise block.error from None
    finally:
        _block.reset(before)


def run_packed(symbol: str, digest: str, input_count: int, blob: Any, *tensors: Any) -> None:
    """Runs one region: float32 inputs, then float32 outputs, batch in front.

    ``blob`` is the Program file as int8 [N], read only when ``digest`` (SHA-256) is new.
    Raises ProgramError when the bytes do not have the digest.
    """
    block = _block.get()
    try:
        limits = DEFAULT if block is None else block.limits
        with handed_on():
            opened = _session_for(str(symbol), str(digest), blob, limits)
            _run_region(opened, int(input_count), tensors)
    except Exception as error:
        if block is not None:
            block.error = error
        raise


def _run_region(opened: _Open, input_count: int, tensors: Sequence[Any]) -> None:
    arrays = [tensor.numpy() for tensor in tensors[:input_count]]
    with opened.lock():
        results = opened.session.run(arrays)
        with _lock():
            _last[:] = [opened.session]
    for target, values in zip(tensors[input_count:], results, strict=True):
        target.copyfrom(np.ascontiguousarray(values, np.float32).reshape(target.shape))


def _session_for(symbol: str, digest: str, blob: Any, limits: Limits) -> _Open:
    key = digest, limits
    with _lock():
        opened = _open.get(key)
        if opened is None:
            from tvm_npu.runtime.session import Session

            data = blob.numpy().tobytes()
            found = hashlib.sha256(data).hexdigest()
            if found != digest:
                raise ProgramError(
                    f"program of {symbol!r} has digest {found[:16]}..., the code that carries it "
                    f"says {digest[:16]}...: the library was altered"
                )
            session = Session(Program.from_bytes(data), limits=limits)
            opened = _open[key] = _Open(session)
        if symbol not in opened.symbols:
            opened.symbols.append(symbol)
        return opened


def sessions() -> Mapping[str, Any]:
    """Open sessions by region symbol, in order of first run. When regions of different models
    share a symbol, each of them is ``symbol@`` and the first 8 digits of its program's digest; of
    those of one program under several limits the last one that was opened."""
    with _lock():
        entries = [
            (symbol, digest, opened.session)
            for (digest, _), opened in _open.items()
            for symbol in opened.symbols
        ]
    counts: dict[str, int] = {}
    for symbol, _, _ in entries:
        counts[symbol] = counts.get(symbol, 0) + 1
    return {
        symbol if counts[symbol] == 1 else f"{symbol}@{digest[:8]}": found
        for symbol, digest, found in entries
    }


def find_session(name: str) -> Any:
    """One entry of `sessions`. Raises KeyError that lists the open ones."""
    known = sessions()
    if name not in known:
        raise KeyError(f"no session {name!r} has run; open: {', '.join(known) or 'none'}")
    return known[name]


def statistics() -> Mapping[str, Any]:
    """What every open session has counted, by the names of `sessions`."""
    return {name: found.statistics for name, found in sessions().items()}


def last_session() -> Any:
    """The session that ran last, in any thread; None before the first run."""
    with _lock():
        return _last[0] if _last else None


def clear_sessions() -> None:
    """Closes all sessions and frees their memory; the next run opens them again."""
    with _lock():
        _open.clear()
        _last.clear()
