"""Converters of TVM's ONNX frontend that read a part of their node alone, as they are while a model
is read: replaced by ones that read all of it. So nodes in subgraphs are read well, too."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tvm_npu.relay.onnx import (
    casts,
    fourier,
    indices,
    logarithms,
    pads,
    pools,
    reductions,
    resizes,
    roundings,
    sequences,
    transposed,
)

_PARTS = (
    casts, fourier, indices, logarithms, pads, pools, reductions, resizes, roundings, sequences,
    transposed,
)  # fmt: skip


@contextmanager
def whole_nodes() -> Iterator[None]:
    """Within `quick_reading`, so one thread at a time."""
    before: list[tuple[Any, str, Any]] = []
    try:
        for part in _PARTS:
            for cls, name, converter in list(part.converters()):
                before.append((cls, name, vars(cls).get(name)))
                setattr(cls, name, classmethod(converter))
        yield
    finally:
        for cls, name, original in reversed(before):
            if original is None:
                delattr(cls, name)
            else:
                setattr(cls, name, original)
