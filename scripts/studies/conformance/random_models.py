"""Random ONNX graphs: branches and joins of the operators that networks are made of."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

Float = NDArray[np.float32]
OPSET = 14
ACTIVATIONS = (
    "Relu", "LeakyRelu", "Sigmoid", "Tanh", "HardSigmoid", "HardSwish", "Elu", "Selu", "Celu",
    "Clip", "Softplus", "Softsign", "Abs", "Erf",
)  # fmt: skip
NUMBERS = ("Add", "Mul", "Sub", "Div", "Max", "Min")
RESIZES = ("half_pixel", "asymmetric", "align_corners", "pytorch_half_pixel")


class RandomModel:
    """Draws one operator after the other; one that fits no tensor is left out."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        extents = (self.number(1, 7), self.number(4, 12), self.number(4, 12))
        self.input_shape = (1, *extents)
        self.shapes: dict[str, tuple[int, ...]] = {"x": self.input_shape}
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[onnx.TensorProto] = []

    def number(self, low: int, high: int) -> int:
        return int(self.rng.integers(low, high + 1))

    def pick(self) -> str:
        """A feature map, later ones more often."""
        maps = [name for name, shape in self.shapes.items() if len(shape) == 4]
        return str(self.rng.choice(maps[-4:]))

    def constant(self, values: Any) -> str:
        name = f"c{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(np.asarray(values), name))
        return name

    def normal(self, *shape: int, fan_in: int = 1) -> str:
        values = self.rng.standard_normal(shape) / np.sqrt(fan_in)
        return self.constant(values.astype(np.float32))

    def node(
        self, operator: str, inputs: list[str], shape: tuple[int, ...], **attributes: Any
    ) -> str:
        output = f"t{len(self.nodes)}"
        self.nodes.append(
            helper.make_node(operator, inputs, [output], name=f"{operator}_{output}", **attributes)
        )
        self.shapes[output] = shape
        return output

    def model(self, length: int) -> onnx.ModelProto:
        """``length`` draws; every tensor that nobody reads is an output."""
        while len(self.nodes) < length:
            OPERATORS[self.number(0, len(OPERATORS) - 1)](self)
        read = {name for node in self.nodes for name in node.input}
        outputs = [name for name in self.shapes if name not in read and name != "x"]
        return helper.make_model(
            helper.make_graph(
                self.nodes, "random",
                [helper.make_tensor_value_info("x", TensorProto.FLOAT, self.input_shape)],
                [
                    helper.make_tensor_value_info(name, TensorProto.FLOAT, self.shapes[name])
                    for name in outputs
                ],
                self.weights,
            ),
            opset_imports=[helper.make_opsetid("", OPSET)],
            ir_version=8,
        )  # fmt: skip


def _window(m: RandomModel, extents: tuple[int, ...]) -> tuple[list[int], list[int], list[int]]:
    """(kernel, strides, pads) that fit."""
    kernel = [min(m.number(1, 3), extent) for extent in extents]
    strides = [m.number(1, 2) for _ in extents]
    pads = [m.number(0, kernel[i % 2] - 1) for i in range(4)]
    return kernel, strides, pads


