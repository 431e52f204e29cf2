"""What the NPU takes. One rule is one function; its docstring is the rule.

A rule looks at a call and returns None, or what it found and what is allowed. The same docstring
is the refusal's message and the line in the documentation (`door.rule_table`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from tvm_npu.codegen.least import LeastNeeds
from tvm_npu.door import geometry
from tvm_npu.door.backend import least_needs
from tvm_npu.door.dataflow import Array, Constant, Input, OpCall, TensorShape, TensorType, Value
from tvm_npu.options import Offload
from tvm_npu.sim.description import MachineDescription
from tvm_npu.sim.machine_parts import Precision

MAX_EXTENT = 65535


@dataclass(frozen=True)
class Context:
    """What the rules may depend on besides the call."""

    machine: MachineDescription
    precision: Precision
    offload: Offload = "all"

    @property
    def least(self) -> LeastNeeds:
        return least_needs(self.machine, self.precision)


@dataclass(frozen=True)
class Violation:
    value: str
    limit: str


Rule = Callable[[OpCall, Context], Violation | None]


def static_shapes(call: OpCall, context: Context) -> Violation | None:
    """Every tensor has a static shape."""
    for type_ in _types(call):
        if type_.static_shape is None:
            return Violation(str(type_), "no unknown extents: give shape= when reading the model")
    return None


def float32_tensors(call: OpCall, context: Context) -> Violation | None:
    """Every tensor of the model is float32; the NPU's own integers come from calibration."""
    for type_ in _types(call):
        if type_.dtype != "float32":
            return Violation(str(type_.dtype), "float32")
    return None


def extents_in_range(call: OpCall, context: Context) -> Violation | None:
    """Every extent of a tensor is at least 1 and at most 65535 (flat tensors: by memory alone)."""
    for shape in _shapes(call):
        largest = max(shape, default=1)
        if 0 in shape:
            return Violation(str(shape), "extents of at least 1")
        if len(shape) == 4 and largest > MAX_EXTENT:
            return Violation(str(largest), f"at most {MAX_EXTENT}")
    return None


def rank_4_or_2(call: OpCall, context: Context) -> Violation | None:
    """Tensors are NCHW feature maps (rank 4) or flat (rank 2: image, feature)."""
    for shape in run_time_shapes(call):
        if len(shape) not in (2, 4):
            return Violation(f"rank {len(shape)}, {shape}", "rank 4 or 2")
    return None


def rank_2_to_6(call: OpCall, context: Context) -> Violation | None:
    """Tensors whose elements are only moved, or joined along one axis, have a batch and one to five
    axes more."""
    for shape in run_time_shapes(call):
        if not 2 <= len(shape) <= 6:
            return Violation(f"rank {len(shape)}, {shape}", "rank 2 to 6")
    return None


def rank_4(call: OpCall, context: Context) -> Violation | None:
    """The operand is an NCHW feature map of rank 4."""
    shape = call.operands[0].shape
    return None if len(shape) == 4 else Violation(f"rank {len(shape)}, {shape}", "rank 4")


def batch_kept(call: OpCall, context: Context) -> Violation | None:
    """The first extent is the batch and stays what it is."""
    shapes = run_time_shapes(call)
    if len({shape[0] for shape in shapes}) > 1:
        return Violation(", ".join(map(str, shapes)), "one first extent throughout")
    return None


def finite_constants(call: OpCall, context: Context) -> Violation | None:
    """Constants contain neither NaN nor infinity."""
    for arg in call.operands:
        values = constant_array(arg)
        if values is not None and values.dtype.kind == "f":
            bad = int(values.size - np.count_nonzero(np.isfinite(values)))
            if bad:
                return Violation(f"{bad} of {values.size} values of {values.shape}", "0 values")
    return None


def constant_weights(call: OpCall, context: Context) -> Violation | None:
    """Everything but the first operand (weights, biases, statistics) is a constant."""
    for index, arg in enumerate(call.operands[1:], 1):
        if not isinstance(arg, Constant):
            known = f" ({arg.name})" if isinstance(arg, Input) and arg.name else ""
            return Violation(f"operand {index}{known} is only known at run time", "a constant")
    return None


def data_is_variable(call: OpCall, context: Context) -> Violation | None:
    """The data operand is computed at run time."""
    if isinstance(call.operands[0], Constant):
        return Violation("a constant", "a run-time tensor")
    return None


def axis_of(call: OpCall) -> int:
    """The axis that the operator is told to go along, from 0."""
    rank = len(run_time_shapes(call)[0])
    return geometry.normalized_axis(call.attributes["axis"], rank)


def _types(call: OpCall) -> list[TensorType]:
    tensors = call.operands[:1] if call.name == "pad" else call.operands  # fill: any type
    return [type_ for one in tensors for type_ in one.types] + list(call.types)


def _shapes(call: OpCall) -> list[TensorShape]:
    return _static(_types(call))


def run_time_shapes(call: OpCall) -> list[TensorShape]:
    """Shapes of the run-time operands and of the results (a batch norm's first result only)."""
    results = call.types[:1] if call.name == "batch_norm" else call.types
    return _static([type_ for one in call.run_time_operands for type_ in one.types] + [*results])


def _static(types: list[TensorType]) -> list[TensorShape]:
    return [shape for shape in (type_.static_shape for type_ in types) if shape is not None]


def constant_array(value: Value) -> Array | None:
    """What a constant holds; None for what is only known at run time."""
    return value.array if isinstance(value, Constant) else None
