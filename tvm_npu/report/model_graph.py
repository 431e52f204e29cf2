"""A model's operators as the graph that a report shows: NPU layers and CPU operators, and which
tensors go from one to another."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Container, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tvm_npu.door.onnx.names import node_names
from tvm_npu.report.placement import Refusal
from tvm_npu.report.profile import LayerRow


@dataclass(frozen=True)
class Node:
    """``layer`` counts in the profile's layers. None: the CPU's, or one that needs no work of its
    own (its tensors already lie as it wants them, or it is folded)."""

    name: str
    operators: tuple[str, ...]
    layer: int | None
    on_cpu: bool = False


@dataclass(frozen=True)
class ModelGraph:
    """``edges`` are pairs of numbers of ``nodes``, which stand in the model's order."""

    nodes: tuple[Node, ...]
    edges: tuple[tuple[int, int], ...]


def layers_of(operators: Sequence[Any], layers: Sequence[LayerRow]) -> list[int | None]:
    """For each onnx.NodeProto the number of the layer that it became, None if it is none. Nodes of
    one name take layers of that source in order; the last of these has all nodes that are left, and
    a node that became several layers."""
    rows_of: dict[str, deque[int]] = {}
    for number, row in enumerate(layers):
        for source in row.source:
            rows_of.setdefault(source, deque()).append(number)
    names = node_names(operators)
    nodes_of = Counter(names)
    found: list[int | None] = []
    for source in names:
        rows = rows_of.get(source)
        if rows is None:
            found.append(None)
        elif nodes_of[source] > 1 and len(rows) > 1:
            found.append(rows.popleft())
        else:
            found.append(rows[-1])
    return found


def graph_of_onnx(
    model: Any, layers: Sequence[LayerRow], refusals: Sequence[Refusal]
) -> ModelGraph:
    """Of an onnx.ModelProto; ``refusals`` say what is on the CPU. Nodes that became part of a layer
    are one node with it; constants, and what is computed from them or from extents alone, are left
    out."""
    fixed = {"", *(tensor.name for tensor in model.graph.initializer)}
    nodes: list[Node] = []
    number_of: dict[int, int] = {}  # layer -> node
    makers: dict[str, frozenset[int]] = {}
    edges: dict[tuple[int, int], None] = {}
    on_cpu = {one.source for one in refusals}
    operators = model.graph.node
    names = node_names(operators)
    for operator, called, layer in zip(operators, names, layers_of(operators, layers), strict=True):
        read: frozenset[int] = frozenset().union(*(makers.get(t, frozenset())
                                                   for t in operator.input))  # fmt: skip
        if layer is None and called not in on_cpu and _is_fixed(operator, fixed):
            fixed.update(operator.output)
            continue
        if layer is not None and layer in number_of:
            mine = number_of[layer]
        else:
            mine = len(nodes)
            name = called if layer is None else layers[layer].name
            nodes.append(Node(name, (), layer, layer is None and called in on_cpu))
            if layer is not None:
                number_of[layer] = mine
        known = nodes[mine]
        nodes[mine] = replace(known, operators=(*known.operators, operator.op_type))
        edges.update(dict.fromkeys((one, mine) for one in sorted(read) if one != mine))
        makers.update(dict.fromkeys(operator.output, frozenset({mine})))
    return ModelGraph(tuple(nodes), tuple(edges))


def _is_fixed(operator: Any, fixed: Container[str]) -> bool:
    """Does an operator without work of its own give the same values in every run? Those whose
    tensors are all ``fixed`` do, and those that only look at extents."""
    if any(one.HasField("g") or one.graphs for one in operator.attribute):
        return False  # its bodies read tensors that are not among its own
    return operator.op_type in ("Shape", "Size") or all(name in fixed for name in operator.input)
