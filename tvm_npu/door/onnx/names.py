"""What layers, refusals and reports call the nodes of an ONNX model, in the model and in TVM."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from threading import RLock
from typing import Any

from tvm_npu.sim.locks import ForkedLock

_NAMING = ForkedLock(RLock)


def node_names(nodes: Sequence[Any]) -> list[str]:
    """For each onnx.NodeProto its name, or where it has none its type, numbered among those of
    its type without one, as TVM's frontend for Relay does."""
    counts: Counter[str] = Counter()
    found = []
    for node in nodes:
        found.append(node.name or f"{node.op_type}_{counts[node.op_type]}")
        counts[node.op_type] += not node.name
    return found


def name_in(attr: Mapping[str, Any]) -> str:
    """A node's name, as TVM's importers leave it among its attributes."""
    return str(attr.get("tvm_custom", {}).get("name", ""))


def called_in(operator: str, attr: Mapping[str, Any]) -> str:
    """What messages call a node with such attributes."""
    return f"{operator} {name_in(attr)!r}"


@contextmanager
def named(model: Any) -> Iterator[None]:
    """Within it all nodes of an onnx.ModelProto have a name; no copy, as weights are large. One
    thread at a time: another would lose the names when this one leaves."""
    with _NAMING():
        unnamed = [
            (node, name)
            for node, name in zip(model.graph.node, node_names(model.graph.node), strict=True)
            if not node.name
        ]
        try:
            for node, name in unnamed:
                node.name = name
            yield
        finally:
            for node, _ in unnamed:
                node.ClearField("name")
