"""The main benchmark's models, inputs, calibration data, and how answers are judged."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import onnx
from numpy.typing import NDArray

from tvm_npu import models
from tvm_npu.cli.errors import UsageError
from tvm_npu.models import data, light
from tvm_npu.models.shared import SharedModels, find_shared_models

Float = NDArray[np.float32]
Judge = Literal["class", "detection", "none"]
Group = Literal["pretrained", "light", "built", "modern"]

BUILT = ("lenet", "squeezenet1.0", "mobilenet_v2", "resnet50", "inception_v3")
"""Of `tvm_npu.models` the networks of the TSO paper; the larger ones have their reproductions."""

MODERN = (
    "efficientnet_b0", "mobilenet_v3_large", "mobilenet_v3_small", "regnet_y_400mf",
    "shufflenet_v2", "unet", "yolov5n", "deeplabv3_mobilenet_v3", "convnext_tiny",
)  # fmt: skip
"""Of `tvm_npu.models` networks with gates, smooth activations, shuffles and resizes."""
MAPS = ("unet", "yolov5n", "deeplabv3_mobilenet_v3")
"""Networks whose answers are maps: they have no class."""

CALIBRATION_IMAGES = 32
"""At most so many images of a bulk set calibrate; single images all do."""
RANDOM_CALIBRATION = 4
"""Random images that calibrate models without images: two miss the largest values of some."""


@dataclass(frozen=True)
class Inputs:
    """``images`` [N, ...] with N ``labels`` (None: no truth known), ``calibration`` [K, ...]."""

    images: Float
    labels: NDArray[np.int64] | None
    calibration: Float


@dataclass(frozen=True)
class Case:
    """One model of the benchmark; nothing is loaded before the functions are called.

    ``judge``: how an answer is read from the outputs: the top-1 class of the first output, a list
    of detections, or not at all.
    """

    name: str
    group: Group
    model: Callable[[], onnx.ModelProto]
    inputs: Callable[[], Inputs]
    judge: Judge = "class"


def image_input(model: onnx.ModelProto) -> onnx.ValueInfoProto:
    """The input of a model that takes one image; old models list their weights as inputs, too."""
    weights = {item.name for item in model.graph.initializer}
    return next(item for item in model.graph.input if item.name not in weights)


def _random_images(model: Callable[[], onnx.ModelProto], count: int) -> Callable[[], Inputs]:
    def make() -> Inputs:
        shape = [d.dim_value for d in image_input(model()).type.tensor_type.shape.dim]
        rng = np.random.default_rng(1)
        many = (count + RANDOM_CALIBRATION, *shape[1:])
        images = rng.standard_normal(many).astype(np.float32)
        return Inputs(images[:count], None, images[count:])

    return make


def _digits() -> Inputs:
    images, labels = data.load_digits()
    return Inputs(images, labels.astype(np.int64), data.load_digits_calibration())


def _folder_inputs(shared: SharedModels, name: str, labelled: bool) -> Callable[[], Inputs]:
    def make() -> Inputs:
        named = shared.inputs(name)
        images = np.concatenate([x for _, x in named])
        labels = shared.labels(name)
        truth = np.array([labels[image] for image, _ in named]) if labelled else None
        return Inputs(images, truth, images)

    return make


def _cifar(shared: SharedModels, name: str) -> Callable[[], Inputs]:
    def make() -> Inputs:
        pixels, labels = shared.cifar_test()
        calibration = np.concatenate([x for _, x in shared.inputs(name)])
        return Inputs(shared.preprocess(name, pixels), labels.astype(np.int64), calibration)

    return make


def _mnist(shared: SharedModels) -> Inputs:
    images, labels = shared.mnist_test()
    calibration = np.concatenate([x for _, x in shared.inputs("mnist_cntk")])
    return Inputs(images, labels.astype(np.int64), calibration)


def _pretrained(shared: SharedModels) -> list[Case]:
    def case(name: str, inputs: Callable[[], Inputs], judge: Judge = "class") -> Case:
        return Case(name, "pretrained", lambda: shared.load(name), inputs, judge)

    return [
        case("mnist_cntk", lambda: _mnist(shared)),
        case("resnet8_cifar10", _cifar(shared, "resnet8_cifar10")),
        case("resnet20_cifar10", _cifar(shared, "resnet20_cifar10")),
        *(
            case(name, _folder_inputs(shared, name, labelled=True))
            for name in ("squeezenet1.1", "mobilenet_v2_1.0_224", "mobilenet_v1_0.25_vww96")
        ),
        case("super_resolution_x3", _folder_inputs(shared, "super_resolution_x3", False), "none"),
        case(
            "ultraface_rfb320", _folder_inputs(shared, "ultraface_rfb320", True), "detection"
        ),
    ]  # fmt: skip


def _light(name: str) -> Case:
    def model() -> onnx.ModelProto:
        return light.build_light(name)

    return Case(f"light-{name}", "light", model, _random_images(model, 1))


def _built(name: str, group: Group = "built") -> Case:
    def model() -> onnx.ModelProto:
        return models.build(name)

    judge: Judge = "none" if name in MAPS else "class"
    return Case(name, group, model, _random_images(model, 1), judge)


def chosen_names(names: Sequence[str] | None) -> list[str]:
    """Each once. Raises UsageError for a name that `cases` does not have."""
    known = cases()
    for name in names or ():
        if name not in known:
            raise UsageError(f"unknown model {name!r}; known: {', '.join(known)}")
    return list(dict.fromkeys(names or ()))


def cases() -> dict[str, Case]:
    """All cases by name; the pretrained ones only where their folder exists."""
    shared = find_shared_models()
    found = [Case("digits_lenet", "built", data.load_digits_lenet, _digits)]
    found += [_built(name) for name in BUILT]
    if shared is not None:
        found += _pretrained(SharedModels(shared))
    found += [_light(name) for name in light.light_models()]
    found += [_built(name, "modern") for name in MODERN]
    named = {case.name: case for case in found}
    assert len(named) == len(found)
    return named
