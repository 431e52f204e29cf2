"""Images with labels for `tvm-npu accuracy`: a folder or a file -> samples of the model's input.

A folder holds what calibration takes (images, .npy, .npz with arrays by input name); labels stand
in a CSV file, ``file,label`` a line, files with or without their folder and suffix. An .npz file
may hold ``images`` [N, ...] and ``labels`` [N] instead. Values become (x * scale - mean) / std.
"""

from __future__ import annotations

import csv
import io
import os
import re
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from tvm_npu.accuracy.results import Labelled
from tvm_npu.array_files import DAMAGE, array_names, read_arrays, reason
from tvm_npu.calibration import InputSpec, Sample
from tvm_npu.calibration_files import CalibrationFiles, Fit, calibration_files
from tvm_npu.errors import AccuracyError, ImagesLeftOutWarning
from tvm_npu.sim.bounded_files import read_text_bounded
from tvm_npu.sim.texts import TextError, cause, check_values, shown

Layout = Literal["NCHW", "NHWC"]
MOST_LABEL_VALUES = 1 << 21
"""Fields and lines of a file of labels: a million files with a label each."""
_LABEL = re.compile("[+-]?[0-9]{1,18}")


@dataclass(frozen=True)
class Arithmetic:
    """(x * scale - mean) / std; ``mean`` and ``std`` have one number, or one a channel. ``preset``
    is the name in `PRESETS`, for messages."""

    scale: float = 1.0
    mean: tuple[float, ...] = (0.0,)
    std: tuple[float, ...] = (1.0,)
    bgr: bool = False
    preset: str | None = field(default=None, repr=False, compare=False)

    def apply(self, x: NDArray[Any], axis: int) -> NDArray[np.float32]:
        """``axis`` is that of the channels. AccuracyError for another number of them."""
        values = np.asarray(x, np.float32)
        if self.bgr:
            values = np.flip(values, axis)
        if not self.fits(values.shape[axis]):
            raise AccuracyError(self._fault(values.shape[axis]))
        column = [1] * values.ndim
        column[axis] = -1
        mean, std = (np.array(one, np.float32).reshape(column) for one in (self.mean, self.std))
        return np.ascontiguousarray((values * np.float32(self.scale) - mean) / std)

    def fits(self, channels: int) -> bool:
        """Whether it is for images of so many."""
        return not self._unfit(channels)

    def _unfit(self, channels: int) -> dict[str, tuple[float, ...]]:
        """Which of its numbers are not, by name."""
        named = {"mean": self.mean, "std": self.std}
        return {name: one for name, one in named.items() if len(one) not in (1, channels)}

    def _fault(self, channels: int) -> str:
        """Why it is not."""
        name, numbers = next(iter(self._unfit(channels).items()))
        have = f"images have {channels} channel{'s' * (channels != 1)}"
        if self.preset is None:
            return f"--{name} has {len(numbers)} numbers; {have}: give one, or one for each"
        others = " or ".join(key for key, one in PRESETS.items() if one.fits(channels))
        return (
            f"preset {self.preset!r} has {len(numbers)} numbers of {name}, one a channel; {have}: "
            f"give preset {others}, or scale, mean and std"
        )

    def __str__(self) -> str:
        mean, std = (" ".join(f"{one:g}" for one in of) for of in (self.mean, self.std))
        order = ", channels turned round" if self.bgr else ""
        return f"(x * {self.scale:g} - {mean}) / {std}{order}"


PRESETS = {
    name: replace(arithmetic, preset=name)
    for name, arithmetic in (
        ("imagenet", Arithmetic(1 / 255, (0.485, 0.456, 0.406), (0.229, 0.224, 0.225))),
        ("caffe", Arithmetic(1.0, (103.939, 116.779, 123.68), (1.0,), bgr=True)),
        ("zero-to-one", Arithmetic(1 / 255)),
        ("minus-one-to-one", Arithmetic(1 / 127.5, (1.0,))),
    )
}
"""How published models were trained to see images: those of torchvision and most ONNX exports;
VGG and ResNet from Caffe; values from 0 to 1; values from -1 to 1 (MobileNets of TensorFlow)."""


