"""The BLAS behind compiled matrix products, on one thread."""

from __future__ import annotations

import threading
from typing import Any

import scipy.linalg.cython_blas  # noqa: F401  what np.dot calls; the controller must see it
from threadpoolctl import ThreadpoolController


class SerialBlas:
    """One BLAS thread while any simulator runs: tiles are too small for more. The setting is the
    process's, so the last one out restores it."""

    def __init__(self) -> None:
        self._controller = ThreadpoolController()
        self._lock = threading.Lock()
        self._running = 0
        self._limit: Any = None

    def __enter__(self) -> None:
        with self._lock:
            if self._running == 0:
                self._limit = self._controller.limit(limits=1)
            self._running += 1

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._running -= 1
            if self._running == 0:
                self._limit.restore_original_limits()


serial_blas = SerialBlas()
