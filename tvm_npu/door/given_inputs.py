"""What users give a model by name: shapes that it leaves open, and arrays to run it on.

TVM's graph executor takes any names and types: an input that is left out, or misspelled, is
whatever its memory holds, and the result is one of that.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tvm_npu.calibration import InputSpec, fits_type
from tvm_npu.errors import PartitionError
from tvm_npu.runtime.errors import RunError
from tvm_npu.sim.texts import did_you_mean, shown

_REAL = "fiub"
"""Kinds of NumPy types that are real numbers."""
_WHOLE = "iub"
_BFLOAT16 = "bfloat16"
"""NumPy has no such type of its own: arrays of uint16 are its bits."""


def given_shapes(shapes: Any) -> dict[str, tuple[int, ...]]:
    """Shapes by input name; PartitionError for what are none."""
    if shapes is None:
        return {}
    if not isinstance(shapes, Mapping):
        raise PartitionError(
            f"shapes are a {type(shapes).__name__}; expected a dict of shapes by input name"
        )
    found = {}
    for name, extents in shapes.items():
        listed = isinstance(extents, Iterable) and not isinstance(extents, str | bytes)
        shape = tuple(extents) if listed else None
        if shape is None or not all(
            isinstance(one, int | np.integer) and one >= 0 for one in shape
        ):
            raise PartitionError(
                f"the shape of input {name!r} is {shown(extents) if shape is None else shape}; "
                "expected whole numbers, batch in front"
            )
        found[name] = tuple(int(one) for one in shape)
    return found


def checked_inputs(inputs: Any, specs: tuple[InputSpec, ...]) -> dict[str, NDArray[Any]]:
    """Arrays for all of a model's inputs, at their types. RunError for inputs that are missing,
    unknown, of another shape, or no numbers that the type has."""
    wanted = [spec.name for spec in specs]
    if not isinstance(inputs, Mapping):
        raise RunError(
            f"inputs are a {type(inputs).__name__}; expected a dict of arrays by input name; the "
            f"model has {wanted}"
        )
    unknown = [name for name in inputs if name not in wanted]
    if unknown:
        near = did_you_mean(unknown[0], wanted)
        raise RunError(f"the model has no input {unknown[0]!r}; it has {wanted}{near}")
    missing = [name for name in wanted if name not in inputs]
    if missing:
        raise RunError(f"there is no array for input {missing[0]!r}; the model has {wanted}")
    return {spec.name: _checked(inputs[spec.name], spec) for spec in specs}


def _checked(values: Any, spec: InputSpec) -> NDArray[Any]:
    where = f"input {spec.name!r}"
    try:
        array = np.asarray(values)
    except ValueError as error:
        raise RunError(f"{where}: rows of different lengths are no array: {error}") from error
    if array.shape != spec.shape:
        raise RunError(f"{where} has shape {array.shape}; the model takes {spec.shape}")
    if spec.dtype == _BFLOAT16 and array.dtype == np.uint16:
        return np.ascontiguousarray(array)
    kinds = _REAL if "float" in spec.dtype else _WHOLE
    if array.dtype.kind not in kinds:
        raise RunError(f"{where} is {array.dtype}; the model takes {spec.dtype}")
    if not fits_type(array, spec.dtype):
        raise RunError(
            f"{where} has values from {array.min()} to {array.max()}; the model takes {spec.dtype}"
        )
    with np.errstate(over="ignore"):  # to infinity, as in every conversion of NumPy's
        return array.astype(spec.dtype, order="C", copy=False)
