"""Integer division by a constant zero, found before anything computes with it.

What TVM compiles divides by the processor's own instruction: a zero ends the process, when TVM
folds constants or when the model runs.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from tvm_npu.door.onnx.nodes import called, nodes_and_tensors
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
    for node, constants in nodes_and_tensors(model, lambda tensor: tensor):
        tensor = constants.get(node.input[1]) if len(node.input) == 2 else None
        if node.op_type in _DIVIDING and tensor is not None:
            check_divisor(called(node), _array(tensor))


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
