"""Where the time of a compilation goes: phases that any part of it names, told to who asks.

Who compiles opens `timed`; without it `phase` costs nothing.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field

from tvm_npu.sim.making_code import machine_code_seconds


@dataclass
class Phases:
    """Seconds of wall time by phase, without those of phases inside and without machine code that
    numba made meanwhile."""

    seconds: dict[str, float] = field(default_factory=dict)
    inner: float = 0.0
    """Of the phases that have ended inside of the running one."""


_current: ContextVar[Phases | None] = ContextVar("phases", default=None)


@contextmanager
def timed() -> Iterator[Phases]:
    """Collects the phases of the block."""
    phases = Phases()
    token = _current.set(phases)
    try:
        yield phases
    finally:
        _current.reset(token)


@contextmanager
def phase(name: str) -> Iterator[None]:
    """The block is phase ``name``; several blocks of one name add up."""
    phases = _current.get()
    if phases is None:
        yield
        return
    outer, phases.inner = phases.inner, 0.0
    begin = time.perf_counter() - machine_code_seconds()
    try:
        yield
    finally:
        spent = time.perf_counter() - machine_code_seconds() - begin
        phases.seconds[name] = phases.seconds.get(name, 0.0) + spent - phases.inner
        phases.inner = outer + spent
