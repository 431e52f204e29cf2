"""All nodes of an ONNX model, each with what is noted of the tensors that it sees."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar

Note = TypeVar("Note")


def nodes_and_tensors(
    model: Any, note: Callable[[Any], Note]
) -> Iterator[tuple[Any, Mapping[str, Note]]]:
    """Nodes in subgraphs and functions too, each with ``note`` of the weights and the Constants
    that it sees, by name: those of the graphs around it as well, functions see their own."""
    open_graphs: list[tuple[Any, Mapping[str, Note]]] = [(model.graph, {})]
    open_graphs += [(function, {}) for function in model.functions]
    while open_graphs:
        graph, outer = open_graphs.pop()
        own = {tensor.name: note(tensor) for tensor in getattr(graph, "initializer", ())}
        for node in graph.node:
            if node.op_type == "Constant" and node.output:
                for item in node.attribute:
                    if item.name == "value":
                        own[node.output[0]] = note(item.t)
        seen = {**outer, **own} if own else outer
        for node in graph.node:
            yield node, seen
            open_graphs += [(inner, seen) for inner in subgraphs(node)]


def nodes_of(model: Any) -> Iterator[Any]:
    """All nodes, in subgraphs and functions too."""
    return (node for node, _ in nodes_and_tensors(model, lambda tensor: None))


def called(node: Any) -> str:
    """What messages call a node: its operator and its name."""
    name = node.name or (node.output[0] if node.output else "")
    return f"{node.op_type} {name!r}"


def axes_of(node: Any, weights: Mapping[str, Any]) -> tuple[int, ...]:
    """The axes of a Squeeze or an Unsqueeze (an attribute, since opset 13 an input); none where no
    one of the ``weights`` says them."""
    from onnx import numpy_helper

    for item in node.attribute:
        if item.name == "axes":
            return tuple(int(axis) for axis in item.ints)
    if len(node.input) < 2 or node.input[1] not in weights:
        return ()
    return tuple(int(axis) for axis in numpy_helper.to_array(weights[node.input[1]]).flat)


def subgraphs(node: Any) -> list[Any]:
    """Graphs among a node's attributes."""
    inner = [item.g for item in node.attribute if item.HasField("g")]
    return inner + [graph for item in node.attribute for graph in item.graphs]
