"""An ONNX node as TVM's importer for Relax gets it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tvm_npu.door.onnx.names import called_in


@dataclass(frozen=True)
class Node:
    """Readers change ``inputs`` and ``attrs``, which TVM's converter then takes."""

    builder: Any
    operator: str
    inputs: list[Any]
    attrs: dict[str, Any]
    opset: int

    @property
    def called(self) -> str:
        """For messages."""
        return called_in(self.operator, self.attrs)

    @property
    def result_count(self) -> int:
        """How many results the model names."""
        return int(self.attrs["tvm_custom"]["num_outputs"])

    def emit(self, made: Any) -> Any:
        """A step of the function that is built."""
        return self.builder.emit(made)


Reader = Callable[[Node], Any]
"""Makes of a node's inputs and attributes what TVM reads well, or its result; None where TVM's
converter makes that. Raises PartitionError."""
