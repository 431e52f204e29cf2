"""A small builder of ONNX convolutional networks: one method a layer, shapes kept along.

A `Tensor` is a name, a static shape and estimated moments (see `_weights`). All networks are
opset 13, IR 8, NCHW float32. Node names are the layer names of the caller; the output tensor
of a node carries the node's name.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
from onnx import TensorProto, helper

from tvm_npu.door.weightless import without_weights

from ._weights import (
    HE_GAIN,
    Moments,
    batch_norm_statistics,
    generator,
    he_weights,
    mixed,
    small_biases,
)
from .errors import ModelArgumentError

OPSET = 13
IR_VERSION = 8

Pair = tuple[int, int]


@dataclass(frozen=True)
class Tensor:
    """A value of the network under construction; `shape` is NCHW or [N, features]."""

    name: str
    shape: tuple[int, ...]
    moments: Moments

    @property
    def channels(self) -> int:
        return self.shape[1]


def pair(value: int | Pair) -> Pair:
    """3 -> (3, 3); (1, 7) -> (1, 7)."""
    return (value, value) if isinstance(value, int) else value


def ceil_padding(size: int, kernel: int, stride: int) -> int:
    """End padding that gives a pooling its 'ceil' output size: 109, 3, 2 -> 0; 54, 3, 2 -> 1."""
    return -(size - kernel) % stride


class NetworkBuilder:
    """Collects the nodes and seeded weights of one network."""

    def __init__(self, name: str, *, seed: int, width: float = 1.0) -> None:
        self.name = name
        self.width = width
        self._rng = generator(seed)
        # Filled in place: protobuf copies what is put into a message, and VGG-16 has 0.5 GB.
        self._model = helper.make_model(
            helper.make_graph([], name, [], []),
            opset_imports=[helper.make_opsetid("", OPSET)],
            producer_name="tvm-npu",
        )
        self._model.ir_version = IR_VERSION
        self._graph = self._model.graph

    def scaled(self, channels: int) -> int:
        """`channels` times the width multiplier, rounded, at least one."""
        return channels if self.width == 1.0 else max(1, int(channels * self.width + 0.5))

    def input(self, name: str, shape: Sequence[int]) -> Tensor:
        """The network's input [N, C, H, W], taken to have zero mean and unit power."""
        self._graph.input.append(
            helper.make_tensor_value_info(name, TensorProto.FLOAT, list(shape))
        )
        return Tensor(name, tuple(shape), Moments())

    def conv(
        self,
        x: Tensor,
        name: str,
        channels: int,
        kernel: int | Pair,
        *,
        stride: int = 1,
        padding: int | Pair = 0,
        groups: int = 1,
        dilation: int = 1,
        bias: bool = True,
        gain: float = HE_GAIN,
    ) -> Tensor:
        """[N, C, H, W] -> [N, channels, H', W'] with W[channels, C / groups, kh, kw]."""
        (kh, kw), (ph, pw) = pair(kernel), pair(padding)
        shape = (channels, x.channels // groups, kh, kw)
        fan_in = shape[1] * kh * kw
        moments = x.moments.weighted(gain)
        weights = he_weights(self._rng, shape, fan_in, gain)
        inputs = [x.name, self._constant(f"{name}.weight", weights)]
        if bias:
            inputs.append(
                self._constant(f"{name}.bias", small_biases(self._rng, channels, moments.power))
            )
        self._node(
            "Conv",
            inputs,
            name,
            kernel_shape=[kh, kw],
            strides=[stride, stride],
            pads=[ph, pw, ph, pw],
            dilations=[dilation, dilation],
            group=groups,
        )
        window = (dilation * (kh - 1) + 1, dilation * (kw - 1) + 1)
        size = self._window_size(x, window, stride, (ph, pw, ph, pw))
        return Tensor(name, (x.shape[0], channels, *size), moments)

    def conv_transpose(
        self,
        x: Tensor,
        name: str,
        channels: int,
        kernel: int,
        *,
        stride: int,
        padding: int = 0,
        output_padding: int = 0,
        bias: bool = True,
    ) -> Tensor:
        """[N, C, H, W] -> [N, channels, H', W'] with W[C, channels, k, k], where H' is
        (H - 1) * stride + kernel - 2 * padding + output_padding."""
        shape = (x.channels, channels, kernel, kernel)
        moments = x.moments.weighted(HE_GAIN)
        fan_in = max(1, x.channels * kernel**2 // stride**2)
        weights = he_weights(self._rng, shape, fan_in, HE_GAIN)
        inputs = [x.name, self._constant(f"{name}.weight", weights)]
        if bias:
            inputs.append(
                self._constant(f"{name}.bias", small_biases(self._rng, channels, moments.power))
            )
        self._node(
            "ConvTranspose",
            inputs,
            name,
            kernel_shape=[kernel, kernel],
            strides=[stride, stride],
            pads=[padding] * 4,
            output_padding=[output_padding] * 2,
        )
        rows, columns = (
            (size - 1) * stride + kernel - 2 * padding + output_padding for size in x.shape[2:]
        )
        return Tensor(name, (x.shape[0], channels, rows, columns), moments)

    def batch_norm(
        self, x: Tensor, name: str, *, epsilon: float = 1e-5, scaled: bool = True
    ) -> Tensor:
        """Inference batch normalization with seeded statistics; moments become about (0, 1)."""
        statistics = batch_norm_statistics(self._rng, x.channels, x.moments, scaled=scaled)
        inputs = [
            x.name,
            self._constant(f"{name}.scale", statistics.scale),
            self._constant(f"{name}.bias", statistics.bias),
            self._constant(f"{name}.mean", statistics.mean),
            self._constant(f"{name}.variance", statistics.variance),
        ]
        self._node("BatchNormalization", inputs, name, epsilon=epsilon)
        return Tensor(name, x.shape, Moments())

    def relu(self, x: Tensor, name: str) -> Tensor:
        self._node("Relu", [x.name], name)
        return Tensor(name, x.shape, x.moments.relu())

    def leaky_relu(self, x: Tensor, name: str, slope: float = 0.1) -> Tensor:
        """x where it is positive, slope * x where it is not."""
        self._node("LeakyRelu", [x.name], name, alpha=slope)
        return Tensor(name, x.shape, x.moments.leaky_relu(slope))

    def relu6(self, x: Tensor, name: str) -> Tensor:
        """Clip to [0, 6]; the bounds are scalar initializers, as opset 13 has them."""
        low = self._constant(f"{name}.min", np.asarray(0.0, dtype=np.float32))
        high = self._constant(f"{name}.max", np.asarray(6.0, dtype=np.float32))
        self._node("Clip", [x.name, low, high], name)
        return Tensor(name, x.shape, x.moments.relu())

    def tanh(self, x: Tensor, name: str) -> Tensor:
        self._node("Tanh", [x.name], name)
        return Tensor(name, x.shape, Moments(0.0, min(x.moments.power, 1.0) / 2.0))

    def max_feature_map(self, x: Tensor, name: str) -> Tensor:
        """[N, 2 C, ...] -> [N, C, ...]: the larger one of both halves of the channels, written as
        PyTorch exports it, a Split and a Max."""
        half = x.channels // 2
        parts = [f"{name}/half{number}" for number in range(2)]
        sizes = self._constant(f"{name}/split.sizes", np.asarray([half, half], dtype=np.int64))
        self._graph.node.append(
            helper.make_node("Split", [x.name, sizes], parts, name=f"{name}/split", axis=1)
        )
        self._node("Max", parts, name)
        return Tensor(name, (x.shape[0], half, *x.shape[2:]), x.moments.larger())

    def reflect_pad(self, x: Tensor, name: str, amount: int) -> Tensor:
        """[N, C, H, W] -> [N, C, H + 2 * amount, W + 2 * amount], mirrored at the border."""
        rows, columns = x.shape[2:]
        if amount >= min(rows, columns):
            raise ModelArgumentError(
                "input_size", f"{rows}x{columns} at {name}", f"at least {amount + 1} there"
            )
        pads = np.asarray([0, 0, amount, amount] * 2, dtype=np.int64)
        self._node("Pad", [x.name, self._constant(f"{name}.pads", pads)], name, mode="reflect")
        shape = (*x.shape[:2], rows + 2 * amount, columns + 2 * amount)
        return Tensor(name, shape, x.moments)

    def max_pool(
        self,
        x: Tensor,
        name: str,
        kernel: int,
        *,
        stride: int,
        padding: int = 0,
        ceil: bool = False,
    ) -> Tensor:
        """Max-pool; `ceil` rounds the size up, written as explicit padding at the ends."""
        end_h, end_w = (
            ceil_padding(size + 2 * padding, kernel, stride) if ceil else 0 for size in x.shape[2:]
        )
        pads = (padding, padding, padding + end_h, padding + end_w)
        self._node(
            "MaxPool",
            [x.name],
            name,
            kernel_shape=[kernel, kernel],
            strides=[stride, stride],
            pads=list(pads),
        )
        size = self._window_size(x, (kernel, kernel), stride, pads)
        return Tensor(name, (*x.shape[:2], *size), x.moments.max_pool())

    def avg_pool(self, x: Tensor, name: str, kernel: int, *, stride: int, padding: int) -> Tensor:
        """Average-pool that leaves padding out of the mean (count_include_pad = 0)."""
        pads = (padding, padding, padding, padding)
        self._node(
            "AveragePool",
            [x.name],
            name,
            kernel_shape=[kernel, kernel],
            strides=[stride, stride],
            pads=list(pads),
            count_include_pad=0,
        )
        size = self._window_size(x, (kernel, kernel), stride, pads)
        return Tensor(name, (*x.shape[:2], *size), x.moments)

    def global_avg_pool(self, x: Tensor, name: str) -> Tensor:
        """[N, C, H, W] -> [N, C, 1, 1]."""
        self._node("GlobalAveragePool", [x.name], name)
        return Tensor(name, (*x.shape[:2], 1, 1), x.moments)

    def add(self, a: Tensor, b: Tensor, name: str) -> Tensor:
        self._node("Add", [a.name, b.name], name)
        return Tensor(name, a.shape, a.moments.plus(b.moments))

    def concat(self, parts: Sequence[Tensor], name: str) -> Tensor:
        """Concatenate along the channels."""
        self._node("Concat", [part.name for part in parts], name, axis=1)
        channels = sum(part.channels for part in parts)
        moments = mixed([(part.moments, part.channels) for part in parts])
        return Tensor(name, (parts[0].shape[0], channels, *parts[0].shape[2:]), moments)

    def space_to_depth(self, x: Tensor, name: str, block: int = 2) -> Tensor:
        """[N, C, H, W] -> [N, block^2 * C, H / block, W / block], the order of ONNX SpaceToDepth.

        Written as block^2 strided slices and a concatenation: channel (i * block + j) * C + c
        of the result is x[:, c, i::block, j::block]. `block` divides H and W.
        """
        sizes = ("height", x.shape[2]), ("width", x.shape[3])
        for axis, size in sizes:
            if size % block:
                raise ModelArgumentError(
                    "input_size", f"{axis} {size} at {name}", f"a multiple of {block} there"
                )
        shape = (*x.shape[:2], x.shape[2] // block, x.shape[3] // block)
        parts = []
        for i in range(block):
            for j in range(block):
                part = f"{name}/slice{i}{j}"
                indices = {
                    "starts": (i, j),
                    "ends": x.shape[2:],
                    "axes": (2, 3),
                    "steps": (block, block),
                }
                operands = [
                    self._constant(f"{part}.{key}", np.asarray(value, dtype=np.int64))
                    for key, value in indices.items()
                ]
                self._node("Slice", [x.name, *operands], part)
                parts.append(Tensor(part, shape, x.moments))
        return self.concat(parts, name)

    def upsample(self, x: Tensor, name: str, factor: int = 2) -> Tensor:
        """[N, C, H, W] -> [N, C, factor * H, factor * W]; every element becomes a square."""
        scales = np.asarray([1.0, 1.0, factor, factor], dtype=np.float32)
        operands = [x.name, "", self._constant(f"{name}.scales", scales)]
        self._node(
            "Resize",
            operands,
            name,
            mode="nearest",
            coordinate_transformation_mode="asymmetric",
            nearest_mode="floor",
        )
        shape = (*x.shape[:2], x.shape[2] * factor, x.shape[3] * factor)
        return Tensor(name, shape, x.moments)

    def flatten(self, x: Tensor, name: str) -> Tensor:
        """[N, C, H, W] -> [N, C * H * W]."""
        self._node("Flatten", [x.name], name, axis=1)
        return Tensor(name, (x.shape[0], math.prod(x.shape[1:])), x.moments)

    def dense(self, x: Tensor, name: str, features: int, *, gain: float = HE_GAIN) -> Tensor:
        """[N, K] -> [N, features]: a Gemm with W[features, K] transposed and a bias."""
        fan_in = x.shape[1]
        moments = x.moments.weighted(gain)
        weights = he_weights(self._rng, (features, fan_in), fan_in, gain)
        inputs = [
            x.name,
            self._constant(f"{name}.weight", weights),
            self._constant(f"{name}.bias", small_biases(self._rng, features, moments.power)),
        ]
        self._node("Gemm", inputs, name, transB=1)
        return Tensor(name, (x.shape[0], features), moments)

    def classifier(self, x: Tensor, name: str, classes: int) -> Tensor:
        """A dense layer whose logits have about unit power."""
        return self.dense(x, name, classes, gain=1.0 / x.moments.power)

    def model(self, *outputs: Tensor) -> onnx.ModelProto:
        """The checked ModelProto with these outputs, in order."""
        self._graph.output.extend(
            helper.make_tensor_value_info(output.name, TensorProto.FLOAT, list(output.shape))
            for output in outputs
        )
        onnx.checker.check_model(without_weights(self._model))
        return self._model

    def _constant(self, name: str, value: npt.NDArray[Any]) -> str:
        tensor = self._graph.initializer.add()
        tensor.name = name
        tensor.dims.extend(value.shape)
        tensor.data_type = helper.np_dtype_to_tensor_dtype(value.dtype)
        tensor.raw_data = value.tobytes()
        return name

    def _node(self, op_type: str, inputs: Sequence[str], name: str, **attributes: Any) -> None:
        self._graph.node.append(
            helper.make_node(op_type, list(inputs), [name], name=name, **attributes)
        )

    def _window_size(
        self, x: Tensor, kernel: Pair, stride: int, pads: tuple[int, int, int, int]
    ) -> Pair:
        """Output rows and columns of a window operator; too small an input is an error."""
        height, width = x.shape[2:]
        rows = (height + pads[0] + pads[2] - kernel[0]) // stride + 1
        columns = (width + pads[1] + pads[3] - kernel[1]) // stride + 1
        if rows < 1 or columns < 1:
            raise ModelArgumentError(
                "input_size",
                f"{height}x{width} at the input of {x.name}'s consumer",
                f"at least {kernel[0]}x{kernel[1]} there; use a larger input_size",
            )
        return rows, columns
