"""The deployment test set: preprocessing, references, labels, detection lists."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest

from tvm_npu import models
from tvm_npu.models import detection
from tvm_npu.models.shared import ENVIRONMENT_VARIABLE, MODELS, SharedModels, find_shared_models

ort = pytest.importorskip("onnxruntime")
pytest.importorskip("PIL")

needs_folder = pytest.mark.skipif(
    find_shared_models() is None,
    reason=f"no folder of pretrained models: set {ENVIRONMENT_VARIABLE} or provide "
    "../shared/models beside the checkout",
)
CLASSIFIERS = {
    # model -> images of its set that the float network gets right
    "mnist_cntk": 10,
    "squeezenet1.1": 6,
    "resnet8_cifar10": 9,
    "resnet20_cifar10": 10,
    "mobilenet_v2_1.0_224": 8,
    "mobilenet_v1_0.25_vww96": 6,
}


@pytest.fixture(scope="module")
def shared() -> SharedModels:
    root = find_shared_models()
    assert root is not None
    return SharedModels(root)


@needs_folder
@pytest.mark.parametrize("name", list(MODELS))
def test_references(shared: SharedModels, name: str) -> None:
    """onnxruntime on our preprocessing gives the recorded outputs."""
    model = shared.load(name)
    onnx.checker.check_model(model)
    assert models.macs(model) > 100_000
    session = ort.InferenceSession(str(shared.path(name)))
    entry = shared.input_name(name)
    references = shared.references(name)
    labels = shared.labels(name)
    correct = 0
    inputs = shared.inputs(name)
    assert inputs
    for image, x in inputs:
        assert x.dtype == np.float32 and x.flags.c_contiguous
        found = dict(
            zip([o.name for o in session.get_outputs()], session.run(None, {entry: x}), strict=True)
        )
        assert set(found) == set(references[image])
        for output, value in found.items():
            scale = float(np.abs(references[image][output]).max())
            np.testing.assert_allclose(value, references[image][output], atol=1e-4 * scale)
        if name in CLASSIFIERS:
            correct += int(next(iter(found.values())).argmax() == labels[image])
    assert correct == CLASSIFIERS.get(name, 0)


@needs_folder
def test_faces(shared: SharedModels) -> None:
    references = shared.references("ultraface_rfb320")
    faces = {
        image: detection.detections(outputs["scores"], detection.ultraface_boxes(outputs["boxes"]))
        for image, outputs in references.items()
    }
    assert {image: len(found) for image, found in faces.items()} == shared.labels(
        "ultraface_rfb320"
    )
    corners = [tuple(round(edge) for edge in face.box) for face in faces["four_faces"]]
    assert corners == [
        (82, 54, 139, 137),
        (163, 32, 217, 114),
        (274, 80, 306, 125),
        (4, 68, 31, 108),
    ]


@needs_folder
def test_super_resolution(shared: SharedModels) -> None:
    (outputs,) = shared.references("super_resolution_x3").values()
    (found,) = outputs.values()
    error = np.clip(found, 0.0, 1.0) - shared.super_resolution_truth()
    psnr_db = -10.0 * np.log10(np.square(error).mean())
    assert psnr_db > 30.02  # bicubic interpolation


@needs_folder
def test_bulk_sets(shared: SharedModels) -> None:
    images, labels = shared.mnist_test()
    assert images.shape == (10_000, 1, 28, 28) and labels.shape == (10_000,)
    assert (images.dtype, images.min(), images.max()) == (np.float32, 0.0, 255.0)
    session = ort.InferenceSession(str(shared.path("mnist_cntk")))
    entry = shared.input_name("mnist_cntk")
    right = [
        session.run(None, {entry: image[None]})[0].argmax() == label
        for image, label in zip(images[:1000], labels[:1000], strict=True)
    ]
    assert np.mean(right) > 0.98
    pixels, classes = shared.cifar_test()
    assert pixels.shape == (500, 32, 32, 3) and pixels.dtype == np.uint8
    assert np.bincount(classes).tolist() == [50] * 10
    x = shared.preprocess("resnet20_cifar10", pixels)
    session = ort.InferenceSession(str(shared.path("resnet20_cifar10")))
    right = [
        session.run(None, {"input": image[None]})[0].argmax() == label
        for image, label in zip(x, classes, strict=True)
    ]
    assert sum(right) == pytest.approx(399, abs=1)


@needs_folder
def test_unknown_shared_model(shared: SharedModels) -> None:
    with pytest.raises(models.UnknownModelError, match="'vgg'; known models: mnist_cntk, "):
        shared.load("vgg")


def test_folder_of_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(ENVIRONMENT_VARIABLE, "")
    assert find_shared_models() is None
    monkeypatch.setenv(ENVIRONMENT_VARIABLE, str(tmp_path))
    with pytest.raises(models.ModelDataError, match="has no folder models/"):
        find_shared_models()
    for part in ("models", "images", "refs"):
        (tmp_path / part).mkdir()
    assert find_shared_models() == tmp_path
    folder = SharedModels(tmp_path)
    assert folder.names() == ()
    with pytest.raises(models.ModelDataError, match=r"has no file models/mnist_cntk\.onnx"):
        folder.load("mnist_cntk")


def test_bgr_preprocessing(tmp_path: Path) -> None:
    for part in ("models", "images", "refs"):
        (tmp_path / part).mkdir()
    pixels = np.array([[[[10, 20, 30]]]], dtype=np.uint8)
    x = SharedModels(tmp_path).preprocess("squeezenet1.1", pixels)
    assert x.reshape(-1).tolist() == [30 - 104, 20 - 117, 10 - 123]
    grey = SharedModels(tmp_path).preprocess("mobilenet_v1_0.25_vww96", pixels)
    np.testing.assert_array_equal(grey.reshape(-1), np.float32([10, 20, 30]) / np.float32(255))


def test_detections_suppress_overlap() -> None:
    scores = np.array([[[0.1, 0.8], [0.1, 0.9], [0.1, 0.75], [0.9, 0.7]]], dtype=np.float32)
    boxes = np.array(
        [[[0, 0, 10, 10], [1, 0, 11, 10], [50, 50, 60, 60], [80, 80, 90, 90]]], dtype=np.float32
    )
    found = detection.detections(scores, boxes)
    assert [round(face.score, 2) for face in found] == [0.9, 0.75]
    assert detection.matched(found, found) == 2
    assert detection.matched(found, found[:1]) == 1
    assert detection.iou(found[0], found[0]) == 1.0
    assert detection.iou(found[0], found[1]) == 0.0


def test_ultraface_anchors() -> None:
    anchors = detection.ultraface_anchors()
    assert anchors.shape == (4420, 4)
    np.testing.assert_allclose(anchors[0], [0.0125, 1 / 60, 10 / 320, 10 / 240], rtol=1e-6)
    assert anchors.min() >= 0.0 and anchors.max() <= 1.0
