"""When a region without weights and windows pays: a rule of operations on the CPU.

Such a region replaces work that the CPU does while the tensors pass through it anyway. It saves the
operations of its calls; it costs a call of the NPU, and at its borders every element is scaled,
rounded, bounded and stored (or loaded and scaled).
"""

from __future__ import annotations

from math import prod

from tvm_npu.door.dataflow import Constant, OpCall, Result, TensorType, Value
from tvm_npu.door.geometry import softmax_count
from tvm_npu.door.operators import ATTRIBUTES
from tvm_npu.door.work import REDUCTIONS as SUMS_AND_EXTREMES

ENTRY_OPERATIONS = 10_000
"""A call of the NPU: registers, doorbell, interrupt; about 5 us of a core with 2 operations a
nanosecond."""
OPERATIONS_PER_US = 2_000
"""Of that core."""
BORDER_OPERATIONS = 4
"""For each element that enters or leaves: scale, round, bound, store."""
OPERATIONS = {"softmax": 24} | dict.fromkeys(
    ("sigmoid", "tanh", "exp", "erf", "log", "sqrt", "rsqrt", "gelu", "silu", "swish"), 16
)
"""For each element that a call works on; every other call takes 1."""
REDUCTIONS = SUMS_AND_EXTREMES | {
    "prod", "variance", "std", "all", "any", "argmax", "argmin", "logsumexp", "median", "topk"
}  # fmt: skip
"""Of many elements they make few; so do pools."""


SOFTMAX_OPERATIONS = 10_000
"""Its steps are layers of their own: about 5 us before they have done anything."""
SOFTMAX_ROWS = 32
"""Rows at work at the same time; one takes as long as on the CPU."""
PASS_OPERATIONS = 6
"""For each element: the steps hand the tensor on through the memory."""


def works_with_weights(call: OpCall) -> bool:
    """Does a call multiply by weights or reduce windows? Such regions are taken whatever they
    cost: they are what an NPU is for."""
    if call.name in ("mean", "sum", "max", "min", "batch_matmul") or "pool" in call.name:
        return True
    weighted = ("conv", "dense", "matmul", "lstm", "gru")
    return any(word in call.name for word in weighted)


def worked_elements(call: OpCall) -> int:
    """Elements that the CPU goes through for ``call``: those of its (first) result; of a reduction
    or pool those that it reads, each as often as windows contain it. 0 for unknown extents."""
    made = sum(map(_elements, call.types[:1]))
    if not call.operands or not (call.name in REDUCTIONS or "pool" in call.name):
        return made
    if made and "pool_size" in ATTRIBUTES.get(call.name, {}):
        made *= prod(call.attributes["pool_size"])
    return max(made, _elements(call.operands[0].types[0]))


def _elements(type_: TensorType) -> int:
    shape = type_.static_shape
    return 0 if shape is None else prod(shape)


def saved_operations(calls: tuple[OpCall, ...]) -> int:
    """What the CPU would do for ``calls``."""
    return sum(OPERATIONS.get(call.name, 1) * worked_elements(call) for call in calls)


def softmax_operations(call: OpCall) -> int:
    """What a softmax costs the NPU, as operations of the CPU in the same time."""
    elements, count = prod(call.shape), softmax_count(call)
    longest = count * -(-elements // count // SOFTMAX_ROWS)
    passes = max(OPERATIONS["softmax"] * longest, PASS_OPERATIONS * elements)
    return SOFTMAX_OPERATIONS + passes


def border_operations(inputs: tuple[Value, ...], outputs: tuple[Result, ...]) -> int:
    """What entering and leaving costs the CPU."""
    elements = sum(
        prod(value.shape) for value in (*inputs, *outputs) if not isinstance(value, Constant)
    )
    return ENTRY_OPERATIONS + BORDER_OPERATIONS * elements


__all__ = [
    "border_operations", "saved_operations", "softmax_operations", "worked_elements",
    "works_with_weights",
]  # fmt: skip
