"""Options of commands that take images, for calibration or with labels."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from tvm_npu.cli.arguments import Names, divisor, finite, positive
from tvm_npu.cli.errors import UsageError
from tvm_npu.cli.only_with import given

if TYPE_CHECKING:
    from tvm_npu.accuracy.images import LabelledImages, Preparation
    from tvm_npu.calibration import InputSpec, Sample
    from tvm_npu.calibration_files import Fit

_ARITHMETIC = ("--scale", "--mean", "--std", "--bgr")
PREPARATION = ("--preset", *_ARITHMETIC, "--fit")
"""The options of `add_preparation_arguments`."""


def add_image_arguments(
    parser: argparse.ArgumentParser, *, required: bool, default_limit: int | None = None
) -> None:
    """``args.files`` is where images are; None where they are not required and not given.
    ``default_limit`` is what the command makes of no --limit."""
    parser.add_argument(
        "--images", dest="files", type=Path, required=required, metavar="DIR|NPZ",
        help="a folder of .png, .jpg, .npy and .npz files, or one such file",
    )  # fmt: skip
    parser.add_argument(
        "--labels", type=Path, metavar="CSV", help="lines of file,label for images in a folder"
    )
    add_preparation_arguments(parser)
    parser.add_argument(
        "--layout", choices=("NCHW", "NHWC"), help="of the array `images` (default: what fits)"
    )
    parser.add_argument(
        "--limit", type=positive, metavar="N",
        help=f"use the first N samples (default: {default_limit or 'all'})",
    )  # fmt: skip


def add_preparation_arguments(parser: argparse.ArgumentParser) -> None:
    """How images become what a model takes."""
    parser.add_argument(
        "--preset", choices=Names(_preset_names), metavar="NAME",
        help="how models of a family take images, in the place of the next four options: imagenet "
        "(torchvision and most ONNX exports), caffe, zero-to-one or minus-one-to-one",
    )  # fmt: skip
    parser.add_argument(
        "--scale", type=finite, metavar="X", help="values become (x * scale - mean) / std"
    )
    for name, number in (("mean", finite), ("std", divisor)):
        parser.add_argument(
            f"--{name}", type=number, nargs="+", metavar="X", help="one number, or one a channel"
        )
    parser.add_argument("--bgr", action="store_true", help="turn the order of channels round first")
    parser.add_argument(
        "--fit", choices=("exact", "crop", "stretch"),
        help="images of another size than the input's: an error, cut out of their middle, or "
        "stretched (default: exact)",
    )  # fmt: skip


def images_of(args: argparse.Namespace, inputs: Sequence[InputSpec]) -> LabelledImages:
    """What the options name, for a model with ``inputs``."""
    from tvm_npu.accuracy.images import LabelledImages

    return LabelledImages(args.files, tuple(inputs), preparation_of(args), args.labels, args.layout)


def preparation_of(args: argparse.Namespace) -> Preparation:
    """What `add_preparation_arguments` was given. Raises UsageError for a preset beside numbers."""
    from tvm_npu.accuracy.images import PRESETS, Arithmetic, Preparation

    fit: Fit = args.fit or "exact"
    if args.preset is None:
        scale = 1.0 if args.scale is None else args.scale
        mean, std = tuple(args.mean or [0.0]), tuple(args.std or [1.0])
        return Preparation(Arithmetic(scale, mean, std, args.bgr), fit)
    said = [option for option in _ARITHMETIC if given(args, option)]
    if said:
        options = ", ".join(said)
        raise UsageError(f"argument --preset: not allowed with {options}, which it stands for")
    return Preparation(PRESETS[args.preset], fit)


def prepares(args: argparse.Namespace) -> bool:
    """Whether `add_preparation_arguments` was given anything."""
    return any(given(args, option) for option in PREPARATION)


def calibration_of(args: argparse.Namespace, inputs: Sequence[InputSpec]) -> Iterable[Sample]:
    """The samples of ``--calibration``, prepared as the options say."""
    from tvm_npu.accuracy.images import PreparedSamples
    from tvm_npu.calibration_files import CalibrationFiles, calibration_files

    files = calibration_files(args.calibration)
    if prepares(args):
        return PreparedSamples(args.calibration, tuple(inputs), preparation_of(args))
    return CalibrationFiles(files, tuple(inputs))


def _preset_names() -> tuple[str, ...]:
    from tvm_npu.accuracy.images import PRESETS

    return tuple(PRESETS)
