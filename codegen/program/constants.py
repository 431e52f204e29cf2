"""Constants of a program: arrays one after another, aligned."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any

import numpy as np

from tvm_npu.codegen.errors import EmitError
from tvm_npu.codegen.freed_memory import Tidying, growing_bytes
from tvm_npu.codegen.passes.storage import ALIGNMENT_BYTES

_BLOCK = 1 << 18
"""Elements of which there is a copy at a time."""


class Constants:
    """Grows by arrays; every array has its byte offset."""

    def __init__(self) -> None:
        self.data = growing_bytes()
        self._tidying = Tidying()
        self._once: dict[Hashable, int] = {}

    def add(self, values: Any, dtype: np.dtype[Any], what: str) -> int:
        """The offset of ``values``; EmitError when ``dtype`` does not hold them."""
        array = np.ascontiguousarray(values)
        bounds = np.iinfo(dtype)
        if array.size and (array.min() < bounds.min or array.max() > bounds.max):
            raise EmitError(
                f"{what}: values {array.min()} .. {array.max()} do not fit {dtype.name}"
            )
        offset = self.pad()
        flat = array.reshape(-1)
        for begin in range(0, flat.size, _BLOCK):  # elements of another type are a copy
            block = np.ascontiguousarray(flat[begin : begin + _BLOCK], dtype)
            self.data.extend(block.view(np.uint8).data)
        self._tidying.freed(len(self.data) - offset)  # weights in the order of their plan
        return offset

    def once(self, key: Hashable, content: Callable[[], bytes], alignment_bytes: int) -> int:
        """The offset of what is added when ``key`` is asked for the first time."""
        if key not in self._once:
            self._once[key] = self._padded(alignment_bytes)
            self.data.extend(content())
        return self._once[key]

    def pad(self) -> int:
        """Zeros up to where the next array begins; the offset of that."""
        return self._padded(ALIGNMENT_BYTES)

    def _padded(self, alignment_bytes: int) -> int:
        missing = -len(self.data) % alignment_bytes
        if missing:  # else a program that was made of them may have views of them
            self.data.extend(bytes(missing))
        return len(self.data)
