"""Options of commands that take labelled images."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from tvm_npu.cli.arguments import non_negative

if TYPE_CHECKING:
    from tvm_npu.calibration import InputSpec
    from tvm_npu.cli.labelled_images import Arithmetic, LabelledImages


def add_image_arguments(
    parser: argparse.ArgumentParser, *, required: bool, limit: int | None = None
) -> None:
    """``args.files`` is where images are; None where they are not required and not given."""
    parser.add_argument(
        "--images", dest="files", type=Path, required=required, metavar="DIR|NPZ",
        help="a folder of .png, .npy and .npz files, or one such file",
    )  # fmt: skip
    parser.add_argument(
        "--labels", type=Path, metavar="CSV", help="lines of file,label for images in a folder"
    )
    add_arithmetic_arguments(parser)
    parser.add_argument(
        "--layout", choices=("NCHW", "NHWC"), help="of the array `images` (default: what fits)"
    )
    parser.add_argument(
        "--limit", type=non_negative, metavar="N", default=limit,
        help=f"use the first N samples (default: {'all' if limit is None else limit})",
    )  # fmt: skip


def add_arithmetic_arguments(parser: argparse.ArgumentParser) -> None:
    """How values of images become those that a model takes."""
    parser.add_argument(
        "--scale", type=float, default=1.0, metavar="X",
        help="values become (x * scale - mean) / std (default: 1)",
    )  # fmt: skip
    for name, default in (("mean", 0.0), ("std", 1.0)):
        parser.add_argument(
            f"--{name}", type=float, nargs="+", default=[default], metavar="X",
            help=f"one number, or one a channel (default: {default:g})",
        )  # fmt: skip
    parser.add_argument("--bgr", action="store_true", help="turn the order of channels round first")


def images_of(args: argparse.Namespace, inputs: Sequence[InputSpec]) -> LabelledImages:
    """What the options name, for a model with ``inputs``."""
    from tvm_npu.cli.labelled_images import LabelledImages

    return LabelledImages(args.files, tuple(inputs), arithmetic_of(args), args.labels, args.layout)


def arithmetic_of(args: argparse.Namespace) -> Arithmetic:
    """What `add_arithmetic_arguments` was given."""
    from tvm_npu.cli.labelled_images import Arithmetic

    return Arithmetic(args.scale, tuple(args.mean), tuple(args.std), args.bgr)
