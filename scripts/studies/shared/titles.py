"""Names of networks in print."""

from __future__ import annotations

TITLES: dict[str, str] = {
    "inception_v3": "InceptionV3",
    "lenet": "LeNet",
    "mobilenet_v2": "MobileNetV2",
    "resnet50": "ResNet-50",
    "squeezenet1.0": "SqueezeNet",
}
"""The TSO paper's networks: names of `tvm_npu.models` -> names in the paper, in the order of its
Table I."""
