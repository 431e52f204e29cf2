"""What the Relax door needs of the installed TVM."""

from __future__ import annotations

import importlib.metadata
from importlib.util import find_spec

from tvm_npu.door.find import OLDEST_RELAX_TVM
from tvm_npu.errors import DoorError
from tvm_npu.runtime.lean_tvm import import_tvm

REMEDY = "in the checkout, pip install '.[relax]' in an environment of its own"


def prepare() -> None:
    """Imports TVM. Raises DoorError for one that the Relax door cannot use."""
    if find_spec("tvm") is None:
        raise DoorError(f"tvm_npu.relax needs TVM 0.26 or later: {REMEDY}")
    version = _installed()
    found = tuple(int(part) for part in version.split(".")[:2])
    if found < OLDEST_RELAX_TVM:
        known = (
            "it does not import beside the apache-tvm-ffi of today, and its FuseOpsByPattern "
            "drops the weights of one of two convolutions of one shape"
            if found == (0, 25)
            else "its Relax is another one; tvm_npu.relay is for TVM 0.19"
        )
        raise DoorError(f"tvm_npu.relax needs TVM 0.26 or later, not {version}: {known}. {REMEDY}")
    import_tvm()


def _installed() -> str:
    """The version of the installed TVM, without importing it where its package says it."""
    try:
        return importlib.metadata.version("apache-tvm")
    except importlib.metadata.PackageNotFoundError:
        return str(import_tvm().__version__)
