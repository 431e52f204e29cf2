"""Integer division by a constant zero, found before anything computes with it.

What TVM compiles divides by the processor's own instruction: a zero ends the process, when TVM
folds constants or when the model runs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tvm_npu.errors import PartitionError

_DIVIDING = frozenset({"Div", "Mod"})


def check_divisor(operator: str, values: NDArray[Any]) -> None:
    """PartitionError where ``operator`` divides by constant integers of which one is 0."""
    if values.dtype.kind not in "iu" or values.all():
        return
    where = [int(axis) for axis in np.argwhere(values == 0)[0]]
    raise PartitionError(
        f"{operator} divides by a constant of {values.dtype} that is 0"
        f"{f' at {where}' if where else ''}; integers can be divided by numbers other than 0 only: "
        "change the constant, or divide floats"
    )


def check_divisors(model: Any) -> None:
    """`check_divisor` for all nodes of an ONNX model, in subgraphs and functions too, whose divisor
    is a weight or a Constant."""
    for node, constants in _nodes_and_constants(model):
        tensor = constants.get(node.input[1]) if len(node.input) == 2 else None
        if node.op_type in _DIVIDING and tensor is not None:
            check_divisor(f"{node.op_type} {node.name or node.output[0]!r}", _array(tensor))


def _nodes_and_constants(model: Any) -> Iterator[tuple[Any, Mapping[str, Any]]]:
    """All nodes, each with the constant tensors that it sees."""
    open_graphs: list[tuple[Any, Mapping[str, Any]]] = [(model.graph, {})]
    open_graphs += [(function, {}) for function in model.functions]
    while open_graphs:
        graph, outer = open_graphs.pop()
        own = {tensor.name: tensor for tensor in getattr(graph, "initializer", ())}
        for node in graph.node:
            if node.op_type == "Constant" and node.output:
                for item in node.attribute:
                    if item.name == "value":
                        own[node.output[0]] = item.t
        seen = {**outer, **own} if own else outer
        for node in graph.node:
            yield node, seen
            for item in node.attribute:
                if item.HasField("g"):
                    open_graphs.append((item.g, seen))
                open_graphs += [(inner, seen) for inner in item.graphs]


def _array(tensor: Any) -> NDArray[Any]:
    """The values of a tensor; none where they lie in a file that was not read."""
    from onnx import numpy_helper

    if tensor.data_location == tensor.EXTERNAL:
        return np.ones(0)
    try:
        return np.asarray(numpy_helper.to_array(tensor))
    except (TypeError, ValueError) as error:
        raise PartitionError(
            f"tensor {tensor.name!r} of shape {list(tensor.dims)} cannot be read: {error}"
        ) from error
