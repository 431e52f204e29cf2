"""ONNX models of one node: any operator that ONNX has, on constants and attributes of any kind."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

_EXTENTS = (0, 1, 1, 2, 3, 7)
_RANKS = (0, 0, 1, 1, 2, 3, 4, 5)
_NUMBERS = (-(1 << 40), -9, -3, -1, 0, 1, 2, 5, 9, 1 << 40)
_ATTRIBUTES: Mapping[str, Callable[[random.Random], Any]] = {
    "INT": lambda rng: rng.choice(_NUMBERS),
    "INTS": lambda rng: [rng.choice(_NUMBERS[1:-1]) for _ in range(rng.randint(1, 5))],
    "FLOAT": lambda rng: rng.choice((-1.0, 0.0, 0.5, math.inf)),
    "FLOATS": lambda rng: [0.5, -1.0],
    "STRING": lambda rng: rng.choice(("SAME_UPPER", "VALID", "linear", "ij,jk->ik", "x")),
}  # fmt: skip


@lru_cache(maxsize=1)
def _schemas() -> list[Any]:
    from onnx import defs

    found = (one for one in defs.get_all_schemas_with_history() if one.domain == "")
    return sorted(found, key=lambda one: (one.name, one.since_version))


def one_node_model(rng: random.Random) -> bytes:
    """Most have constants for inputs: who reads the model asks how large the result is."""
    from onnx import TensorProto, helper

    schema = rng.choice(_schemas())
    most = min(schema.max_input, schema.min_input + 4)
    names = [f"c{number}" for number in range(rng.randint(schema.min_input, most))]
    constants = [_constant(rng, name) for name in names if rng.random() < 0.9]
    attributes = {
        name: _ATTRIBUTES[kind](rng)
        for name, one in schema.attributes.items()
        if (kind := str(one.type).rpartition(".")[2]) in _ATTRIBUTES and rng.random() < 0.4
    }
    made = ["y", *(f"y{number}" for number in range(1, min(schema.max_output, 3)))]
    graph = helper.make_graph(
        [helper.make_node(schema.name, names, made, **attributes)], "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 3, 6, 6])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)], constants,
    )  # fmt: skip
    opset = helper.make_opsetid("", max(7, schema.since_version))
    content: bytes = helper.make_model(graph, opset_imports=[opset]).SerializeToString()
    return content


def _constant(rng: random.Random, name: str) -> Any:
    from onnx import TensorProto, helper

    types = {
        TensorProto.FLOAT: (-1e30, 1e30), TensorProto.INT64: (-(1 << 62), 1 << 62),
        TensorProto.INT32: (-(1 << 31), (1 << 31) - 1), TensorProto.INT8: (-128, 127),
        TensorProto.BOOL: (0, 1),
    }  # fmt: skip
    kind = rng.choice(list(types))
    low, high = types[kind]
    extents = [rng.choice(_EXTENTS) for _ in range(rng.choice(_RANKS))]
    values = [min(max(rng.choice(_NUMBERS), low), high) for _ in range(math.prod(extents))]
    return helper.make_tensor(name, kind, extents, values)
