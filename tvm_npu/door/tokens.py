"""Fully connected layers over the tokens of a sequence or the pixels of an image.

TVM writes them as a matrix of all tokens: a reshape that takes the batch of 1 away, a dense, and a
reshape that puts it back (and an addition along the last axis). Alone, each token would count as an
image. Together they are one 1x1 convolution whose pixels are the tokens, with the features in
front:

    x [1, ..., K] -> reshape [T, K] -> dense -> reshape [1, ..., M] (-> add [M])
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import prod

import numpy as np

from tvm_npu.codegen import ops
from tvm_npu.door.dataflow import Constant, Dataflow, OpCall, Result
from tvm_npu.door.graph_builder import GraphBuilder
from tvm_npu.door.moving import reshaped, transposed

WIDEST = 64
"""Columns of the image that the tokens become, at most."""


@dataclass(frozen=True)
class TokenLayer:
    """The calls that are one layer; ``bias`` is an addition of a constant [M], or None."""

    flat: OpCall
    dense: OpCall
    back: OpCall
    bias: OpCall | None

    @property
    def calls(self) -> tuple[OpCall, ...]:
        first = (self.flat, self.dense, self.back)
        return first if self.bias is None else (*first, self.bias)


def token_layers(flow: Dataflow) -> tuple[TokenLayer, ...]:
    """All of ``flow``, in its order."""
    readers: dict[OpCall, list[OpCall | None]] = {}
    for reader, value in flow.uses():
        if isinstance(value, Result):
            readers.setdefault(value.call, []).append(reader)
    return tuple(_found(flow, readers))


def _found(
    flow: Dataflow, readers: Mapping[OpCall, list[OpCall | None]]
) -> Iterator[TokenLayer]:
    for call in flow.calls:
        if call.name not in ("dense", "matmul") or not isinstance(call.operands[0], Result):
            continue
        flat, back = call.operands[0].call, _only(readers[call])
        if flat not in flow.number_of or flat.name != "reshape" or readers[flat] != [call]:
            continue
        if back is None or back.name != "reshape" or not isinstance(call.operands[1], Constant):
            continue
        types = (*flat.operands[0].types, *flat.types, *call.types, *back.types)
        if any(type_.static_shape is None for type_ in types):
            continue
        if call.attributes.get("transpose_a"):
            continue
        source, matrix = flat.operands[0].shape, flat.shape
        is_tokens = (
            len(source) > 2 and source[0] == 1 and prod(source[:-1]) > 1
            and matrix == (prod(source[:-1]), source[-1])
            and back.shape == (*source[:-1], call.shape[-1])
        )  # fmt: skip
        if is_tokens:
            bias = _only(readers[back])
            yield TokenLayer(flat, call, back, bias if _adds_features(bias, back) else None)


def _only(readers: list[OpCall | None]) -> OpCall | None:
    return readers[0] if len(readers) == 1 else None


def _adds_features(call: OpCall | None, back: OpCall) -> bool:
    """Is it an addition of one constant number a feature?"""
    if call is None or call.name != "add" or call.types[0].static_shape != back.shape:
        return False
    shapes = [one.shape for one in call.operands if isinstance(one, Constant)]
    return len(shapes) == 1 and shapes[0][-1:] == back.shape[-1:] == (prod(shapes[0]),)


def append_tokens(b: GraphBuilder, layer: TokenLayer) -> None:
    """One convolution between two transposes."""
    dense = layer.dense
    weight = np.asarray(dense.operands[1].array)  # type: ignore[attr-defined]
    if dense.name == "matmul" and not dense.attributes["transpose_b"]:
        weight = weight.T
    filters, depth = weight.shape
    bias = np.zeros(filters, np.float32)
    if layer.bias is not None:
        (values,) = (one.array for one in layer.bias.operands if isinstance(one, Constant))
        bias = np.ascontiguousarray(values.reshape(-1), dtype=np.float32)
    tokens = layer.flat.shape[0]
    columns = max(one for one in range(1, min(tokens, WIDEST) + 1) if tokens % one == 0)
    flat = reshaped(b, layer.flat, b.input(layer.flat), (tokens, depth))
    turned = transposed(b, dense, flat, (1, 0))
    image = reshaped(b, dense, turned, (depth, tokens // columns, columns))
    common = b.common(dense, image, shape=(filters, tokens // columns, columns))
    kernel = np.ascontiguousarray(weight[:, :, None, None], dtype=np.float32)
    b.layers.append(ops.Conv2d(**common, weight=kernel, bias=bias))
    made = reshaped(b, dense, common["outputs"][0], (filters, tokens))
    back = transposed(b, layer.back, made, (1, 0))
    last = layer.back if layer.bias is None else layer.bias
    reshaped(b, last, back, layer.back.shape[1:])
