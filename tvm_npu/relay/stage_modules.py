"""A range of primitives as a Relay module of its own, weights as parameters."""

from __future__ import annotations

from typing import Any

import tvm
from tvm import relay

from tvm_npu.pipelines.cut import Stage
from tvm_npu.pipelines.primitives import Value
from tvm_npu.relay import operands as of
from tvm_npu.relay.primitive_graph import RelayPrimitives

Expr = Any


def stage_module(stage: Stage) -> tuple[tvm.IRModule, dict[str, tvm.nd.NDArray]]:
    """A module whose main calls a stage's fused functions, and its weights by name: its parameters
    are the inputs that the stage reads, then those.

    before: ``relu(conv(pool(x), w))``, cut behind the pool
    after: ``main(%cut0, %w0) = fused_conv_relu(%cut0, %w0)`` with params ``{w0: w}``
    """
    builder = _Builder(stage)
    for number in stage.primitives:
        builder.add(number)
    made = [builder.value(value) for value in stage.computed]
    main = relay.Function(
        [*builder.inputs.values(), *builder.weights.values()],
        made[0] if len(made) == 1 else relay.Tuple(made),
    )
    mod = relay.transform.InferType()(tvm.IRModule({relay.GlobalVar("main"): main}))
    return mod, {var.name_hint: constant.data for constant, var in builder.weights.items()}


class _Builder:
    """Copies calls; what comes from outside becomes a parameter of the new main."""

    def __init__(self, stage: Stage) -> None:
        assert isinstance(stage.graph, RelayPrimitives)
        self.graph = stage.graph
        self.free = stage.taken
        self.inputs: dict[Value, relay.Var] = {}
        self.weights: dict[relay.Constant, relay.Var] = {}
        self._made: dict[int, Expr] = {}
        self._numbers = {one.call: number for number, one in enumerate(self.graph.primitives)}
        self._positions = {var: position for position, var in enumerate(self.graph.variables)}
        names = [spec.name for spec in self.free.values()]
        self._weight_prefix = "w"
        while any(name.startswith(self._weight_prefix) for name in names):
            self._weight_prefix += "_"

    def add(self, number: int) -> None:
        call = self.graph.primitives[number].call
        function = call.op
        if isinstance(function, relay.GlobalVar):
            function = self.graph.mod[function]
        self._made[number] = relay.Call(function, [self._argument(arg) for arg in call.args])

    def value(self, value: Value) -> Expr:
        """The expression of one tensor, made here or free."""
        if value.node not in self._made:
            if value not in self.inputs:
                self.inputs[value] = relay.Var(self.free[value].name, self.graph.relay_type(value))
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
