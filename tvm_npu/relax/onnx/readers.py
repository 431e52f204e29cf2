"""Nodes of ONNX models that TVM's importer reads in part: what it ignores is made of their inputs
and attributes before it reads them, or of its result."""

from __future__ import annotations

from typing import Any

from tvm_npu.relax.onnx import images, indices, reductions, response_norm, results, windows
from tvm_npu.relax.onnx.node import Node, Reader

_READERS: dict[str, Reader] = {
    operator: reader
    for part in (images, indices, reductions, response_norm, results, windows)
    for operator, reader in part.READERS.items()
}


def prepare(node: Node) -> Any:
    """Makes of a node's inputs and attributes what TVM reads well. The result where it reads none
    well, else None. Raises PartitionError."""
    reader = _READERS.get(node.operator)
    return reader(node) if reader is not None else None


def complete(node: Node, made: Any) -> Any:
    """TVM's result, or what ONNX means."""
    completed = results.COMPLETED.get(node.operator)
    return completed(node, made) if completed is not None else made
