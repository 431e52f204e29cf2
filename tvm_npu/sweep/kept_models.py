"""Models of sweeps as files: stores come from other people, as specifications do.

A pickle names what is called to read it, and can set attributes of all that it names, classes
among them. So only functions of this module are found, only operations that call them and make
plain values are read, and objects are made by their classes, which check them. NumPy's own pickles
set the insides of its types unchecked: arrays are written as their bytes.
"""

from __future__ import annotations

import importlib
import io
import math
import pickle
import pickletools
from dataclasses import fields, is_dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from tvm_npu.sweep.kept_types import check_fields
from tvm_npu.sweep.spec import SweepError

if TYPE_CHECKING:
    from tvm_npu.sweep.models import SweptModel

_PARTS = ("tvm_npu.codegen.", "tvm_npu.sweep.models")
_KINDS = "fiub"
"""Of NumPy's types: numbers, whose bytes name nothing."""
FORMAT = 4
"""Stands in the files' names: files of another one are made anew."""


def _array(dtype: str, shape: tuple[int, ...], data: bytes) -> NDArray[Any]:
    """An array of a file. Raises ValueError for what is none."""
    if type(dtype) is not str or type(shape) is not tuple or type(data) is not bytes:
        raise ValueError("an array is no type, shape and bytes")
    if any(type(extent) is not int or extent < 0 for extent in shape):
        raise ValueError(f"an array has shape {shape!r}")
    kind = np.dtype(dtype)
    if kind.kind not in _KINDS:
        raise ValueError(f"an array has type {dtype!r}; only numbers are kept")
    if len(data) != math.prod(shape) * kind.itemsize:
        raise ValueError(f"an array {shape!r} of {dtype!r} has {len(data)} bytes")
    return np.frombuffer(data, kind).reshape(shape).copy()


def _number(dtype: str, data: bytes) -> Any:
    """A scalar of NumPy's. Raises ValueError for what is none."""
    return _array(dtype, (), data)[()]


def _made(module: str, name: str, values: dict[str, Any]) -> Any:
    """An object of one of the classes that models are made of. Raises ValueError for others and for
    fields of other types, and what the class raises."""
    if type(module) is not str or type(name) is not str or type(values) is not dict:
        raise ValueError("an object is no class and values")
    found = getattr(importlib.import_module(module), name, None) if _is_part(module) else None
    if not isinstance(found, type) or not is_dataclass(found) or found.__module__ != module:
        raise pickle.UnpicklingError(f"{module}.{name} is no part of a model")
    check_fields(found, values)
    return found(**values)


def _is_part(module: str) -> bool:
    return module.startswith(_PARTS)


_OWN = {(__name__, one.__name__): one for one in (_array, _number, _made)}
_OPERATIONS = frozenset(
    (
        "PROTO", "FRAME", "STOP", "GLOBAL", "STACK_GLOBAL", "REDUCE", "MARK",
        "NONE", "NEWTRUE", "NEWFALSE", "BININT", "BININT1", "BININT2", "LONG1", "LONG4", "BINFLOAT",
        "UNICODE", "SHORT_BINUNICODE", "BINUNICODE", "BINUNICODE8",
        "SHORT_BINBYTES", "BINBYTES", "BINBYTES8",
        "EMPTY_TUPLE", "TUPLE", "TUPLE1", "TUPLE2", "TUPLE3", "EMPTY_LIST", "APPEND", "APPENDS",
        "EMPTY_DICT", "SETITEM", "SETITEMS", "EMPTY_SET", "ADDITEMS", "FROZENSET",
        "MEMOIZE", "BINPUT", "LONG_BINPUT", "BINGET", "LONG_BINGET",
    )
)  # fmt: skip
"""Of pickles, those that make plain values and containers and call functions: none sets attributes
or calls a class by another way."""


def model_to_bytes(model: SweptModel) -> bytes:
    file = io.BytesIO()
    _Writer(file, pickle.HIGHEST_PROTOCOL).dump(model)
    return file.getvalue()


def model_from_bytes(data: bytes) -> SweptModel:
    """What `model_to_bytes` gave. Raises SweepError for anything else."""
    from tvm_npu.sweep.models import SweptModel

    try:
        _check_operations(data)
        found = _Reader(io.BytesIO(data)).load()
    except Exception as error:  # forged ones can raise anything
        raise SweepError(
            f"a model in the sweep's store cannot be read ({error}); remove the store's .model "
            "files, which are made again"
        ) from error
    if not isinstance(found, SweptModel):
        raise SweepError(f"a model in the sweep's store is a {type(found).__name__}")
    return found


def _check_operations(data: bytes) -> None:
    """Raises UnpicklingError for operations that models do without and numbers of the memo that
    are too large: Python makes room for the largest, and for as many bytes as are named."""
    for operation, argument, _ in pickletools.genops(data):
        if operation.name.endswith("PUT") and int(argument or 0) > len(data):
            raise pickle.UnpicklingError(f"{operation.name} {argument}")
        if operation.name not in _OPERATIONS:
            raise pickle.UnpicklingError(f"operation {operation.name} is no part of a model")


class _Writer(pickle.Pickler):
    def reducer_override(self, obj: Any) -> Any:
        if is_dataclass(obj) and not isinstance(obj, type):
            values = {field.name: getattr(obj, field.name) for field in fields(obj)}
            return _made, (type(obj).__module__, type(obj).__name__, values)
        if not isinstance(obj, np.ndarray | np.generic):
            return NotImplemented
        if obj.dtype.kind not in _KINDS:
            raise pickle.PicklingError(f"arrays of {obj.dtype} are no part of a model")
        if isinstance(obj, np.generic):
            return _number, (obj.dtype.str, obj.tobytes())
        return _array, (obj.dtype.str, obj.shape, obj.tobytes())


class _Reader(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in _OWN:
            raise pickle.UnpicklingError(f"{module}.{name} is no part of a model")
        return _OWN[module, name]
