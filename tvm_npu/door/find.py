"""Which door is installed: looks at the folders of the installed TVM and imports nothing of it."""

from __future__ import annotations

import importlib
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from tvm_npu.door.protocol import Door
from tvm_npu.errors import DoorError

DOORS = {"relay": "tvm_npu.relay.door:DOOR", "relax": "tvm_npu.relax.door:DOOR"}
"""Folder of TVM that a door needs -> the door; the first that is found counts."""
OLDEST_RELAX_TVM = (0, 26)
CRASHING_FFI = "0.1.15"
"""Of apache-tvm-ffi: beside TVM 0.26 and 0.27 it ends the process where a type is made JSON."""
ANOTHER_FFI = f"'apache-tvm-ffi!={CRASHING_FFI}.*'"
"""What helps, for pip."""


def of_the_crashing_ffi(version: str) -> bool:
    """Whether a version of apache-tvm-ffi is one of CRASHING_FFI."""
    return f"{version}.".startswith(f"{CRASHING_FFI}.")


@lru_cache(maxsize=1)
def door() -> Door[Any]:
    """The door of the installed TVM. DoorError when there is none that the project knows."""
    module, _, attribute = DOORS[door_name()].partition(":")
    known: Door[Any] = getattr(importlib.import_module(module), attribute)
    return known


def door_name() -> str:
    """Of DOORS, that of the installed TVM, which is not imported. DoorError as `door`."""
    found = find_spec("tvm")
    if found is None:
        raise DoorError(
            "this needs tvm: in the checkout, pip install '.[relay]' (TVM 0.19) or '.[relax]' "
            "(TVM 0.26 and later)"
        )
    folders = [Path(folder) for folder in found.submodule_search_locations or ()]
    for name in DOORS:
        if any((folder / name).is_dir() for folder in folders):
            return name
    where = ", ".join(map(str, folders)) or "an unknown place"
    raise DoorError(
        f"the installed TVM (in {where}) has none of {', '.join(DOORS)}: in the checkout, "
        "pip install '.[relay]' or '.[relax]'"
    )
