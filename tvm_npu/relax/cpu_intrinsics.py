"""The tensor intrinsics of CPUs without those of other devices.

MetaSchedule imports `tvm.s_tir.tensor_intrin` in the process that searches and in the one that
builds. Of the half a minute that this takes nearly all goes into intrinsics of GPUs and DSPs, each
of which parses its own source. Schedules for a CPU use none of them.
"""

from __future__ import annotations

import importlib
import sys
from types import ModuleType

PACKAGE = "tvm.s_tir.tensor_intrin"
OF_OTHER_DEVICES = ("cuda", "rocm", "hexagon")


def import_cpu_intrinsics() -> None:
    """Imports PACKAGE; what it leaves out can be imported as ever afterwards. Calling it again, or
    after a whole import, changes nothing."""
    if PACKAGE in sys.modules:
        return
    hidden = [f"{PACKAGE}.{name}" for name in OF_OTHER_DEVICES]
    sys.modules.update({name: ModuleType(name) for name in hidden})
    try:
        package = importlib.import_module(PACKAGE)
    finally:
        for name in hidden:
            del sys.modules[name]
    for name in OF_OTHER_DEVICES:
        vars(package).pop(name, None)
