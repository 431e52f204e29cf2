"""The NPU graph while it grows: names of layers and tensors, and what became which tensor."""

from __future__ import annotations

from typing import Any

from tvm_npu.codegen import graph as g
from tvm_npu.door.dataflow import OpCall, Value


class GraphBuilder:
    """Collects layers; knows which tensor each value became, and whose each layer is."""

    def __init__(self) -> None:
        self.layers: list[g.Layer] = []
        self.shapes: dict[str, g.Shape] = {}
        self.inputs: list[str] = []
        self.tensors: dict[Value, str] = {}
        self.calls: dict[str, OpCall] = {}
        """By the names of layers."""

    def add_input(self, value: Value, shape: g.Shape | None = None) -> None:
        """``shape`` is batch-free; the value's own without its first extent when left out."""
        name = f"in{len(self.inputs)}"
        self.inputs.append(name)
        self.shapes[name] = value.shape[1:] if shape is None else shape
        self.tensors[value] = name

    def name(self, call: OpCall) -> str:
        """A layer name of its own: the source operator's when there is one."""
        base = call.source or call.spelling
        name, number = base, 1
        while name in self.calls:
            number += 1
            name = f"{base}#{number}"
        self.calls[name] = call
        return name

    def new_tensor(self, shape: g.Shape) -> str:
        name = f"t{len(self.shapes) - len(self.inputs)}"
        self.shapes[name] = shape
        return name

    def input(self, call: OpCall, index: int = 0) -> str:
        return self.tensors[call.operands[index]]

    def common(self, call: OpCall, *inputs: str, shape: g.Shape | None = None) -> dict[str, Any]:
        """Fields of every layer; makes the output tensor (batch-free ``shape``, default the
        call's) and remembers it as the call's value when the call has one tensor."""
        output = self.new_tensor(call.shape[1:] if shape is None else shape)
        if not call.returns_tuple:
            self.tensors[call.result()] = output
        return {
            "name": self.name(call),
            "inputs": inputs or (self.input(call),),
            "outputs": (output,),
            "source": (call.source,) if call.source else (),
        }
