"""CNNs to compile: the published architectures with seeded weights, and small trained ones.

`build(name)` makes a network of the literature at its published size (or scaled by batch,
input size and width) with deterministic He-scaled weights. Inputs are expected to have about
zero mean and unit power. Classifiers put out logits, without a Softmax; detectors their raw maps;
the other networks their last feature map.

`build_recurrent(cell, hidden=...)` makes stacked LSTMs and GRUs.

See also `data` (a LeNet trained on digits), `light` (the nine light models of the onnx
package) and `shared` (a folder of pretrained models with reference outputs).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tvm_npu.errors import MissingOnnxError

try:
    import onnx
except ModuleNotFoundError as error:
    if error.name != "onnx":
        raise
    raise MissingOnnxError(
        "tvm_npu.models needs onnx: in the checkout, pip install '.[relay]' (onnx 1.18, for TVM "
        "0.19) or '.[relax]' (the newest, for TVM 0.26 and later)",
        name="onnx",
    ) from error

from . import (
    alexnet,
    convnext,
    deeplab_v3,
    efficientnet,
    flownet,
    googlenet,
    inception_v3,
    lenet,
    light_cnn,
    linknet,
    mobilenet_v2,
    mobilenet_v3,
    regnet,
    resnet,
    shufflenet_v2,
    squeezenet,
    style_transfer,
    synthetic,
    unet,
    vgg,
    yolo,
    yolov5,
)
from ._macs import Shapes, macs, macs_by_node, static_shapes
from .errors import (
    ModelArgumentError,
    ModelDataError,
    ModelError,
    ModelShapeError,
    UnknownModelError,
)
from .recurrent import build_recurrent

__all__ = [
    "ModelArgumentError",
    "ModelDataError",
    "ModelError",
    "ModelShapeError",
    "Shapes",
    "UnknownModelError",
    "build",
    "build_recurrent",
    "macs",
    "macs_by_node",
    "names",
    "static_shapes",
]

MAXIMUM_BATCH = 256
MAXIMUM_SIZE = 2048
MAXIMUM_WIDTH = 4.0


@dataclass(frozen=True)
class _Family:
    build: Callable[..., onnx.ModelProto]
    default_size: int
    minimum_size: int


_FAMILIES = {
    "lenet": _Family(lenet.build_lenet, lenet.DEFAULT_SIZE, lenet.MINIMUM_SIZE),
    "squeezenet1.0": _Family(
        squeezenet.build_squeezenet, squeezenet.DEFAULT_SIZE, squeezenet.MINIMUM_SIZE
    ),
    "mobilenet_v2": _Family(
        mobilenet_v2.build_mobilenet_v2, mobilenet_v2.DEFAULT_SIZE, mobilenet_v2.MINIMUM_SIZE
    ),
    "resnet50": _Family(resnet.build_resnet50, resnet.DEFAULT_SIZE, resnet.MINIMUM_SIZE),
    "inception_v3": _Family(
        inception_v3.build_inception_v3, inception_v3.DEFAULT_SIZE, inception_v3.MINIMUM_SIZE
    ),
    "squeezenet1.1": _Family(
        squeezenet.build_squeezenet1_1, squeezenet.DEFAULT_SIZE, squeezenet.MINIMUM_SIZE
    ),
    "resnet50_v1.5": _Family(resnet.build_resnet50_v1_5, resnet.DEFAULT_SIZE, resnet.MINIMUM_SIZE),
    "vgg16": _Family(vgg.build_vgg16, vgg.DEFAULT_SIZE, vgg.MINIMUM_SIZE),
    "alexnet": _Family(alexnet.build_alexnet, alexnet.DEFAULT_SIZE, alexnet.MINIMUM_SIZE),
    "yolov2": _Family(yolo.build_yolov2, yolo.V2_DEFAULT_SIZE, yolo.MINIMUM_SIZE),
    "yolov2_eplanner": _Family(yolo.build_yolov2_eplanner, yolo.V2_DEFAULT_SIZE, yolo.MINIMUM_SIZE),
    "yolov3": _Family(yolo.build_yolov3, yolo.V3_DEFAULT_SIZE, yolo.MINIMUM_SIZE),
    "darknet53": _Family(yolo.build_darknet53, yolo.V3_DEFAULT_SIZE, yolo.MINIMUM_SIZE),
    "flownet_s": _Family(flownet.build_flownet_s, flownet.DEFAULT_SIZE, flownet.MINIMUM_SIZE),
    "synthnet": _Family(
        synthetic.build_synthnet, synthetic.SYNTHNET_DEFAULT_SIZE, synthetic.SYNTHNET_MINIMUM_SIZE
    ),
    **{
        name: _Family(build_synth, synthetic.SYNTH_DEFAULT_SIZE, synthetic.SYNTH_MINIMUM_SIZE)
        for name, build_synth in (
            ("synth1", synthetic.build_synth1),
            ("synth2", synthetic.build_synth2),
            ("synth3", synthetic.build_synth3),
        )
    },
    "alexnet_owt": _Family(
        alexnet.build_alexnet_owt, alexnet.OWT_DEFAULT_SIZE, alexnet.MINIMUM_SIZE
    ),
    "resnet18": _Family(resnet.build_resnet18, resnet.DEFAULT_SIZE, resnet.MINIMUM_SIZE),
    "resnet34": _Family(resnet.build_resnet34, resnet.DEFAULT_SIZE, resnet.MINIMUM_SIZE),
    "googlenet": _Family(googlenet.build_googlenet, googlenet.DEFAULT_SIZE, googlenet.MINIMUM_SIZE),
    "vgg19": _Family(vgg.build_vgg19, vgg.DEFAULT_SIZE, vgg.MINIMUM_SIZE),
    "light_cnn_9": _Family(
        light_cnn.build_light_cnn_9, light_cnn.DEFAULT_SIZE, light_cnn.MINIMUM_SIZE
    ),
    "linknet": _Family(linknet.build_linknet, linknet.DEFAULT_SIZE, linknet.MINIMUM_SIZE),
    "style_transfer": _Family(
        style_transfer.build_style_transfer,
        style_transfer.DEFAULT_SIZE,
        style_transfer.MINIMUM_SIZE,
    ),
    "efficientnet_b0": _Family(
        efficientnet.build_efficientnet_b0, efficientnet.DEFAULT_SIZE, efficientnet.MINIMUM_SIZE
    ),
    "mobilenet_v3_large": _Family(
        mobilenet_v3.build_mobilenet_v3_large, mobilenet_v3.DEFAULT_SIZE, mobilenet_v3.MINIMUM_SIZE
    ),
    "mobilenet_v3_small": _Family(
        mobilenet_v3.build_mobilenet_v3_small, mobilenet_v3.DEFAULT_SIZE, mobilenet_v3.MINIMUM_SIZE
    ),
    "regnet_y_400mf": _Family(
        regnet.build_regnet_y_400mf, regnet.DEFAULT_SIZE, regnet.MINIMUM_SIZE
    ),
    "shufflenet_v2": _Family(
        shufflenet_v2.build_shufflenet_v2, shufflenet_v2.DEFAULT_SIZE, shufflenet_v2.MINIMUM_SIZE
    ),
    "unet": _Family(unet.build_unet, unet.DEFAULT_SIZE, unet.MINIMUM_SIZE),
    "yolov5n": _Family(yolov5.build_yolov5n, yolov5.DEFAULT_SIZE, yolov5.MINIMUM_SIZE),
    "deeplabv3_mobilenet_v3": _Family(
        deeplab_v3.build_deeplabv3_mobilenet_v3, deeplab_v3.DEFAULT_SIZE, deeplab_v3.MINIMUM_SIZE
    ),
    "convnext_tiny": _Family(
        convnext.build_convnext_tiny, convnext.DEFAULT_SIZE, convnext.MINIMUM_SIZE
    ),
}


def names() -> tuple[str, ...]:
    """The names that `build` knows."""
    return tuple(_FAMILIES)


def build(
    name: str,
    *,
    seed: int = 0,
    batch: int = 1,
    input_size: int | None = None,
    width: float = 1.0,
) -> onnx.ModelProto:
    """The network `name`: opset 13, NCHW float32 [batch, C, input_size, input_size].

    `input_size` defaults to the published one; `width` multiplies the inner channel counts.
    The same arguments give the same bytes.
    """
    family = _FAMILIES.get(name) if isinstance(name, str) else None
    if family is None:
        raise UnknownModelError(name, names())
    size = family.default_size if input_size is None else input_size
    _check_integer("seed", seed, 0, 2**63 - 1)
    _check_integer("batch", batch, 1, MAXIMUM_BATCH)
    _check_integer(f"input_size of {name}", size, family.minimum_size, MAXIMUM_SIZE)
    if isinstance(width, bool) or not isinstance(width, (int, float)):
        raise ModelArgumentError("width", width, f"a number above 0 up to {MAXIMUM_WIDTH}")
    if not 0.0 < width <= MAXIMUM_WIDTH:
        raise ModelArgumentError("width", width, f"a number above 0 up to {MAXIMUM_WIDTH}")
    return family.build(seed=seed, batch=batch, input_size=size, width=float(width))


def _check_integer(argument: str, value: object, low: int, high: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise ModelArgumentError(argument, value, f"an integer from {low} to {high}")
