"""Tensors put into a sequence, at places that count from its end: TVM 0.19 puts them one behind."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tvm import relay
from tvm.relay.frontend import onnx as reader

from tvm_npu.door.onnx.names import called_in
from tvm_npu.errors import PartitionError

_AT_A_PLACE = reader.SequenceInsert._impl_v11.__func__


def converters() -> Iterator[tuple[Any, str, Any]]:
    """For `whole_nodes`."""
    yield reader.SequenceInsert, "_impl_v11", _inserted


def _inserted(cls: Any, inputs: Any, attr: Any, params: Any) -> Any:
    """before: insert(seq of 3, x, -1)        after: insert(seq of 3, x, 2)"""
    given, count = list(inputs), len(inputs[0])
    if len(given) > 2 and isinstance(given[2], relay.Constant):
        place = int(given[2].data.numpy().item())
        if not -count <= place <= count:
            raise PartitionError(
                f"{called_in('SequenceInsert', attr)} has position {place} in a sequence of "
                f"{count}; allowed: {-count} to {count}"
            )
        given[2] = relay.const(place + count if place < 0 else place, "int64")
    return _AT_A_PLACE(cls, given, attr, params)
