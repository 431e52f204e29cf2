"""A small trained network with real test data: a LeNet for scikit-learn's 8x8 digits.

| layer | output |
|---|---|
| conv1 3x3, padding 1, ReLU; max-pool 2 | 16 x 4 x 4 |
| conv2 3x3, padding 1, ReLU; max-pool 2 | 32 x 2 x 2 |
| fc1, ReLU | 64 |
| fc2 | 10 |

The files lie in `data/` and are made by `scripts/train_digits_lenet`. The images are the
"Optical Recognition of Handwritten Digits" test set of the UCI repository (CC BY 4.0), in the
form in which scikit-learn distributes it: values 0..16, here divided by 16.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt
import onnx

from .errors import ModelDataError

FOLDER = Path(__file__).parent / "data"
PIXEL_MAXIMUM = 16.0

Images = npt.NDArray[np.float32]
Labels = npt.NDArray[np.int64]


def load_digits_lenet() -> onnx.ModelProto:
    """The trained network: `image` [1, 1, 8, 8] in 0..1 -> `logits` [1, 10]."""
    return onnx.load(_existing("digits_lenet.onnx"))


def load_digits() -> tuple[Images, Labels]:
    """The held-out test split: images [N, 1, 8, 8] float32 in 0..1, labels [N]."""
    with np.load(_existing("digits.npz"), allow_pickle=False) as arrays:
        return _scaled(arrays["test_images"]), arrays["test_labels"].astype(np.int64)


def load_digits_calibration() -> Images:
    """64 training images [64, 1, 8, 8] float32 in 0..1, for quantization ranges."""
    with np.load(_existing("digits.npz"), allow_pickle=False) as arrays:
        return _scaled(arrays["calibration_images"])


def _scaled(pixels: npt.NDArray[np.uint8]) -> Images:
    return (pixels / PIXEL_MAXIMUM).astype(np.float32)


def _existing(name: str) -> Path:
    path = FOLDER / name
    if not path.is_file():
        raise ModelDataError(f"{path} is missing; make it with scripts/train_digits_lenet")
    return path
