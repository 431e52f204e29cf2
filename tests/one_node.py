"""ONNX models of a single node, whose other inputs are constants."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

Array = np.ndarray[Any, Any]


def ints(*values: int) -> Array:
    return np.array(values, np.int64)


def floats(*values: float) -> Array:
    return np.array(values, np.float32)


def values(*shape: int) -> Array:
    return np.random.default_rng(3).standard_normal(shape).astype(np.float32)


def model_of(
    operator: str,
    x: Array,
    *more: Array | None,
    opset: int = 18,
    kinds: tuple[int, ...] = (),
    domain: str = "",
    **attributes: Any,
) -> onnx.ModelProto:
    """``operator`` of x and constants; None is an input that is left out. ``kinds`` are the types
    of its results, where these are not one of x's type."""
    names = ["x"] + ["" if one is None else f"c{n}" for n, one in enumerate(more)]
    kind = helper.np_dtype_to_tensor_dtype(x.dtype)
    made = [f"y{n}" for n in range(max(len(kinds), 1))]
    node = helper.make_node(operator, names, made, name="it", domain=domain, **attributes)
    graph = helper.make_graph(
        [node], "g", [helper.make_tensor_value_info("x", kind, x.shape)],
        [helper.make_tensor_value_info(y, one, None)
         for y, one in zip(made, kinds or (kind,), strict=True)],
        [numpy_helper.from_array(c, f"c{n}") for n, c in enumerate(more) if c is not None],
    )  # fmt: skip
    opsets = [helper.make_opsetid("", opset)] + [helper.make_opsetid(domain, 1)] * bool(domain)
    return helper.make_model(graph, opset_imports=opsets, ir_version=8)