@dataclass(frozen=True)
class Preparation:
    """What is done to images before a model takes them."""

    arithmetic: Arithmetic = Arithmetic()
    fit: Fit = "exact"

    def __str__(self) -> str:
        fits = {"exact": "", "crop": ", cropped to fit", "stretch": ", stretched to fit"}
        return f"{self.arithmetic}{fits[self.fit]}"


@dataclass(frozen=True)
class LabelledImages:
    """Samples read file by file, every time that they are iterated. ``layout`` is that of arrays
    called ``images``; None: the one that fits."""

    path: Path
    inputs: tuple[InputSpec, ...]
    preparation: Preparation
    labels: Path | None = None
    layout: Layout | None = None

    def __iter__(self) -> Iterator[Labelled]:
        """Raises AccuracyError, and CalibrationError for files that cannot be read."""
        known = {} if self.labels is None else read_labels(self.labels)
        arrays = self._arrays()
        if arrays is not None:
            if known:
                raise AccuracyError(
                    f"labels of {str(self.labels)!r} are by file name; {str(self.path)!r} holds "
                    "many images: put an array `labels` beside `images` there"
                )
            yield from self._of_arrays(*arrays)
            return
        for path in calibration_files(self.path):
            for sample in CalibrationFiles((path,), self.inputs, self.preparation.fit):
                yield Labelled(self._prepared(sample), self._label(path, known))

    def samples(self) -> Iterator[Sample]:
        """Without labels, for calibration."""
        return (entry.sample for entry in self)

    def _label(self, path: Path, known: dict[str, int]) -> tuple[int, ...] | None:
        if not known:
            return None
        for name in (path.name, path.stem):
            if name in known:
                return (known[name],)
        raise AccuracyError(f"{str(self.labels)!r} has no label for {path.name!r}")

    def _spec(self) -> InputSpec:
        if len(self.inputs) != 1:
            raise AccuracyError(f"images feed one input; the model has {len(self.inputs)}")
        return self.inputs[0]

    def _prepared(self, sample: Sample) -> Sample:
        arithmetic = self.preparation.arithmetic
        for spec in self.inputs:
            if not spec.shape:
                raise AccuracyError(f"input {spec.name!r} is one number: it takes no images")
        return {
            spec.name: arithmetic.apply(sample[spec.name], _channel_axis(spec.shape))
            if spec.dtype.startswith("float") else sample[spec.name]
            for spec in self.inputs
        }  # fmt: skip

    def _arrays(self) -> tuple[NDArray[Any], NDArray[Any] | None] | None:
        """``images`` and ``labels`` of an .npz file that holds them."""
        if self.path.suffix.lower() != ".npz" or not os.path.isfile(self.path):
            return None
        if any(spec.name == "images" for spec in self.inputs):
            return None
        try:
            if "images" not in array_names(self.path):
                return None
            found = read_arrays(self.path)
        except DAMAGE as error:
            raise AccuracyError(
                f"cannot read images {str(self.path)!r}: {reason(error)}"
            ) from error
        images = found["images"]
        if images.dtype.kind not in "fiub":
            raise AccuracyError(
                f"images of {str(self.path)!r} are {images.dtype}; expected real numbers"
            )
        return images, found.get("labels")

    def _of_arrays(self, images: NDArray[Any], labels: NDArray[Any] | None) -> Iterator[Labelled]:
        spec = self._spec()
        images = self._laid_out(images, spec)
        batch = spec.shape[0]
        if batch < 1:
            raise AccuracyError(f"input {spec.name!r} has shape {spec.shape}: a batch of {batch}")
        known = None if labels is None else self._whole(labels, len(images))
        arithmetic = self.preparation.arithmetic
        for begin in range(0, len(images) - batch + 1, batch):
            part = arithmetic.apply(images[begin : begin + batch], _channel_axis(spec.shape))
            right = None if known is None else known[begin : begin + batch]
            yield Labelled({spec.name: part.astype(spec.dtype)}, right)
        left_out = len(images) % batch
        if left_out:
            warnings.warn(
                f"{left_out} of the {len(images)} images of {str(self.path)!r} are left out: they "
                f"do not fill a batch of {batch}",
                ImagesLeftOutWarning,
                stacklevel=2,
            )

    def _whole(self, labels: NDArray[Any], count: int) -> tuple[int, ...]:
        """Labels as whole numbers. AccuracyError for others, and for another number of them."""
        where = f"labels of {str(self.path)!r}"
        if labels.ndim != 1:
            raise AccuracyError(f"{where} have shape {labels.shape}; expected ({count},)")
        if len(labels) != count:
            raise AccuracyError(f"{len(labels)} labels for {count} images")
        if labels.dtype.kind not in "fiub":
            raise AccuracyError(f"{where} are {labels.dtype}; expected whole numbers")
        if labels.dtype.kind == "f":
            broken = np.flatnonzero(~np.isfinite(labels) | (labels != np.trunc(labels)))
            if len(broken):
                first = broken[0]
                raise AccuracyError(f"{where}: label {first} is {labels[first]}, no whole number")
        return tuple(int(one) for one in labels)

    def _laid_out(self, images: NDArray[Any], spec: InputSpec) -> NDArray[Any]:
        """Images as the input wants them. AccuracyError where they do not fit."""
        wanted = spec.shape[1:]
        as_given = bool(spec.shape and images.shape) and images.shape[1:] == wanted
        turned = images.transpose(0, 3, 1, 2) if images.ndim == 4 else images
        if as_given and self.layout != "NHWC":
            return images
        if self.layout != "NCHW" and images.ndim == 4 and turned.shape[1:] == wanted:
            return turned
        raise AccuracyError(
            f"images have shape {images.shape}{f' ({self.layout})' if self.layout else ''}; input "
            f"{spec.name!r} takes {spec.shape}"
        )


