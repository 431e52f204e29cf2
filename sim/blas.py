"""The BLAS behind compiled matrix products, on one thread."""

from __future__ import annotations

import ctypes
import importlib
import threading
from collections.abc import Iterator
from typing import Any

from threadpoolctl import ThreadpoolController

from tvm_npu.sim.errors import SimError
from tvm_npu.sim.locks import ForkedLock

_LINKED = ("numpy.linalg._umath_linalg", "scipy.linalg.cython_blas")
"""Modules that are linked with a BLAS, the first to try first."""

_NAMES = ("scipy_cblas_{}64_", "cblas_{}64_", "scipy_cblas_{}", "cblas_{}")
"""What builds of NumPy and SciPy call a function of CBLAS."""


def cblas_address(name: str) -> int:
    """Where ``cblas_<name>`` of this process lies; it takes sizes in 64-bit registers. Raises
    SimError when neither NumPy nor SciPy has one."""
    for library in _libraries():
        for pattern in _NAMES:
            found = getattr(library, pattern.format(name), None)
            if found is not None:
                address = ctypes.cast(found, ctypes.c_void_p).value
                assert address is not None
                return address
    raise SimError(
        f"cblas_{name} is in no library behind {' or '.join(_LINKED)}; the wheels of NumPy and "
        f"SciPy have it, and so has every NumPy that is linked with a CBLAS"
    )


def _libraries() -> Iterator[ctypes.CDLL]:
    for name in _LINKED:
        path = importlib.import_module(name).__file__
        if path is not None:
            yield ctypes.CDLL(path)


class SerialBlas:
    """One BLAS thread while any simulator runs: tiles are too small for more. The setting is the
    process's, so the last one out restores it. Counted by threads: one that an interrupt took out
    of its run in between is out after its next run."""

    def __init__(self) -> None:
        self._controller = ThreadpoolController()
        self._lock = ForkedLock()
        self._running: set[int] = set()
        self._before: list[tuple[Any, int]] = []
        """Libraries and how many threads they had, until those are given back."""

    def __enter__(self) -> None:
        try:
            with self._lock():
                if not self._before:
                    libraries = self._controller.lib_controllers
                    self._before = [(one, one.num_threads) for one in libraries]
                if not self._running:
                    for library, _ in self._before:
                        library.set_num_threads(1)
                self._running.add(threading.get_ident())
        except BaseException:
            self._leave()
            raise

    def __exit__(self, *_: object) -> None:
        try:
            self._leave()
        except BaseException:
            self._leave()
            raise

    def _leave(self) -> None:
        """Whole when it is called again after an interrupt."""
        with self._lock():
            self._running.discard(threading.get_ident())
            if not self._running:
                for library, count in self._before:
                    library.set_num_threads(count)
                self._before = []


serial_blas = SerialBlas()
