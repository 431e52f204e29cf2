"""The layers of today's networks, as PyTorch exports them at opset 13: gates, smooth activations,
layer normalization, channel shuffles, bilinear resizes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial

import numpy as np
from onnx import helper
from scipy.special import erf, expit

from ._builder import NetworkBuilder, Tensor
from ._weights import HE_GAIN, Moments, Values, he_weights, small_biases

_SIXTH = 1.0 / 6.0


def _hard_sigmoid(x: Values) -> Values:
    return np.clip(x * _SIXTH + 0.5, 0.0, 1.0)


def _gelu(x: Values) -> Values:
    gate: Values = 0.5 * (1.0 + erf(x / math.sqrt(2.0)))
    return x * gate


class ModernBuilder(NetworkBuilder):
    """A `NetworkBuilder` that knows more layers."""

    def sigmoid(self, x: Tensor, name: str) -> Tensor:
        self._node("Sigmoid", [x.name], name)
        return Tensor(name, x.shape, x.moments.through(expit))

    def silu(self, x: Tensor, name: str) -> Tensor:
        """x * sigmoid(x), written as a Sigmoid and a Mul."""
        self._node("Sigmoid", [x.name], f"{name}/sigmoid")
        self._node("Mul", [x.name, f"{name}/sigmoid"], name)
        return Tensor(name, x.shape, x.moments.through(lambda v: v * expit(v)))

    def hard_sigmoid(self, x: Tensor, name: str) -> Tensor:
        """clip(x / 6 + 0.5, 0, 1)."""
        self._node("HardSigmoid", [x.name], name, alpha=_SIXTH, beta=0.5)
        return Tensor(name, x.shape, x.moments.through(_hard_sigmoid))

    def hard_swish(self, x: Tensor, name: str) -> Tensor:
        """x * hard_sigmoid(x), written as a HardSigmoid and a Mul."""
        self._node("HardSigmoid", [x.name], f"{name}/gate", alpha=_SIXTH, beta=0.5)
        self._node("Mul", [x.name, f"{name}/gate"], name)
        return Tensor(name, x.shape, x.moments.through(lambda v: v * _hard_sigmoid(v)))

    def gelu(self, x: Tensor, name: str) -> Tensor:
        """x * (1 + erf(x / sqrt(2))) / 2, written out."""
        number = partial(np.asarray, dtype=np.float32)
        steps = (
            ("Div", x.name, self._constant(f"{name}.root", number(math.sqrt(2.0))), "div"),
            ("Erf", f"{name}/div", "", "erf"),
            ("Add", f"{name}/erf", self._constant(f"{name}.one", number(1.0)), "add"),
            ("Mul", x.name, f"{name}/add", "mul"),
        )
        for operator, first, second, suffix in steps:
            self._node(operator, [first, second] if second else [first], f"{name}/{suffix}")
        self._node("Mul", [f"{name}/mul", self._constant(f"{name}.half", number(0.5))], name)
        return Tensor(name, x.shape, x.moments.through(_gelu))

    def gate(self, x: Tensor, gate: Tensor, name: str) -> Tensor:
        """[N, C, H, W] times a gate [N, C, 1, 1]."""
        self._node("Mul", [x.name, gate.name], name)
        return Tensor(name, x.shape, x.moments.times(gate.moments))

    def layer_scale(self, x: Tensor, name: str, value: float) -> Tensor:
        """A number a channel, near ``value``, drawn with the weights."""
        values = (value * self._rng.uniform(0.5, 1.5, x.channels)).astype(np.float32)
        scale = self._constant(f"{name}.scale", values.reshape(-1, 1, 1))
        self._node("Mul", [scale, x.name], name)
        return Tensor(name, x.shape, Moments(0.0, value**2 * x.moments.power))

    def transpose(self, x: Tensor, name: str, order: Sequence[int]) -> Tensor:
        self._node("Transpose", [x.name], name, perm=list(order))
        return Tensor(name, tuple(x.shape[axis] for axis in order), x.moments)

    def reshape(self, x: Tensor, name: str, shape: Sequence[int]) -> Tensor:
        extents = self._constant(f"{name}.shape", np.asarray(shape, np.int64))
        self._node("Reshape", [x.name, extents], name)
        return Tensor(name, tuple(shape), x.moments)

    def layer_norm(self, x: Tensor, name: str, epsilon: float = 1e-6) -> Tensor:
        """Normalization over the last axis, written out as exporters do before opset 17."""
        width = x.shape[-1]
        scale = self._rng.uniform(0.8, 1.2, width).astype(np.float32)
        bias = (self._rng.standard_normal(width) * 0.1).astype(np.float32)
        constants = {
            "two": np.float32(2.0), "epsilon": np.float32(epsilon), "weight": scale, "bias": bias,
        }  # fmt: skip
        known = {
            key: self._constant(f"{name}.{key}", np.asarray(v)) for key, v in constants.items()
        }
        self._node("ReduceMean", [x.name], f"{name}/mean", axes=[-1])
        self._node("Sub", [x.name, f"{name}/mean"], f"{name}/sub")
        self._node("Pow", [f"{name}/sub", known["two"]], f"{name}/pow")
        self._node("ReduceMean", [f"{name}/pow"], f"{name}/variance", axes=[-1])
        self._node("Add", [f"{name}/variance", known["epsilon"]], f"{name}/add")
        self._node("Sqrt", [f"{name}/add"], f"{name}/sqrt")
        self._node("Div", [f"{name}/sub", f"{name}/sqrt"], f"{name}/div")
        self._node("Mul", [f"{name}/div", known["weight"]], f"{name}/mul")
        self._node("Add", [f"{name}/mul", known["bias"]], name)
        return Tensor(name, x.shape, Moments())

    def linear(self, x: Tensor, name: str, features: int) -> Tensor:
        """A dense layer over the last axis of any rank: a MatMul and an Add."""
        width = x.shape[-1]
        moments = x.moments.weighted(HE_GAIN)
        weights = he_weights(self._rng, (width, features), width, HE_GAIN)
        bias = small_biases(self._rng, features, moments.power)
        self._node("MatMul", [x.name, self._constant(f"{name}.weight", weights)], f"{name}/matmul")
        self._node("Add", [f"{name}/matmul", self._constant(f"{name}.bias", bias)], name)
        return Tensor(name, (*x.shape[:-1], features), moments)

    def split(self, x: Tensor, name: str, sizes: Sequence[int]) -> list[Tensor]:
        """Parts of so many channels."""
        parts = [f"{name}/part{number}" for number in range(len(sizes))]
        extents = self._constant(f"{name}.sizes", np.asarray(sizes, np.int64))
        self._graph.node.append(
            helper.make_node("Split", [x.name, extents], parts, name=name, axis=1)
        )
        return [
            Tensor(part, (x.shape[0], size, *x.shape[2:]), x.moments)
            for part, size in zip(parts, sizes, strict=True)
        ]

    def channel_shuffle(self, x: Tensor, name: str, groups: int = 2) -> Tensor:
        """[N, g * C, H, W] with the groups' channels taking turns."""
        batch, channels, rows, columns = x.shape
        y = self.reshape(x, f"{name}/groups", (batch, groups, channels // groups, rows, columns))
        y = self.transpose(y, f"{name}/transpose", (0, 2, 1, 3, 4))
        return self.reshape(y, name, x.shape)

    def bilinear(self, x: Tensor, name: str, rows: int, columns: int) -> Tensor:
        """[N, C, H, W] -> [N, C, rows, columns], half-pixel centres (``align_corners=False``)."""
        shape = (*x.shape[:2], rows, columns)
        sizes = self._constant(f"{name}.sizes", np.asarray(shape, np.int64))
        self._node(
            "Resize",
            [x.name, "", "", sizes],
            name,
            mode="linear",
            coordinate_transformation_mode="pytorch_half_pixel",
        )
        return Tensor(name, shape, x.moments)
