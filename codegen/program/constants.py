"""Constants of a program: arrays one after another, aligned."""

from __future__ import annotations

from typing import Any

import numpy as np

from tvm_npu.codegen.errors import EmitError
from tvm_npu.codegen.passes.storage import ALIGNMENT_BYTES


class Constants:
    """Grows by arrays; every array has its byte offset."""

    def __init__(self) -> None:
        self.data = bytearray()

    def add(self, values: Any, dtype: np.dtype[Any], what: str) -> int:
        """The offset of ``values``; EmitError when ``dtype`` does not hold them."""
        array = np.ascontiguousarray(values)
        bounds = np.iinfo(dtype)
        if array.size and (array.min() < bounds.min or array.max() > bounds.max):
            raise EmitError(
                f"{what}: values {array.min()} .. {array.max()} do not fit {dtype.name}"
            )
        offset = self.pad()
        self.data.extend(np.ascontiguousarray(array, dtype).reshape(-1).view(np.uint8).data)
        return offset

    def pad(self) -> int:
        """Zeros up to where the next array begins; the offset of that."""
        self.data.extend(bytes(-len(self.data) % ALIGNMENT_BYTES))
        return len(self.data)
