"""What the papers report, copied from them; nothing here is computed or measured.

Sources: A. X. M. Chang, A. Zaidy, M. Vitez, L. Burzawa, E. Culurciello: Deep Neural Networks
Compiler for a Trace-Based Accelerator (LCTES 2018); V. Gokhale, A. Zaidy, A. X. M. Chang,
E. Culurciello: Snowflake, arXiv 1708.02579 (`ZC706`). The bars of figures 5 and 6 and the points of
figure 7 are drawn without numbers.
"""

from __future__ import annotations

from dataclasses import dataclass

NETWORKS: dict[str, str] = {
    "alexnet_owt": "alexnet",
    "resnet18": "resnet18",
    "resnet34": "resnet34",
    "resnet50": "resnet50",
    "inception_v3": "inceptionv3",
    "googlenet": "googlenet",
    "vgg16": "vgg16",
    "vgg19": "vgg19",
    "light_cnn_9": "lightcn9",
    "linknet": "linknet",
    "style_transfer": "styletransfer",
    "yolov3": "yolov3",
}
"""Names of `tvm_npu.models` -> names in Table 2, in its order."""

INPUT_SIZES = {"yolov3": 256}
"""Where the paper's is not the model's default."""


@dataclass(frozen=True)
class Instructions:
    """A row of Table 2: shares of `mac` by mode in percent; mean length of loads and stores in
    units of 64 bytes, and of traces in words."""

    indp: float
    coop: float
    load: float
    trace: float
    store: float


TABLE_2: dict[str, Instructions] = {
    "alexnet_owt": Instructions(12, 88, 616, 427, 80),
    "resnet18": Instructions(7, 93, 367, 291, 112),
    "resnet34": Instructions(4, 96, 416, 340, 99),
    "resnet50": Instructions(9, 91, 472, 362, 117),
    "inception_v3": Instructions(1, 99, 100, 239, 110),
    "googlenet": Instructions(8, 92, 164, 265, 111),
    "vgg16": Instructions(2, 98, 485, 471, 128),
    "vgg19": Instructions(2, 98, 504, 533, 124),
    "light_cnn_9": Instructions(16, 84, 201, 182, 156),
    "linknet": Instructions(6, 94, 266, 204, 146),
    "style_transfer": Instructions(6, 94, 60, 263, 79),
    "yolov3": Instructions(2, 98, 87, 331, 22),
}


@dataclass(frozen=True)
class Convolution:
    """A square map and a square kernel; ``size`` of the input."""

    size: int
    kernel: int
    planes: int
    filters: int
    stride: int = 1
    padding: int = 1

    @property
    def name(self) -> str:
        """As in Table 3: input, kernel, planes, filters, stride, padding."""
        size, k = self.size, self.kernel
        return (
            f"{size}x{size},{k}x{k},{self.planes},{self.filters},{self.stride},{self.padding}"
        )

    @property
    def out_size(self) -> int:
        return (self.size + 2 * self.padding - self.kernel) // self.stride + 1


@dataclass(frozen=True)
class LayerTime:
    """A layer of Table 3: times of compiled and of handwritten code."""

    layer: Convolution
    auto_ms: float
    hand_ms: float


TABLE_3: tuple[LayerTime, ...] = (
    LayerTime(Convolution(13, 3, 192, 384), 11.08, 11.11),
    LayerTime(Convolution(13, 3, 384, 256), 14.77, 14.84),
    LayerTime(Convolution(13, 3, 256, 256), 9.86, 9.89),
)

FIGURE_7: tuple[Convolution, ...] = (
    Convolution(224, 7, 3, 64, 2, 3),
    Convolution(56, 3, 64, 64),
    Convolution(56, 1, 64, 64, 1, 0),
    Convolution(56, 3, 64, 128, 2),
    Convolution(56, 1, 64, 128, 2, 0),
    Convolution(28, 3, 128, 128),
    Convolution(28, 3, 128, 256, 2),
    Convolution(28, 1, 128, 256, 2, 0),
    Convolution(14, 3, 256, 256),
    Convolution(14, 3, 256, 512, 2),
    Convolution(14, 1, 256, 512, 2, 0),
    Convolution(7, 3, 512, 512),
)
"""The convolutions of ResNet-18 that VTA's paper (arXiv 1807.04188) lists, C1 to C12."""

RECURRENT_LAYERS, RECURRENT_STEPS = 2, 100
TABLE_1_MS: dict[tuple[str, int], float] = {
    ("gru", 128): 9.7,
    ("gru", 512): 76.4,
    ("lstm", 128): 13.4,
    ("lstm", 512): 100.1,
}
"""Cell and hidden size -> time of two layers over a sequence of 100."""


@dataclass(frozen=True)
class Frames:
    """The accelerator's own publication: frames a second, and share of the peak."""

    per_second: float
    efficiency: float


ZC706: dict[str, Frames] = {
    "alexnet_owt": Frames(100, 0.94),
    "googlenet": Frames(36, 0.91),
    "resnet50": Frames(17, 0.95),
}


@dataclass(frozen=True)
class Example:
    """Times of a layer before and after the passes over instructions (section 7)."""

    before_ms: float
    after_ms: float


MAX_POOL_EXAMPLE = Example(0.53, 0.31)
"""AlexNet's second: 27x27 to 13x13, 256 planes, windows of 3x3 with stride 2."""
TRANSPOSED_CONV_EXAMPLE = Example(2.202, 1.498)
"""3x3 kernel, stride 2, 32x32x64 input, 64 output planes."""
