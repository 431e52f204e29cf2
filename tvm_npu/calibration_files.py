"""Calibration data from a folder or a file: arrays and images -> samples of model inputs.

| file | holds |
|---|---|
| .npz | arrays by input name (a single unnamed array for a model with one input) |
| .npy | the array of the model's one input |
| .png, .jpg, .jpeg | one image for the model's one input: values 0..255 as float |

Arrays have any whole number of batches in front; for a model of batch 1 the batch axis may be
missing. An image must have exactly the input's rows and columns, or is made to fit; grey or colour
follows the input's channels (1 or 3; NCHW, or NHWC when that is what the input looks like). Folders
are read in the order of their file names; sub-folders and other files are left out.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Literal

import numpy as np
from numpy.typing import NDArray

from tvm_npu.array_files import DAMAGE, read_array, read_arrays, reason
from tvm_npu.calibration import InputSpec, Sample, samples_from
from tvm_npu.errors import CalibrationError
from tvm_npu.sim.bounded_files import open_bounded
from tvm_npu.sim.texts import cause

Array = NDArray[Any]
Inputs = tuple[InputSpec, ...]
Fit = Literal["exact", "crop", "stretch"]
"""What becomes of an image of another size: an error; the largest middle part of the right
proportions, resampled; the whole image, resampled."""
IMAGES = {".png": "PNG", ".jpg": "JPEG", ".jpeg": "JPEG"}
MOST_PIXELS = 1 << 26
"""Of an image: a few hundred bytes can say that they are any number. Each takes 8 bytes, about."""
MOST_DECODED_PIXELS = 1 << 34
"""Times the scans of a JPEG file, each of which may be a few bytes that touch all pixels."""
_SCAN = b"\xff\xda"
MOST_IMAGE_BYTES = 1 << 28
"""Of an image's file: as many pixels, as they are, with three colours and a margin."""
_PIECE_BYTES = 1 << 20


@dataclass(frozen=True)
class CalibrationFiles:
    """Samples read file by file, every time that they are iterated; checked as they are read."""

    files: tuple[Path, ...]
    inputs: Inputs
    fit: Fit = "exact"

    def __iter__(self) -> Iterator[Sample]:
        """Raises CalibrationError that names the file, what is wrong and what is wanted."""
        for path in self.files:
            try:
                arrays = _READERS[path.suffix.lower()](path, self.inputs, self.fit)
                yield from samples_from(arrays, self.inputs)
            except CalibrationError as error:
                raise CalibrationError(f"{str(path)!r}: {error}") from error
            except DAMAGE as error:
                raise CalibrationError(f"cannot read {str(path)!r}: {reason(error)}") from error


def calibration_files(path: Path) -> tuple[Path, ...]:
    """The files at ``path``. Raises CalibrationError when it is nothing that can be read."""
    kinds = ", ".join(_READERS)
    try:
        kind = os.stat(path).st_mode
        if stat.S_ISDIR(kind):
            return _files_in(path, kinds)
    except (FileNotFoundError, NotADirectoryError) as error:
        raise CalibrationError(f"there is no folder or file {str(path)!r}") from error
    except OSError as error:
        raise CalibrationError(f"cannot read {str(path)!r}: {cause(error)}") from error
    if not stat.S_ISREG(kind) or path.suffix.lower() not in _READERS:
        raise CalibrationError(f"{str(path)!r} is neither a folder nor a file of kind {kinds}")
    return (path,)


def _files_in(folder: Path, kinds: str) -> tuple[Path, ...]:
    """In the order of their names. CalibrationError for a folder without any; OSError."""
    entries = sorted(folder.iterdir())
    files = tuple(
        entry for entry in entries if entry.suffix.lower() in _READERS and os.path.isfile(entry)
    )
    if files:
        return files
    others = "it is empty"
    if entries:
        folders = sum(map(os.path.isdir, entries))
        others = (
            f"it holds {len(entries) - folders} other files and {folders} folders, which are not "
            "looked into"
        )
    raise CalibrationError(f"no {kinds} file in folder {str(folder)!r}; {others}")


def _npy(path: Path, inputs: Inputs, _: Fit) -> dict[str, Array]:
    spec = _only(inputs, ".npy")
    return {spec.name: _with_batch(read_array(path), spec)}


def _npz(path: Path, inputs: Inputs, _: Fit) -> dict[str, Array]:
    arrays = read_arrays(path)
    if list(arrays) == ["arr_0"] and len(inputs) == 1:
        arrays = {inputs[0].name: arrays["arr_0"]}
    specs = {spec.name: spec for spec in inputs}
    return {
        name: _with_batch(array, specs[name]) if name in specs else array
        for name, array in arrays.items()
    }


