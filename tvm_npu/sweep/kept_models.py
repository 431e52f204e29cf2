"""Models of sweeps as files: stores come from other people, as specifications do.

A pickle names what is called to read it, so only the classes that models are made of are found.
"""

from __future__ import annotations

import io
import pickle
import pickletools
from dataclasses import is_dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any

from tvm_npu.sweep.spec import SweepError

if TYPE_CHECKING:
    from tvm_npu.sweep.models import SweptModel

_PARTS = ("tvm_npu.codegen.", "tvm_npu.sweep.models")
_ARRAYS = {("numpy", "dtype"), ("numpy", "ndarray")} | {
    (f"numpy.{core}.{module}", name)
    for core in ("core", "_core")  # before and from numpy 2 on
    for module, name in (
        ("numeric", "_frombuffer"), ("multiarray", "_reconstruct"), ("multiarray", "scalar"),
    )
}  # fmt: skip


def model_to_bytes(model: SweptModel) -> bytes:
    return pickle.dumps(model, protocol=pickle.HIGHEST_PROTOCOL)


def model_from_bytes(data: bytes) -> SweptModel:
    """What `model_to_bytes` gave. Raises SweepError for anything else."""
    from tvm_npu.sweep.models import SweptModel

    try:
        _check_sizes(data)
        found = _Reader(io.BytesIO(data)).load()
    except Exception as error:  # forged ones can raise anything
        raise SweepError(
            f"a model in the sweep's store cannot be read ({error}); remove the store's .model "
            "files, which are made again"
        ) from error
    if not isinstance(found, SweptModel):
        raise SweepError(f"a model in the sweep's store is a {type(found).__name__}")
    return found


def _check_sizes(data: bytes) -> None:
    """Python makes room for the largest number of its memo and for as many bytes as are named."""
    for operation, argument, _ in pickletools.genops(data):
        if operation.name.endswith("PUT") and int(argument or 0) > len(data):
            raise pickle.UnpicklingError(f"{operation.name} {argument}")


class _Reader(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if (module, name) in _ARRAYS:
            return super().find_class(module, name)
        if module.startswith(_PARTS) and "." not in name:
            found = super().find_class(module, name)
            if isinstance(found, type) and (is_dataclass(found) or issubclass(found, Enum)):
                return found
        raise pickle.UnpicklingError(f"{module}.{name} is no part of a model")
