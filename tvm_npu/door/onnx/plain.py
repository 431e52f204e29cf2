"""Nodes of ONNX models in one spelling of several that ONNX has: whoever reads a model, and who
checks it before, then knows one."""

from __future__ import annotations

from typing import Any

import numpy as np

from tvm_npu.door.onnx.nodes import called, nodes_of
from tvm_npu.errors import PartitionError

_NUMBERS = {
    "value_float": ("f", np.float32),
    "value_floats": ("floats", np.float32),
    "value_int": ("i", np.int64),
    "value_ints": ("ints", np.int64),
}
"""Attributes of a Constant: the field of theirs with the numbers, and what these are."""
_READ = frozenset({"", "ai.onnx", "com.microsoft"})
"""Domains whose operators TVM's readers know."""
_STRINGS = frozenset({"value_string", "value_strings"})


def is_plain(model: Any) -> bool:
    """Whether `make_plain` has nothing to do."""
    return not any(_number(node) or _ends_empty(node) for node in nodes_of(model))


def make_plain(model: Any) -> None:
    """Changes the nodes of a model, those of subgraphs and functions too: numbers of Constants are
    tensors, and inputs that are left out at the end are not there.

    before: Constant(value_ints=[2, 3])         after: Constant(value=int64[2])
    before: Conv(x, w, "")                      after: Conv(x, w)
    """
    for node in nodes_of(model):
        number = _number(node)
        if number is not None:
            _make_tensor(node, number)
        while _ends_empty(node):
            del node.input[-1]


def check_strings(model: Any) -> None:
    """PartitionError for a Constant of strings: TVM has none, and would take 0 for them."""
    for node in nodes_of(model):
        if node.op_type == "Constant" and _STRINGS & {item.name for item in node.attribute}:
            raise PartitionError(
                f"{called(node)} holds strings, which TVM does not know; leave them and what reads "
                "them out of the model"
            )


def check_domains(model: Any) -> None:
    """PartitionError for an operator that has the name of one of ONNX's and is another one: TVM
    looks at names alone."""
    from onnx import defs

    for node in nodes_of(model):
        if node.domain not in _READ and defs.has(node.op_type):
            raise PartitionError(
                f"{called(node)} is of the domain {node.domain!r}; TVM would take it for ONNX's "
                "operator of that name: give it another name, or inline its function"
            )


def _number(node: Any) -> Any:
    """The attribute with a Constant's numbers; None where it has a tensor, and in functions whose
    callers say what it is."""
    if node.op_type != "Constant":
        return None
    found = (one for one in node.attribute if one.name in _NUMBERS and not one.ref_attr_name)
    return next(found, None)


def _ends_empty(node: Any) -> bool:
    return len(node.input) > 0 and not node.input[-1]


def _make_tensor(node: Any, number: Any) -> None:
    from onnx import helper, numpy_helper

    field, dtype = _NUMBERS[number.name]
    tensor = numpy_helper.from_array(np.array(getattr(number, field), dtype))
    kept = [item for item in node.attribute if item.name != number.name]
    del node.attribute[:]
    node.attribute.extend([*kept, helper.make_attribute("value", tensor)])
