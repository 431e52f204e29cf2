"""Making TVM's ONNX frontend read in linear time.

For many operators it asks for the type of what it has built so far, and TVM 0.19 types the whole
graph anew each time; for each it builds its table of 250 converters anew. It asks operators for
their spans, results for their names, and lists for NumPy's protocols, which TVM answers by an error
with a backtrace: the first one takes 50 MB for debug information. ONNX's checker, whose findings it
warns of, copies all weights twice.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import Any

import onnx
import tvm
from tvm import relay
from tvm.relay.frontend import common
from tvm.relay.frontend import onnx as reader

from tvm_npu.relay.light_check import light_check
from tvm_npu.relay.quick_folding import QuickFolder
from tvm_npu.sim.deferred import deferred
from tvm_npu.sim.locks import ForkedLock

_NAMELESS = (relay.Call, relay.Constant, relay.Tuple, relay.TupleGetItem)
_lock = ForkedLock(threading.RLock)


@contextmanager
def quick_reading() -> Iterator[None]:
    """While it is entered, types are inferred from the nearest known ones, constants folded where
    they are new, the table of converters is made once for each operator set, attributes that
    nothing of TVM has are not looked for, and the checker does not see large weights. One thread at
    a time."""
    with _lock():
        originals = common.infer_type, reader._get_convert_map, reader.fold_constant
        check, attribute = onnx.checker.check_model, tvm.Object.__getattr__
        try:
            common.infer_type = reader.infer_type = _local_types(common.infer_type)
            reader._get_convert_map = lru_cache(maxsize=None)(reader._get_convert_map)
            reader.fold_constant = QuickFolder(reader.fold_constant)
            onnx.checker.check_model = light_check(check)
            tvm.Object.__getattr__ = _known_attributes(attribute)
            yield
        finally:
            with deferred():
                common.infer_type, reader._get_convert_map, reader.fold_constant = originals
                reader.infer_type = common.infer_type
                onnx.checker.check_model = check
                tvm.Object.__getattr__ = attribute


def _local_types(whole: Callable[..., Any]) -> Callable[..., Any]:
    """`infer_type` that takes the types of operands for known."""

    def infer_type(node: Any, mod: Any = None) -> Any:
        if mod is not None or isinstance(node, relay.Function):
            return whole(node, mod)
        relay.transform.InferTypeLocal(node)
        return node

    return infer_type


def _known_attributes(original: Callable[[Any, str], Any]) -> Callable[[Any, str], Any]:
    """`Object.__getattr__` that does not ask TVM for what it never has."""

    def attribute(value: Any, name: str) -> Any:
        if (
            name.startswith("__")
            or (name == "span" and isinstance(value, tvm.ir.Op))
            or (name == "name_hint" and isinstance(value, _NAMELESS))
        ):
            raise AttributeError(f"{type(value)} has no attribute {name}")
        return original(value, name)

    return attribute
