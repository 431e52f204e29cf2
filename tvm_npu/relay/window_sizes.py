"""How large windows are that a TensorFlow Lite model asks for, before anything computes with them.

A file of 2 KB may have a pool over 2^31 rows of padding. Those of ONNX models are checked as they
stand in the file (`door.window_attributes`).
"""

from __future__ import annotations

from math import prod
from typing import Any

import tvm
from tvm import relay

from tvm_npu.door.window_attributes import MOST
from tvm_npu.errors import PartitionError
from tvm_npu.relay.operands import post_order, source_of


def check_windows(mod: tvm.IRModule) -> None:
    """PartitionError for a pool with a window of more than MOST elements: it names the operator,
    the window and the limit."""
    for expr in post_order(mod["main"].body):
        size = _window(expr)
        if prod(size) > MOST:
            raise PartitionError(
                f"{expr.op.name} {source_of(expr)!r}: its window is {list(size)}; allowed: windows "
                f"of at most {MOST} elements"
            )


def _window(expr: Any) -> tuple[int, ...]:
    """Rows and columns of a pool; nothing for other operators, whose windows are in the file."""
    size = getattr(expr.attrs, "pool_size", None) if isinstance(expr, relay.Call) else None
    return () if size is None else tuple(int(extent) for extent in size)