def _image(path: Path, inputs: Inputs, fit: Fit) -> dict[str, Array]:
    from PIL import Image

    suffix = path.suffix.lower()
    spec = _only(inputs, suffix)
    layout = _image_layout(spec)
    if layout is None:
        raise CalibrationError(
            f"input {spec.name!r} has shape {spec.shape}; an image needs batch 1 and 1 or 3 "
            "channels"
        )
    channels, rows, columns, channels_first = layout
    try:
        with (
            open_bounded(path, MOST_IMAGE_BYTES) as file,
            Image.open(file, formats=[IMAGES[suffix]]) as image,
        ):
            if image.size != (columns, rows) and fit == "exact":
                raise CalibrationError(
                    f"the image has {image.size[1]} rows and {image.size[0]} columns; input "
                    f"{spec.name!r} takes {rows} rows and {columns} columns (--fit crop or --fit "
                    "stretch makes it so)"
                )
            _check_pixels(image, file)
            if image.mode.startswith(("I", "F")):
                raise CalibrationError("the image has 16 bits a channel; 8 are supported")
            if image.mode == "P" and image.palette is None:
                raise CalibrationError("the image's pixels are numbers in a palette; it has none")
            fitting = _fitted(image.convert("L" if channels == 1 else "RGB"), (columns, rows), fit)
            pixels = np.asarray(fitting, np.float32)
    except Image.DecompressionBombError as error:
        raise CalibrationError(str(error)) from error
    pixels = pixels.reshape(rows, columns, channels)
    if channels_first:
        pixels = pixels.transpose(2, 0, 1)
    return {spec.name: np.ascontiguousarray(pixels[None], np.dtype(spec.dtype))}


def _check_pixels(image: Any, file: BinaryIO) -> None:
    """CalibrationError for an image that would take much memory or time, before it is decoded."""
    pixels = image.size[0] * image.size[1]
    if pixels > MOST_PIXELS:
        raise CalibrationError(f"the image has {pixels:,} pixels; at most {MOST_PIXELS:,}")
    scans = _count(_SCAN, file) if image.format == "JPEG" else 1
    if pixels * scans > MOST_DECODED_PIXELS:
        raise CalibrationError(
            f"the image has {pixels:,} pixels in {scans:,} scans; at most "
            f"{MOST_DECODED_PIXELS // pixels:,} are read"
        )


def _count(mark: bytes, file: BinaryIO) -> int:
    """How often ``mark`` stands in a file, which stands where it stood."""
    stood = file.tell()
    file.seek(0)
    found, kept = 0, b""
    while piece := file.read(_PIECE_BYTES):
        piece = kept + piece
        found += piece.count(mark)
        kept = piece[1 - len(mark) :]
    file.seek(stood)
    return found


def _fitted(image: Any, size: tuple[int, int], fit: Fit) -> Any:
    """An image of Pillow's with ``size`` (columns, rows); as it is where it has that."""
    from PIL import Image, ImageOps

    if image.size == size:
        return image
    if fit == "crop":
        return ImageOps.fit(image, size, Image.Resampling.BILINEAR)
    return image.resize(size, Image.Resampling.BILINEAR)


def _image_layout(spec: InputSpec) -> tuple[int, int, int, bool] | None:
    """(channels, rows, columns, channels first?) of an input that one image fits."""
    if len(spec.shape) != 4 or spec.shape[0] != 1:
        return None
    _, first, second, third = spec.shape
    if first in (1, 3):
        return first, second, third, True
    return (third, first, second, False) if third in (1, 3) else None


def _with_batch(array: Array, spec: InputSpec) -> Array:
    """``array``, with a batch axis when only that is missing."""
    one_image = spec.shape[:1] == (1,) and array.shape == spec.shape[1:]
    return array[None] if one_image else array


def _only(inputs: Inputs, kind: str) -> InputSpec:
    if len(inputs) != 1:
        names = ", ".join(repr(spec.name) for spec in inputs)
        raise CalibrationError(
            f"a {kind} file feeds one input, but the model has {len(inputs)} ({names}): use .npz "
            "files with an array for each"
        )
    return inputs[0]


_READERS: dict[str, Callable[[Path, Inputs, Fit], dict[str, Array]]] = {
    ".npy": _npy,
    ".npz": _npz,
    **dict.fromkeys(IMAGES, _image),
}
