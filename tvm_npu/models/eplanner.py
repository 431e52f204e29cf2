"""The five networks of the e-PlaNNer thesis, as its Tables 4.1 and 8.1 describe them.

Sizes are weights in float32 without biases, in units of 2^20 bytes; operations are MACs in units
of 2^30. With that reading our networks have the printed sizes to the last digit and, but for
SqueezeNet, the printed operations: VGG-16 and AlexNet as published, ResNet-50 v1.5 at 256x256
without its four projections (49 convolutions), SqueezeNet 1.1, YOLOv2 at 608x608 whose second
convolution is 1x1. SqueezeNet's "1.0" fits neither release at 224 or 227; 224 is taken.

Distinct layers are those of `layers`. By tensors alone YOLOv2 would have 14, not 15: its 13th
convolution equals the 9th and 11th, but its result also goes to the passthrough.
"""

from __future__ import annotations

from dataclasses import dataclass

import onnx

from . import build, resnet
from .layers import LayerShape, layer_shapes


@dataclass(frozen=True)
class ThesisNetwork:
    """A row of Table 8.1 (`size_mib`, `operations_gi` and `layers` as printed, in their units
    above) with the distinct layers of Table 4.1, and the network of ours that it is.
    """

    title: str
    model: str
    input_size: int
    size_mib: float
    operations_gi: float
    layers: int
    distinct: int
    without: tuple[str, ...] = ()

    def build(self, *, seed: int = 0) -> onnx.ModelProto:
        """The network at the thesis's input size, one image."""
        return build(self.model, seed=seed, input_size=self.input_size)

    def scheduled_layers(self) -> list[tuple[str, LayerShape]]:
        """The layers that the thesis schedules: (name, shape), in order."""
        return layer_shapes(self.build(), without=self.without)


NETWORKS = (
    ThesisNetwork("VGGNet-16", "vgg16", 224, 527.741, 14.408, 16, 12),
    ThesisNetwork(
        "ResNet50", "resnet50_v1.5", 256, 86.723, 4.536, 50, 21, without=(resnet.PROJECTION,)
    ),
    ThesisNetwork("AlexNet", "alexnet", 227, 237.914, 1.057, 8, 8),
    ThesisNetwork("SqueezeNet", "squeezenet1.1", 224, 4.698, 1.0, 26, 18),
    ThesisNetwork("YOLOv2", "yolov2_eplanner", 608, 194.265, 27.898, 23, 15),
)
"""In the order of Table 8.1. AlexNet has no repeated layer (section 8.4)."""
