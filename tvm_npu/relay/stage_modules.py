"""A range of primitives as a Relay module of its own, weights as parameters."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import tvm
from tvm import relay

from tvm_npu.relay import operands as of
from tvm_npu.relay.primitive_graph import PrimitiveGraph, Value
from tvm_npu.relay.run_regions import is_region
from tvm_npu.runtime.pipeline.artifact import TensorSpec

Expr = Any


@dataclass(frozen=True)
class StageModule:
    """``mod`` has a main of calls of fused functions; its parameters are the inputs that the stage
    reads, then ``params``. ``inputs`` and ``outputs`` are all tensors that cross the cuts; those
    in both are carried along and are no results of ``mod``, whose results are the other outputs.
    """

    name: str
    mod: tvm.IRModule
    params: Mapping[str, tvm.nd.NDArray]
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    regions: int

    @property
    def read(self) -> tuple[str, ...]:
        """Names of the inputs that the stage computes with."""
        return tuple(
            var.name_hint for var in self.mod["main"].params if var.name_hint not in self.params
        )

    @property
    def computed(self) -> tuple[TensorSpec, ...]:
        """The results of ``mod``, in order."""
        carried = {spec.name for spec in self.inputs}
        return tuple(spec for spec in self.outputs if spec.name not in carried)

    @property
    def parameter_bytes(self) -> int:
        return sum(array.numpy().nbytes for array in self.params.values())


def stage_module(
    graph: PrimitiveGraph,
    name: str,
    primitives: Sequence[int],
    inputs: Sequence[Value],
    outputs: Sequence[Value],
    tensors: Mapping[Value, TensorSpec],
) -> StageModule:
    """The module of ``primitives`` (ascending) with ``inputs`` in front and ``outputs`` behind.

    before: ``relu(conv(pool(x), w))``, cut behind the pool
    after: ``main(%cut0, %w0) = fused_conv_relu(%cut0, %w0)`` with params ``{w0: w}``
    """
    builder = _Builder(graph, {value: tensors[value] for value in inputs})
    for number in primitives:
        builder.add(number)
    made = [builder.value(value) for value in outputs if value not in builder.free]
    main = relay.Function(
        [*builder.inputs.values(), *builder.weights.values()],
        made[0] if len(made) == 1 else relay.Tuple(made),
    )
    mod = relay.transform.InferType()(tvm.IRModule({relay.GlobalVar("main"): main}))
    return StageModule(
        name=name,
        mod=mod,
        params={var.name_hint: constant.data for constant, var in builder.weights.items()},
        inputs=tuple(tensors[value] for value in inputs),
        outputs=tuple(tensors[value] for value in outputs),
        regions=builder.regions,
    )


class _Builder:
    """Copies calls; what comes from outside becomes a parameter of the new main."""

    def __init__(self, graph: PrimitiveGraph, free: Mapping[Value, TensorSpec]) -> None:
        self.graph = graph
        self.free = free
        self.inputs: dict[Value, relay.Var] = {}
        self.weights: dict[relay.Constant, relay.Var] = {}
        self.regions = 0
        self._made: dict[int, Expr] = {}
        self._numbers = {one.call: number for number, one in enumerate(graph.primitives)}
        self._positions = {var: position for position, var in enumerate(graph.inputs)}
        names = [spec.name for spec in free.values()]
        self._weight_prefix = "w"
        while any(name.startswith(self._weight_prefix) for name in names):
            self._weight_prefix += "_"

    def add(self, number: int) -> None:
        call = self.graph.primitives[number].call
        function = call.op
        if isinstance(function, relay.GlobalVar):
            function = self.graph.mod[function]
        self.regions += is_region(function)
        self._made[number] = relay.Call(function, [self._argument(arg) for arg in call.args])

    def value(self, value: Value) -> Expr:
        """The expression of one tensor, made here or free."""
        if value.node not in self._made:
            if value not in self.inputs:
                self.inputs[value] = relay.Var(self.free[value].name, self.graph.type_of(value))
            return self.inputs[value]
        made = self._made[value.node]
        is_tuple = isinstance(self.graph.primitives[value.node].call.checked_type, relay.TupleType)
        return relay.TupleGetItem(made, value.position) if is_tuple else made

    def _argument(self, arg: Expr) -> Expr:
        if isinstance(arg, relay.Constant):
            if arg not in self.weights:
                name = f"{self._weight_prefix}{len(self.weights)}"
                self.weights[arg] = relay.Var(name, arg.checked_type)
            return self.weights[arg]
        if isinstance(arg, relay.Tuple):
            return relay.Tuple([self._argument(field) for field in arg.fields])
        if isinstance(arg, relay.Var):
            return self.value(Value(-1, self._positions[arg]))
        if isinstance(arg, relay.TupleGetItem):
            return self.value(Value(self._numbers[arg.tuple_value], int(arg.index)))
        number = self._numbers[arg]
        count = len(of.tensor_types(arg.checked_type))
        if isinstance(arg.checked_type, relay.TupleType):
            return relay.Tuple([self.value(Value(number, n)) for n in range(count)])
        return self.value(Value(number, 0))
