"""YOLOv2 and YOLOv3 (Redmon and Farhadi, arXiv:1612.08242 and 1804.02767) with COCO heads.

Batch normalization and a leaky ReLU of slope 0.1 stand behind every convolution but those that
make an output. Outputs are the raw maps [N, anchors * (5 + classes), H, W] before any decoding.

YOLOv2 has 23 convolutions; at 608x608 these are 50,941,792 weights (194.328 MiB) and 31.469 GMAC
(29.308 x 2^30). The e-PlaNNer thesis (Table 8.1) prints 194.265 MB and 27.898 G operations; both
figures come out to the last digit when the second convolution is 1x1 instead of 3x3, and with no
other input size or head that we tried. `yolov2_eplanner` is that network.

The passthrough turns [N, 64, 2 H, 2 W] into [N, 256, H, W] by strided slices and a concatenation
(the order of ONNX SpaceToDepth; Darknet's own order is another fixed permutation).

YOLOv3 has 75 convolutions, 52 of them in its backbone Darknet-53 (whose 53rd layer is the
classifier): the 52 compute intensive layers that the Shisha paper counts. `darknet53` is that
backbone alone; its output is the last feature map.
"""

from __future__ import annotations

import onnx

from ._builder import NetworkBuilder, Tensor
from .errors import ModelArgumentError

V2_DEFAULT_SIZE = 608
V3_DEFAULT_SIZE = 416
STRIDE = 32
MINIMUM_SIZE = STRIDE
SLOPE = 0.1
CLASSES = 80
V2_ANCHORS = 5
V3_ANCHORS = 3

V2_STAGES = (
    # (channels, kernel) of the convolutions; a 2x2 max-pool stands between two stages
    ((32, 3),),
    ((64, 3),),
    ((128, 3), (64, 1), (128, 3)),
    ((256, 3), (128, 1), (256, 3)),
    ((512, 3), (256, 1), (512, 3), (256, 1), (512, 3)),
    ((1024, 3), (512, 1), (1024, 3), (512, 1), (1024, 3), (1024, 3), (1024, 3)),
)
V2_PASSTHROUGH_STAGE = 5
V2_PASSTHROUGH_CHANNELS = 64

V3_STAGES = (
    # channels behind the 3x3/2 convolution, residual blocks
    (64, 1),
    (128, 2),
    (256, 8),
    (512, 8),
    (1024, 4),
)


def build_yolov2(*, seed: int, batch: int, input_size: int, width: float) -> onnx.ModelProto:
    """[N, 3, S, S] -> [N, 425, S / 32, S / 32]."""
    return _yolov2("yolov2", V2_STAGES, seed, batch, input_size, width)


def build_yolov2_eplanner(
    *, seed: int, batch: int, input_size: int, width: float
) -> onnx.ModelProto:
    """As `build_yolov2` with a second convolution of 1x1: the figures of the thesis."""
    stages = (V2_STAGES[0], ((64, 1),), *V2_STAGES[2:])
    return _yolov2("yolov2_eplanner", stages, seed, batch, input_size, width)


def build_yolov3(*, seed: int, batch: int, input_size: int, width: float) -> onnx.ModelProto:
    """[N, 3, S, S] -> three maps [N, 255, S / k, S / k], k = 32, 16, 8."""
    net = NetworkBuilder("yolov3", seed=seed, width=width)
    features = _darknet53(net, batch, input_size)
    heads = []
    x, carried = features[-1], None
    for scale, inner in enumerate((512, 256, 128)):
        if carried is not None:
            x = _conv_bn_leaky(net, carried, f"up{scale}/reduce", inner, 1)
            x = net.upsample(x, f"up{scale}/upsample")
            x = net.concat([x, features[-1 - scale]], f"up{scale}/concat")
        for index in range(1, 7):
            channels, kernel = (inner, 1) if index % 2 else (2 * inner, 3)
            x = _conv_bn_leaky(net, x, f"head{scale}/conv{index}", channels, kernel)
            if index == 5:
                carried = x
        heads.append(_output(net, x, f"head{scale}/output", V3_ANCHORS))
    return net.model(*heads)


def build_darknet53(*, seed: int, batch: int, input_size: int, width: float) -> onnx.ModelProto:
    """[N, 3, S, S] -> [N, 1024, S / 32, S / 32]: YOLOv3's backbone."""
    net = NetworkBuilder("darknet53", seed=seed, width=width)
    return net.model(_darknet53(net, batch, input_size)[-1])


def _yolov2(
    name: str,
    stages: tuple[tuple[tuple[int, int], ...], ...],
    seed: int,
    batch: int,
    input_size: int,
    width: float,
) -> onnx.ModelProto:
    net = NetworkBuilder(name, seed=seed, width=width)
    x = _image(net, batch, input_size)
    index, fine = 0, x
    for stage, layers in enumerate(stages, start=1):
        if stage > 1:
            x = net.max_pool(x, f"pool{stage - 1}", 2, stride=2)
        for channels, kernel in layers:
            index += 1
            x = _conv_bn_leaky(net, x, f"conv{index}", channels, kernel)
        if stage == V2_PASSTHROUGH_STAGE:
            fine = x
    fine = _conv_bn_leaky(net, fine, "conv21", V2_PASSTHROUGH_CHANNELS, 1)
    fine = net.space_to_depth(fine, "passthrough")
    x = net.concat([fine, x], "concat")
    x = _conv_bn_leaky(net, x, "conv22", 1024, 3)
    return net.model(_output(net, x, "conv23", V2_ANCHORS))


def _darknet53(net: NetworkBuilder, batch: int, input_size: int) -> list[Tensor]:
    """The last map of each of the five stages, strides 2 to 32."""
    x = _conv_bn_leaky(net, _image(net, batch, input_size), "conv1", 32, 3)
    features = []
    for stage, (channels, blocks) in enumerate(V3_STAGES, start=2):
        x = _conv_bn_leaky(net, x, f"conv{stage}/down", channels, 3, stride=2)
        for block in range(1, blocks + 1):
            name = f"conv{stage}_{block}"
            y = _conv_bn_leaky(net, x, f"{name}/reduce", channels // 2, 1)
            y = _conv_bn_leaky(net, y, f"{name}/conv3x3", channels, 3)
            x = net.add(y, x, f"{name}/add")
        features.append(x)
    return features


def _image(net: NetworkBuilder, batch: int, input_size: int) -> Tensor:
    if input_size % STRIDE:
        raise ModelArgumentError(f"input_size of {net.name}", input_size, f"a multiple of {STRIDE}")
    return net.input("data", (batch, 3, input_size, input_size))


def _conv_bn_leaky(
    net: NetworkBuilder, x: Tensor, name: str, channels: int, kernel: int, *, stride: int = 1
) -> Tensor:
    channels = net.scaled(channels)
    x = net.conv(x, name, channels, kernel, stride=stride, padding=kernel // 2, bias=False)
    x = net.batch_norm(x, f"{name}/bn")
    return net.leaky_relu(x, f"{name}/leaky", SLOPE)


def _output(net: NetworkBuilder, x: Tensor, name: str, anchors: int) -> Tensor:
    """A linear 1x1 convolution whose result has about unit power."""
    return net.conv(x, name, anchors * (5 + CLASSES), 1, gain=1.0 / x.moments.power)
