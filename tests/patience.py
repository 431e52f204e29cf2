"""How long tests wait for what takes seconds on an idle machine."""

from __future__ import annotations

import time
from collections.abc import Callable

PATIENCE_S = 900.0
"""After which what a test waits for will not come: far more than a loaded machine takes."""


def eventually(condition: Callable[[], bool]) -> bool:
    """Whether it holds before the patience ends."""
    limit = time.monotonic() + PATIENCE_S
    while not condition():
        if time.monotonic() > limit:
            return False
        time.sleep(0.01)
    return True
