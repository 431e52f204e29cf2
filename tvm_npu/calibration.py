"""Calibration data in the forms a user has it -> samples of whole model inputs, checked."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tvm_npu.array_files import DAMAGE, read_arrays, reason
from tvm_npu.errors import CalibrationError, FlatCalibrationWarning

Array = NDArray[Any]
Sample = dict[str, Array]
CalibrationData = "None | Array | Mapping[str, Array] | Iterable[Mapping[str, Array]] | str | Path"


CALIBRATION_IMAGES = 16
"""How many of a model's labelled images give ranges where no calibration data is given."""
FEW_VALUES = 3
"""Distinct values of all of an input's calibration data; no image has so few."""


@dataclass(frozen=True)
class InputSpec:
    """One input of the whole model. ``batch_axis`` of ``shape`` counts its images, in front but for
    recurrent layers (negative: from the back; None: no axis does)."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    batch_axis: int | None = 0

    @property
    def images(self) -> int | None:
        """Those of one sample; None where no axis counts them."""
        axis, rank = self.batch_axis, len(self.shape)
        return None if axis is None or not -rank <= axis < rank else self.shape[axis]


def images_of_run(inputs: Iterable[InputSpec]) -> int:
    """How many images (frames, sequences) one run of a model takes. Where inputs differ, what most
    of them say, and of these the least; vectors are asked where there is nothing else, and what
    has no axis for images is one."""
    known = [(len(spec.shape), spec.images) for spec in inputs]
    counts = Counter(images for rank, images in known if images is not None and rank > 1)
    counts = counts or Counter(images for _, images in known if images is not None)
    return min(counts, key=lambda images: (-counts[images], images), default=1)


def static_input(name: str, shape: tuple[int, ...] | None, dtype: str, type_: Any) -> InputSpec:
    """The input of a model; CalibrationError for one without a static shape (None), which TVM
    shows as ``type_``."""
    if shape is None:
        raise CalibrationError(
            f"input {name!r} is {type_}; calibration and TVM's executors need static shapes: give "
            f"shape= to from_onnx, shapes= to build_onnx, or --shape {name}=... with every extent, "
            "for example a batch of 1"
        )
    return InputSpec(name, shape, dtype)


def samples_from(data: Any, inputs: tuple[InputSpec, ...]) -> Iterator[Sample]:
    """Samples of exactly the model's batch, one dict of all inputs each.

    ``data`` is an array (for a model with one input), a dict of arrays by input name, an iterable
    of such dicts, or the path of an .npz file. An array has any whole number of batches in front.
    Raises CalibrationError that names the input, what was found and what is wanted.
    """
    for number, mapping in enumerate(_mappings(data, inputs)):
        yield from _batches(mapping, inputs, number)


def watched(samples: Iterable[Sample], inputs: tuple[InputSpec, ...]) -> Iterator[Sample]:
    """``samples``; a FlatCalibrationWarning at their end for every float input that never took
    more than `FEW_VALUES` values."""
    seen: dict[str, set[float]] = {s.name: set() for s in inputs if s.dtype.startswith("float")}
    count = 0
    for sample in samples:
        count += 1
        for name, values in seen.items():
            if len(values) <= FEW_VALUES:
                values.update(np.unique(sample[name])[: FEW_VALUES + 1].tolist())
        yield sample
    for name, values in seen.items():
        if count and 0 < len(values) <= FEW_VALUES:
            shown = ", ".join(f"{value:g}" for value in sorted(values))
            warnings.warn(
                f"calibration input {name!r} takes only the values {shown} in {count} samples: "
                "number ranges of the model mean nothing then; give real inputs",
                FlatCalibrationWarning,
                stacklevel=2,
            )


def synthetic(inputs: tuple[InputSpec, ...], seed: int, count: int = 4) -> Iterator[Sample]:
    """``count`` samples: standard normal for float inputs, zeros for integer ones."""
    generator = np.random.default_rng(seed)
    for _ in range(count):
        yield {
            spec.name: (
                generator.standard_normal(spec.shape).astype(spec.dtype)
                if spec.dtype.startswith("float")
                else np.zeros(spec.shape, spec.dtype)
            )
            for spec in inputs
        }


def _mappings(data: Any, inputs: tuple[InputSpec, ...]) -> Iterator[Mapping[str, Any]]:
    if isinstance(data, str | Path):
        yield _from_file(Path(data), inputs)
    elif isinstance(data, np.ndarray):
        if len(inputs) != 1:
            names = ", ".join(repr(spec.name) for spec in inputs)
            raise CalibrationError(
                f"calibration is one array, but the model has {len(inputs)} inputs ({names}): "
                "give a dict by input name"
            )
        yield {inputs[0].name: data}
    elif isinstance(data, Mapping):
        yield data
    elif isinstance(data, Iterable):
        empty = True
        for number, item in enumerate(data):
            empty = False
            if isinstance(item, np.ndarray) and len(inputs) == 1:
                item = {inputs[0].name: item}
            if not isinstance(item, Mapping):
                raise CalibrationError(
                    f"calibration sample {number} is a {type(item).__name__}; expected a dict of "
                    "arrays by input name"
                )
            yield item
        if empty:
            raise CalibrationError("calibration has no samples; at least 1 is needed")
    else:
        raise CalibrationError(
            f"calibration is a {type(data).__name__}; expected an array, a dict of arrays, an "
            "iterable of dicts or the path of an .npz file"
        )


def _from_file(path: Path, inputs: tuple[InputSpec, ...]) -> dict[str, Array]:
    try:
        arrays = read_arrays(path)
    except DAMAGE as error:
        raise CalibrationError(
            f"cannot read calibration file {str(path)!r}: {reason(error)}"
        ) from error
    if list(arrays) == ["arr_0"] and len(inputs) == 1:
        return {inputs[0].name: arrays["arr_0"]}
    return arrays


def _batches(
    mapping: Mapping[str, Any], inputs: tuple[InputSpec, ...], number: int
) -> Iterator[Sample]:
    wanted = [spec.name for spec in inputs]
    missing = [name for name in wanted if name not in mapping]
    unknown = [name for name in mapping if name not in wanted]
    if missing or unknown:
        raise CalibrationError(
            f"calibration sample {number}: inputs missing: {missing}, unknown: {unknown}; the "
            f"model has {wanted}"
        )
    arrays = {spec.name: _checked(np.asarray(mapping[spec.name]), spec) for spec in inputs}
    counts = {
        spec.name: arrays[spec.name].shape[0] // spec.shape[0] for spec in inputs if spec.shape
    }
    if len(set(counts.values())) > 1:
        raise CalibrationError(f"calibration inputs hold different numbers of samples: {counts}")
    for index in range(next(iter(counts.values()), 1)):
        yield {
            spec.name: (
                arrays[spec.name][index * spec.shape[0] : (index + 1) * spec.shape[0]]
                if spec.shape
                else arrays[spec.name]
            )
            for spec in inputs
        }


def _checked(array: Array, spec: InputSpec) -> Array:
    """``array`` at the input's type, whole batches of the input's shape, finite."""
    shape, batch = array.shape, spec.shape[0] if spec.shape else 0
    if spec.shape and batch < 1:
        raise CalibrationError(f"input {spec.name!r} has shape {spec.shape}: a batch of {batch}")
    fits = len(shape) == len(spec.shape) and shape[1:] == spec.shape[1:]
    if not fits or (batch and (shape[0] < 1 or shape[0] % batch)):
        raise CalibrationError(
            f"calibration input {spec.name!r} has shape {shape}; expected {spec.shape} or a "
            f"multiple of it in the first extent"
        )
    if array.dtype.kind not in "fiub":
        raise CalibrationError(
            f"calibration input {spec.name!r} is {array.dtype}; expected numbers for {spec.dtype}"
        )
    if array.dtype.kind == "f" and not spec.dtype.startswith("float"):
        raise CalibrationError(
            f"calibration input {spec.name!r} is {array.dtype}; expected {spec.dtype}"
        )
    if not fits_type(array, spec.dtype):
        raise CalibrationError(
            f"calibration input {spec.name!r} has values from {array.min()} to {array.max()}; "
            f"expected those of {spec.dtype}"
        )
    with np.errstate(over="ignore"):
        converted = array.astype(spec.dtype, order="C")
    if converted.dtype.kind == "f":
        bad = converted.size - np.count_nonzero(np.isfinite(array))
        if bad:
            raise CalibrationError(
                f"calibration input {spec.name!r} has {bad} NaN or infinite values of "
                f"{converted.size}; expected 0"
            )
        large = converted.size - np.count_nonzero(np.isfinite(converted))
        if large:
            most = np.finfo(converted.dtype).max
            raise CalibrationError(
                f"calibration input {spec.name!r} has {large} values of {converted.size} that do "
                f"not fit in {spec.dtype} (the largest is {np.abs(array).max():.3g}); at most "
                f"{most:.3g}"
            )
    return converted


def fits_type(array: Array, dtype: str) -> bool:
    """Whether ``array``, of whole numbers where ``dtype`` is a type of these, has no values that
    would become others in it."""
    if np.dtype(dtype).kind not in "iu" or array.dtype.kind not in "iu" or not array.size:
        return True
    limits = np.iinfo(dtype)
    return int(array.min()) >= limits.min and int(array.max()) <= limits.max
