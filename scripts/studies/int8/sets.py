"""Networks with labelled images, and other images for calibration."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray

from tvm_npu.accuracy import Labelled
from tvm_npu.models import data
from tvm_npu.models.shared import MODELS, SharedModels, find_shared_models

DIGITS = "digits_lenet"
SETS = (
    DIGITS, "mnist_cntk", "resnet8_cifar10", "resnet20_cifar10", "mobilenet_v1_0.25_vww96",
    "squeezenet1.1", "mobilenet_v2_1.0_224",
)  # fmt: skip


@dataclass(frozen=True)
class LabelledSet:
    """``images`` [N, C, H, W] as the network takes them, ``labels`` [N]; ``calibration`` the same
    form. For the person detector both are its few images."""

    model: onnx.ModelProto
    entry: str
    images: NDArray[np.float32]
    labels: NDArray[Any]
    calibration: NDArray[np.float32]

    def samples(self, count: int | None) -> Iterator[Labelled]:
        """With the outputs that onnxruntime computes."""
        import onnxruntime

        settings = onnxruntime.SessionOptions()
        settings.intra_op_num_threads = 1
        session = onnxruntime.InferenceSession(
            self.model.SerializeToString(), settings, providers=["CPUExecutionProvider"]
        )
        for image, label in zip(self.images[:count], self.labels[:count], strict=True):
            feed = {self.entry: image[None]}
            yield Labelled(feed, (int(label),), tuple(session.run(None, feed)))


def available() -> tuple[str, ...]:
    """Of `SETS`, those whose files are there."""
    return SETS if find_shared_models() is not None else (DIGITS,)


def labelled_set(name: str) -> LabelledSet:
    """One of `available`."""
    if name == DIGITS:
        model = data.load_digits_lenet()
        images, labels = data.load_digits()
        entry = model.graph.input[0].name
        return LabelledSet(model, entry, images, labels, data.load_digits_calibration()[:16])
    root = find_shared_models()
    assert root is not None
    shared = SharedModels(root)
    calibration = np.concatenate([image for _, image in shared.inputs(name)])
    images, labels = _images(shared, name)
    return LabelledSet(shared.load(name), shared.input_name(name), images, labels, calibration)


def _images(shared: SharedModels, name: str) -> tuple[NDArray[np.float32], NDArray[Any]]:
    folder = MODELS[name].images
    if folder == "mnist28":
        return shared.mnist_test()
    if folder == "cifar32":
        pixels, labels = shared.cifar_test()
        order = np.random.default_rng(0).permutation(len(labels))  # a part has all classes
        return shared.preprocess(name, pixels[order]), labels[order]
    if folder == "photo224":
        pixels, labels = shared.photographs()
        return shared.preprocess(name, pixels), labels + MODELS[name].label_offset
    found = shared.labels(name)
    own = [(image, found[label]) for label, image in shared.inputs(name) if label in found]
    return np.concatenate([image for image, _ in own]), np.array([label for _, label in own])
