"""Shapes of an ONNX model's tensors: ONNX's own inference, in time that no extent decides.

For ``auto_pad`` SAME it counts an axis down in steps of the stride: 2^47 rows take days.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tvm_npu.door.onnx.nodes import nodes_of
from tvm_npu.door.shape_inference import infer_shapes
from tvm_npu.errors import PartitionError

LARGEST_EXTENT = (1 << 31) - 1
"""Of an axis, as TVM and the machines count elements."""

_SAME = frozenset({b"SAME_UPPER", b"SAME_LOWER"})
_COUNTED_DOWN = frozenset({"Conv", "MaxPool", "AveragePool", "LpPool"})
_BY_AXIS = frozenset({"kernel_shape", "strides", "dilations"})
_UNKNOWN = "tvm_npu.unknown"
_OF_THE_WINDOW = frozenset({"auto_pad", "kernel_shape", "dilations", "pads", "ceil_mode"})


def check_extents(model: Any) -> None:
    """PartitionError for a declared tensor with an axis of more than LARGEST_EXTENT elements."""
    graph = model.graph
    declared = [(tensor.name, tuple(tensor.dims)) for tensor in graph.initializer]
    for value in (*graph.input, *graph.value_info, *graph.output):
        dims = value.type.tensor_type.shape.dim
        declared.append((value.name, tuple(dim.dim_value for dim in dims)))
    for name, extents in declared:
        if max(extents, default=0) > LARGEST_EXTENT:
            raise PartitionError(
                f"tensor {name!r} has the shape {list(extents[:8])}; an axis may have up to "
                f"{LARGEST_EXTENT} elements"
            )


def known_shapes(graph: Any) -> dict[str, tuple[int, ...]]:
    """Shapes (0: unknown extent) of all tensors that have one."""
    shapes = {tensor.name: tuple(tensor.dims) for tensor in graph.initializer}
    for value in (*graph.input, *graph.value_info, *graph.output):
        if value.type.tensor_type.HasField("shape"):
            dims = value.type.tensor_type.shape.dim
            shapes.setdefault(value.name, tuple(int(dim.dim_value) for dim in dims))
    return shapes


def inferred(model: Any, values: bool = False) -> Any:
    """A copy of a checked model whose graph has the shapes that ONNX infers; with ``values`` also
    those that the model computes from other shapes. PartitionError where the inference crashes."""
    import onnx

    ranks: dict[str, int] = {}
    while True:
        plain = onnx.ModelProto.FromString(model.SerializeToString())
        left = [node for node in nodes_of(plain) if not _made_small(node, ranks)]
        for node in left:  # an operator that ONNX does not know has no shapes
            node.domain = _UNKNOWN
        for part in (plain, *plain.functions) if left else ():
            part.opset_import.add(domain=_UNKNOWN, version=1)
        shaped = infer_shapes(plain, values)
        known = len(ranks)
        ranks |= {name: len(shape) for name, shape in known_shapes(shaped.graph).items()}
        if not left or len(ranks) == known:
            return shaped


def _made_small(node: Any, ranks: Mapping[str, int]) -> bool:
    """Makes a window of SAME one of a single element, which gives as many results. False where its
    number of axes is not known."""
    import onnx

    given = {item.name: item for item in node.attribute}
    mode = given.get("auto_pad")
    if node.op_type not in _COUNTED_DOWN or mode is None or mode.s not in _SAME:
        return True
    axes = max((len(given[name].ints) for name in _BY_AXIS & given.keys()), default=0)
    if not axes:
        axes = max((ranks.get(name, 0) for name in node.input[:2]), default=0) - 2
    if axes < 1:
        return False
    kept = [item for item in node.attribute if item.name not in _OF_THE_WINDOW]
    del node.attribute[:]
    node.attribute.extend([*kept, onnx.helper.make_attribute("kernel_shape", [1] * axes)])
    return True
