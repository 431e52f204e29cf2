"""Transposed convolutions that ask for extents: TVM 0.19 pads the wrong end more, and crops where
there is nothing to crop."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from tvm.relay.frontend import onnx as reader

from tvm_npu.door.onnx.names import called_in
from tvm_npu.door.onnx.transposed import asks_for_extents, spell_pads_out
from tvm_npu.errors import PartitionError


def converters() -> Iterator[tuple[Any, str, Any]]:
    """For `whole_nodes`."""
    for name in ("_impl_v1", "_impl_v11"):
        convert = getattr(reader.ConvTranspose, name).__func__
        yield reader.ConvTranspose, name, _with_pads(convert)


def _with_pads(convert: Callable[..., Any]) -> Callable[..., Any]:
    def transposed(cls: Any, inputs: Any, attr: Any, params: Any) -> Any:
        if asks_for_extents(attr):
            name = called_in("ConvTranspose", attr)
            extents = reader.infer_shape(inputs[0])[2:]
            kernel = attr.get("kernel_shape") or reader.infer_shape(inputs[1])[2:]
            if not all(isinstance(one, int) for one in (*extents, *kernel)):
                raise PartitionError(f"{name} asks for extents of a tensor whose own are open")
            spell_pads_out(attr, extents, kernel, name)
        return convert(cls, inputs, attr, params)

    return transposed
