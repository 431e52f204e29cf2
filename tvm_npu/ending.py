"""The end of a process that runs commands or measurements.

Libraries are not taken down: at its exit TVM's pool of threads gives its core away 300,000 times
before it looks whether it is to end, which takes minutes where others want that core.
"""

from __future__ import annotations

import atexit
import os
import sys
import threading
from contextlib import suppress
from typing import NoReturn


def end_process(code: int) -> NoReturn:
    """Ends it as Python does, up to what has been registered for its exit and its streams."""
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):
            stream.flush()
    os._exit(code)
