"""Resident memory of this process.

The peak is that of the process's own address space: `getrusage` counts what its parent had when it
was started, too.
"""

from __future__ import annotations

import contextlib
import resource
from pathlib import Path

_STATUS, _CLEAR = Path("/proc/self/status"), Path("/proc/self/clear_refs")


def resident_bytes() -> int:
    """Now."""
    return _field("VmRSS")


def peak_resident_bytes() -> int:
    """At most since `forget_peak`, or since the process was started."""
    return _field("VmHWM")


def forget_peak() -> None:
    """Where the kernel does not let us, the peak is that since the start."""
    with contextlib.suppress(OSError):
        _CLEAR.write_text("5")


def _field(name: str) -> int:
    try:
        for line in _STATUS.read_text("ascii").splitlines():
            key, _, value = line.partition(":")
            if key == name:
                return 1024 * int(value.split()[0])
    except OSError:
        pass
    return 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