def _out(
    extents: tuple[int, ...], kernel: list[int], strides: list[int], pads: list[int],
    up: bool = False,
) -> tuple[int, int]:  # fmt: skip
    rest = [extents[i] + pads[i] + pads[i + 2] - kernel[i] for i in range(2)]
    rows, columns = ((rest[i] + up * (strides[i] - 1)) // strides[i] + 1 for i in range(2))
    return rows, columns


def _conv(m: RandomModel) -> None:
    x = m.pick()
    channels = m.shapes[x][1]
    kernel, strides, pads = _window(m, m.shapes[x][2:])
    groups = int(m.rng.choice((channels, 2, 1, 1)))
    groups = groups if channels % groups == 0 else 1
    filters = groups * m.number(1, 3) if groups > 1 else m.number(1, 9)
    dilations = [m.number(1, 3) if m.number(0, 4) == 0 else 1 for _ in kernel]
    pads = [pad + (dilations[i % 2] - 1) * (kernel[i % 2] - 1) for i, pad in enumerate(pads)]
    weight = m.normal(
        filters, channels // groups, *kernel, fan_in=channels // groups * kernel[0] * kernel[1]
    )
    bias = [m.normal(filters)] if m.number(0, 1) else []
    window = [(size - 1) * rate + 1 for size, rate in zip(kernel, dilations, strict=True)]
    shape = (1, filters, *_out(m.shapes[x][2:], window, strides, pads))
    m.node(
        "Conv", [x, weight, *bias], shape,
        strides=strides, pads=pads, group=groups, dilations=dilations,
    )  # fmt: skip


def _transposed(m: RandomModel) -> None:
    x = m.pick()
    channels, rows, columns = m.shapes[x][1:]
    filters, size, stride = m.number(1, 5), m.number(2, 4), m.number(1, 2)
    groups = channels if m.number(0, 3) == 0 else 1
    filters = 1 if groups > 1 else filters
    pad, more = m.number(0, 1), m.number(0, stride - 1)
    weight = m.normal(channels, filters, size, size, fan_in=channels * size)
    out = [(extent - 1) * stride + size - 2 * pad + more for extent in (rows, columns)]
    m.node(
        "ConvTranspose", [x, weight], (1, filters * groups, *out),
        strides=[stride] * 2, group=groups, pads=[pad] * 4, output_padding=[more] * 2,
    )  # fmt: skip


def _pool(m: RandomModel) -> None:
    x = m.pick()
    kernel, strides, pads = _window(m, m.shapes[x][2:])
    shape = (*m.shapes[x][:2], *_out(m.shapes[x][2:], kernel, strides, pads))
    more: dict[str, Any] = {}
    operator = "MaxPool" if m.number(0, 1) else "AveragePool"
    if operator == "AveragePool":
        more["count_include_pad"] = m.number(0, 1)
    if m.number(0, 2) == 0:
        ceiled = _out(m.shapes[x][2:], kernel, strides, pads, up=True)
        within = (
            (ceiled[i] - 1) * strides[i] < m.shapes[x][2 + i] + pads[i] for i in range(2)
        )  # a window that begins behind the map is read in several ways
        if all(within):
            shape, more["ceil_mode"] = (*m.shapes[x][:2], *ceiled), 1
    m.node(operator, [x], shape, kernel_shape=kernel, strides=strides, pads=pads, **more)


def _activation(m: RandomModel) -> None:
    x = m.pick()
    operator = str(m.rng.choice(ACTIVATIONS))
    inputs = [x]
    if operator == "Clip":
        inputs += [m.constant(np.float32(-0.5)), m.constant(np.float32(1.25))][: m.number(1, 2)]
    m.node(operator, inputs, m.shapes[x])


def _swish(m: RandomModel) -> None:
    x = m.pick()
    gate = m.node(str(m.rng.choice(("Sigmoid", "HardSigmoid"))), [x], m.shapes[x])
    m.node("Mul", [x, gate], m.shapes[x])


def _join(m: RandomModel) -> None:
    x, y = m.pick(), m.pick()
    if m.shapes[x] == m.shapes[y]:
        m.node(str(m.rng.choice(("Add", "Add", "Mul", "Sub", "Max"))), [x, y], m.shapes[x])


def _affine(m: RandomModel) -> None:
    x = m.pick()
    m.node(
        str(m.rng.choice(("Add", "Mul", "Sub"))), [x, m.normal(m.shapes[x][1], 1, 1)], m.shapes[x]
    )


def _norm(m: RandomModel) -> None:
    x = m.pick()
    channels = m.shapes[x][1]
    variance = m.constant(m.rng.uniform(0.5, 2, channels).astype(np.float32))
    m.node(
        "BatchNormalization",
        [x, *(m.normal(channels) for _ in range(3)), variance],
        m.shapes[x],
    )


def _excite(m: RandomModel) -> None:
    x = m.pick()
    channels = m.shapes[x][1]
    y = m.node("GlobalAveragePool", [x], (1, channels, 1, 1))
    y = m.node(
        "Conv", [y, m.normal(channels, channels, 1, 1, fan_in=channels)], (1, channels, 1, 1)
    )
    y = m.node("Sigmoid", [y], (1, channels, 1, 1))
    m.node("Mul", [x, y], m.shapes[x])


def _concat(m: RandomModel) -> None:
    x, y = m.pick(), m.pick()
    a, b = m.shapes[x], m.shapes[y]
    axis = m.number(1, 3)
    shape = [*a[:axis], a[axis] + b[axis], *a[axis + 1 :]]
    if [*b[:axis], shape[axis], *b[axis + 1 :]] == shape and shape[axis] < 24:
        m.node("Concat", [x, y], tuple(shape), axis=axis)


def _slice(m: RandomModel) -> None:
    x = m.pick()
    axis = m.number(1, 3)
    extent = m.shapes[x][axis]
    if extent < 2:
        return
    begin = m.number(0, extent - 2)
    end = m.number(begin + 1, extent)
    step = m.number(1, 2)
    shape = list(m.shapes[x])
    shape[axis] = -(-(end - begin) // step)
    bounds = [m.constant(np.array([value], np.int64)) for value in (begin, end, axis, step)]
    m.node("Slice", [x, *bounds], tuple(shape))


def _shuffle(m: RandomModel) -> None:
    x = m.pick()
    _, channels, rows, columns = m.shapes[x]
    if channels % 2 or channels < 4:
        return
    parts = (1, 2, channels // 2, rows, columns)
    y = m.node("Reshape", [x, m.constant(np.array(parts, np.int64))], parts)
    turned = (1, channels // 2, 2, rows, columns)
    y = m.node("Transpose", [y], turned, perm=[0, 2, 1, 3, 4])
    m.node("Reshape", [y, m.constant(np.array(m.shapes[x], np.int64))], m.shapes[x])


def _resize(m: RandomModel) -> None:
    x = m.pick()
    _, channels, rows, columns = m.shapes[x]
    if max(rows, columns) > 12:
        return
    mode = str(m.rng.choice(("nearest", "linear")))
    to = (1, channels, m.number(1, 2) * rows, m.number(1, 2) * columns)
    if mode == "linear" and m.number(0, 1):
        to = (1, channels, m.number(2, 14), m.number(2, 14))
    how: dict[str, Any] = {"coordinate_transformation_mode": str(m.rng.choice(RESIZES))}
    if mode == "nearest":
        how.update(coordinate_transformation_mode="asymmetric", nearest_mode="floor")
    m.node("Resize", [x, "", "", m.constant(np.array(to, np.int64))], to, mode=mode, **how)


def _pad(m: RandomModel) -> None:
    x = m.pick()
    _, channels, rows, columns = m.shapes[x]
    reflected = min(rows, columns) > 2 and m.number(0, 1)
    amounts = [m.number(0, 2) for _ in range(4)]
    pads = np.array([0, 0, *amounts[:2], 0, 0, *amounts[2:]], np.int64)
    shape = (1, channels, rows + amounts[0] + amounts[2], columns + amounts[1] + amounts[3])
    m.node("Pad", [x, m.constant(pads)], shape, mode="reflect" if reflected else "constant")


def _softmax(m: RandomModel) -> None:
    x = m.pick()
    m.node("Softmax", [x], m.shapes[x], axis=m.number(1, 3))


def _slopes(m: RandomModel) -> None:
    """A slope a channel or one for all, as exporters write them."""
    x = m.pick()
    shapes = ((m.shapes[x][1], 1, 1), (1, m.shapes[x][1], 1, 1), (1, 1, 1), (1,))
    values = m.rng.uniform(-0.3, 1, shapes[m.number(0, 3)])
    m.node("PRelu", [x, m.constant(values.astype(np.float32))], m.shapes[x])


def _number(m: RandomModel) -> None:
    """With one number; sums and products also the other way round."""
    x = m.pick()
    operator = str(m.rng.choice(NUMBERS))
    inputs = [x, m.constant(np.float32(m.rng.uniform(0.2, 2)))]
    if operator not in ("Div", "Max", "Min") and m.number(0, 1):
        inputs.reverse()
    m.node(operator, inputs, m.shapes[x])


def _gelu(m: RandomModel) -> None:
    """As PyTorch's exporter writes it."""
    x = m.pick()
    shape = m.shapes[x]
    y = m.node("Div", [x, m.constant(np.float32(np.sqrt(2)))], shape)
    y = m.node("Add", [m.node("Erf", [y], shape), m.constant(np.float32(1))], shape)
    m.node("Mul", [m.node("Mul", [x, y], shape), m.constant(np.float32(0.5))], shape)


def _mean(m: RandomModel) -> None:
    x = m.pick()
    operator = str(m.rng.choice(("GlobalAveragePool", "GlobalMaxPool", "ReduceMean")))
    more: dict[str, Any] = {"axes": [2, 3]} if operator == "ReduceMean" else {}
    m.node(operator, [x], (*m.shapes[x][:2], 1, 1), **more)


def _blocks(m: RandomModel) -> None:
    """Channels to pixels or back."""
    x = m.pick()
    _, channels, rows, columns = m.shapes[x]
    if channels % 4 == 0:
        mode = str(m.rng.choice(("DCR", "CRD")))
        shape = (1, channels // 4, 2 * rows, 2 * columns)
        m.node("DepthToSpace", [x], shape, blocksize=2, mode=mode)
    elif rows % 2 == columns % 2 == 0:
        shape = (1, 4 * channels, rows // 2, columns // 2)
        m.node("SpaceToDepth", [x], shape, blocksize=2)


def _split(m: RandomModel) -> None:
    """Into halves of the channels, which meet again."""
    x = m.pick()
    _, channels, *extents = m.shapes[x]
    if channels % 2:
        return
    half = (1, channels // 2, *extents)
    parts = [f"t{len(m.nodes)}", f"t{len(m.nodes)}b"]
    m.nodes.append(helper.make_node("Split", [x], parts, name=f"Split_{parts[0]}", axis=1))
    m.shapes.update(dict.fromkeys(parts, half))
    m.node(str(m.rng.choice(("Add", "Mul", "Sub"))), parts, half)


def _tokens(m: RandomModel) -> None:
    """A fully connected layer over pixels."""
    x = m.pick()
    _, channels, rows, columns = m.shapes[x]
    features = m.number(1, 9)
    y = m.node(
        "Reshape", [x, m.constant(np.array([1, channels, rows * columns], np.int64))],
        (1, channels, rows * columns),
    )  # fmt: skip
    y = m.node("Transpose", [y], (1, rows * columns, channels), perm=[0, 2, 1])
    weight = m.normal(channels, features, fan_in=channels)
    y = m.node("MatMul", [y, weight], (1, rows * columns, features))
    y = m.node("Add", [y, m.normal(features)], (1, rows * columns, features))
    y = m.node("Transpose", [y], (1, features, rows * columns), perm=[0, 2, 1])
    to = (1, features, rows, columns)
    m.node("Reshape", [y, m.constant(np.array(to, np.int64))], to)


def _head(m: RandomModel) -> None:
    x = m.pick()
    features = int(np.prod(m.shapes[x]))
    flat = m.node("Flatten", [x], (1, features), axis=1)
    outputs = m.number(1, 6)
    m.node("Gemm", [flat, m.normal(outputs, features, fan_in=features)], (1, outputs), transB=1)


OPERATORS: tuple[Callable[[RandomModel], None], ...] = (
    _conv, _conv, _conv, _transposed, _pool, _activation, _activation, _swish, _join, _join,
    _affine, _norm, _excite, _concat, _slice, _shuffle, _resize, _pad, _softmax, _head, _slopes,
    _number, _gelu, _mean, _blocks, _split, _tokens,
)  # fmt: skip


def random_model(seed: int) -> tuple[onnx.ModelProto, Float]:
    """A model of 2 to 9 operators, and an input."""
    drawn = RandomModel(seed)
    model = drawn.model(drawn.number(2, 9))
    return model, drawn.rng.standard_normal(drawn.input_shape).astype(np.float32)
