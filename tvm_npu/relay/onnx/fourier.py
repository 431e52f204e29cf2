"""Fourier transforms of opset 20, whose axis is an input: TVM 0.19 knows it as an attribute."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tvm import relay
from tvm.relay.frontend import onnx as reader

from tvm_npu.door.onnx.names import called_in
from tvm_npu.errors import PartitionError

_AXIS = 2
_DEFAULT = -2
"""The last axis but that of real and imaginary parts."""


def converters() -> Iterator[tuple[Any, str, Any]]:
    """For `whole_nodes`."""
    yield reader.DFT, "_impl_v20", _by_input


def _by_input(cls: Any, inputs: Any, attr: Any, params: Any) -> Any:
    given = [*inputs, None, None]
    axis = given[_AXIS]
    if axis is not None and not isinstance(axis, relay.Constant):
        raise PartitionError(
            f"{called_in('DFT', attr)} has an axis that the model computes; TVM 0.19 needs a "
            "constant one"
        )
    attr["axis"] = _DEFAULT if axis is None else int(axis.data.numpy().item())
    return cls._impl_v17(given[:_AXIS], attr, params)
