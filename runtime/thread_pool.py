"""How long the threads of TVM's pool stay awake when they have nothing to do."""

from __future__ import annotations

import os
from types import ModuleType

VARIABLE = "TVM_THREAD_POOL_SPIN_COUNT"
"""TVM's variable of the environment, which it reads when its first thread starts."""
SPINS = 1_000
"""Longer than from one operator to the next."""


def sleep_soon(tvm: ModuleType) -> None:
    """They give their core away `SPINS` times and then sleep, unless `VARIABLE` says otherwise.
    TVM's 300,000 times take minutes where others want the core, and until they are over TVM does
    not look whether the process is to end."""
    os.environ.setdefault(VARIABLE, str(SPINS))
