"""Which operators of a model ended in which function of its TVM.

Legalization keeps the variables of main but no names; fusion keeps neither, and equal functions
become one. So values are numbered: before fusion and behind it the same call of the same
function with the same arguments has the same number.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import tvm
from tvm import relax

from tvm_npu.door.dataflow import OpCall
from tvm_npu.relax import expressions as of
from tvm_npu.relax.dataflow import is_plain, relax_dataflow

Number = Any
"""An int for a value, a tuple of numbers for a tuple that is written out."""


class FusedCalls:
    """``before`` is main in operators, ``legal`` the module in which they are functions."""

    def __init__(self, before: relax.Function, legal: tvm.IRModule) -> None:
        self._numbers: dict[Any, int] = {}
        self._operators: dict[int, OpCall] = {}
        known = {binding.var: call for call, binding in relax_dataflow(before).bound.items()}
        main = legal["main"]
        numbers = self._of_inputs(main)
        for binding in of.bindings(main):
            number = self._number(binding.value, numbers)
            numbers[binding.var] = number
            if binding.var in known:
                self._operators.setdefault(number, known[binding.var])

    def of_main(self, fused: tvm.IRModule) -> Iterator[tuple[OpCall, ...]]:
        """The operators inside of each call of main after fusion."""
        main = fused["main"]
        numbers = self._of_inputs(main)
        for binding in of.bindings(main):
            call = binding.value
            if is_plain(call):
                numbers[binding.var] = self._number(call, numbers)
                continue
            function = fused[call.op] if isinstance(call.op, tvm.ir.GlobalVar) else None
            if not isinstance(function, relax.Function):
                found = [self._number(call, numbers)]
                numbers[binding.var] = found[0]
            else:
                arguments = [self._number(arg, numbers) for arg in call.args]
                own = dict(zip(function.params, arguments, strict=True))
                found = []
                for inner in of.bindings(function):
                    own[inner.var] = self._number(inner.value, own)
                    found.append(own[inner.var])
                numbers[binding.var] = self._number(function.body.body, own)
            yield tuple(self._operators[one] for one in dict.fromkeys(found)
                        if one in self._operators)  # fmt: skip

    def _of_inputs(self, main: relax.Function) -> dict[Any, Number]:
        return {var: self._interned(("input", number)) for number, var in enumerate(main.params)}

    def _number(self, expr: Any, numbers: Mapping[Any, Number]) -> Number:
        if isinstance(expr, relax.Var):
            return numbers[expr]
        if isinstance(expr, of.Tuple):
            return tuple(self._number(item, numbers) for item in expr.fields)
        if isinstance(expr, of.TupleGetItem):
            whole = self._number(expr.tuple_value, numbers)
            position = int(expr.index)
            if isinstance(whole, tuple):
                return whole[position]
            return self._interned(("part", whole, position))
        if isinstance(expr, of.Call):
            key = (_name(expr.op), *(self._number(arg, numbers) for arg in expr.args))
            return self._interned(key)
        return self._interned(_name(expr) if isinstance(expr, tvm.ir.GlobalVar) else ("is", expr))

    def _interned(self, key: Any) -> int:
        return self._numbers.setdefault(key, len(self._numbers))


def _name(operator: Any) -> str:
    """Of an operator, a function of the module, or one outside."""
    return str(getattr(operator, "name_hint", None) or getattr(operator, "name", operator))