@dataclass(frozen=True)
class PreparedSamples:
    """Images without labels, for calibration; read every time that they are iterated."""

    path: Path
    inputs: tuple[InputSpec, ...]
    preparation: Preparation

    def __iter__(self) -> Iterator[Sample]:
        """Raises what iterating `LabelledImages` raises."""
        return LabelledImages(self.path, self.inputs, self.preparation).samples()


def _channel_axis(shape: tuple[int, ...]) -> int:
    if len(shape) < 2:
        return 0
    is_last = len(shape) == 4 and shape[3] in (1, 3) and shape[1] not in (1, 3)
    return len(shape) - 1 if is_last else 1


def read_labels(path: Path) -> dict[str, int]:
    """Label by file name and by name without suffix. AccuracyError for another file."""
    rows = _rows(path)
    names = [one.strip().lower() for one in rows[0][1]] if rows else []
    at = (names.index("file"), names.index("label")) if {"file", "label"} <= set(names) else (0, 1)
    labels: dict[str, tuple[int, int]] = {}
    for line, row in rows[1 if at != (0, 1) or "label" in names else 0 :]:
        if len(row) <= max(at) or not row[at[1]].strip():
            continue
        where, text = f"{str(path)!r}, line {line}", row[at[1]].strip()
        if _LABEL.fullmatch(text) is None:
            raise AccuracyError(
                f"{where}: label {shown(text)} is no whole number of 1 to 18 digits"
            )
        # Not a Path, of which a million take a second more.
        name, label = os.path.basename(row[at[0]].strip().rstrip("/")), int(text)
        for key in (name, os.path.splitext(name)[0]):
            other, first = labels.setdefault(key, (label, line))
            if other != label:
                raise AccuracyError(
                    f"{where}: label {label} for {shown(key)}, which has label {other} in line "
                    f"{first}; a file's folder and suffix do not count, so rename one"
                )
    if not labels:
        raise AccuracyError(f"{str(path)!r} holds no labels: lines of file,label are expected")
    return {key: label for key, (label, _) in labels.items()}


def _rows(path: Path) -> list[tuple[int, list[str]]]:
    """(number of its last line, fields) of each row that is not empty."""
    line = 0
    try:
        text = read_text_bounded(path, newline="")
        check_values(text, MOST_LABEL_VALUES, ",\n\r", "; keep the labels of images that you have")
        reader = csv.reader(io.StringIO(text, newline=""))
        rows = []
        for row in reader:
            line = reader.line_num
            if row:
                rows.append((line, row))
        return rows
    except csv.Error as error:
        raise AccuracyError(f"{str(path)!r}, line {line + 1}: {error}") from error
    except (OSError, UnicodeDecodeError, TextError) as error:
        raise AccuracyError(
            f"cannot read labels {str(path)!r}: {cause(error)}; lines of file,label are expected"
        ) from error
