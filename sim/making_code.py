"""How long this process has been making, or loading, machine code of compiled functions.

Benchmarks and reports take it off their times: it is spent once an installation. Imports no numba.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field


@dataclass
class _Total:
    seconds: float = 0.0
    cpu_seconds: float = 0.0
    depth: int = 0
    begin: float = 0.0
    cpu_begin: float = 0.0


_total = _Total()


def machine_code_seconds() -> float:
    """Seconds of wall time so far, of the whole process."""
    return _total.seconds


def machine_code_cpu_seconds() -> float:
    """Seconds of CPU time so far, of the whole process."""
    return _total.cpu_seconds


@contextmanager
def making_code() -> Iterator[None]:
    """Counts the block; an inner one counts as part of the outer one. Not for several threads at a
    time: the compiler's lock is held."""
    if _total.depth == 0:
        _total.begin, _total.cpu_begin = time.perf_counter(), time.process_time()
    _total.depth += 1
    try:
        yield
    finally:
        _total.depth -= 1
        if _total.depth == 0:
            _total.seconds += time.perf_counter() - _total.begin
            _total.cpu_seconds += time.process_time() - _total.cpu_begin


@dataclass
class Stopwatch:
    """Wall times of parts of some work, those of one name added up, without the machine code made
    in them, which is ``machine_code_s``."""

    seconds: dict[str, float] = field(default_factory=dict)
    machine_code_s: float = 0.0

    @contextmanager
    def part(self, name: str) -> Iterator[None]:
        begin, made = time.perf_counter(), machine_code_seconds()
        try:
            yield
        finally:
            made = machine_code_seconds() - made
            self.machine_code_s += made
            spent = time.perf_counter() - begin - made
            self.seconds[name] = self.seconds.get(name, 0.0) + spent
