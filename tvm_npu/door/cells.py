"""One step of a recurrent layer as TVM's frontends write it: cells of LSTM and GRU.

A cell is found from the call that makes the new h, upwards. Sums and products may have their
operands in either order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np

from tvm_npu.codegen.graph import FloatArray
from tvm_npu.door.dataflow import Constant, OpCall, Result, Value

Maker = Callable[[Value], OpCall | None]


@dataclass(frozen=True, eq=False)
class Linear:
    """value @ weight.T + the sum of biases, and the calls that compute it."""

    value: Value
    weight: Constant
    biases: tuple[Constant, ...]
    calls: tuple[OpCall, ...]

    def bias(self, rows: int) -> FloatArray:
        total = np.zeros(rows, np.float32)
        for bias in self.biases:
            total = total + bias.array.reshape(-1).astype(np.float32)
        return total


@dataclass(frozen=True, eq=False)
class Cell:
    """``before`` and ``after`` are the states: h, and c of an LSTM. ``linears`` are the sums of the
    gates: one of an LSTM, for x and h side by side; x's and h's of a GRU, or x's and one of h for
    each gate where the reset gate comes before them. Rows of gates come in the order input, forget,
    cell, output, or reset, update, new."""

    kind: str
    input: Value
    before: tuple[Value, ...]
    after: tuple[Value, ...]
    linears: tuple[Linear, ...]
    calls: frozenset[OpCall]

    @property
    def hidden(self) -> int:
        return self.after[0].shape[1]


def same_constants(first: Cell, second: Cell) -> bool:
    """Have two cells the same weights and biases?"""
    if first.kind != second.kind or len(first.linears) != len(second.linears):
        return False
    for one, other in zip(first.linears, second.linears, strict=True):
        constants = (one.weight, *one.biases), (other.weight, *other.biases)
        if len(constants[0]) != len(constants[1]):
            return False
        for a, b in zip(*constants, strict=True):
            if a is not b and not np.array_equal(a.array, b.array):
                return False
    return True


class _NoMatch(Exception):
    """The calls are not those of a cell."""


class _Pattern:
    """Goes up from calls to makers and remembers which calls it has met."""

    def __init__(self, maker: Maker) -> None:
        self._maker = maker
        self.met: list[OpCall] = []

    def made_by(self, value: Value, *names: str) -> OpCall:
        call = self._maker(value)
        if call is None or call.name not in names or not _is_static(call):
            raise _NoMatch
        self.met.append(call)
        return call

    def operand(self, value: Value, name: str) -> Value:
        """The only operand of the call of ``name`` that makes ``value``."""
        (operand,) = self.made_by(value, name).operands
        return operand

    def part(self, value: Value, split: OpCall | None, position: int, parts: int) -> OpCall:
        """The split along the features whose part ``value`` is; ``split`` if that is known."""
        call = self.made_by(value, "split")
        is_part = isinstance(value, Result) and value.path == (position,)
        along = call.attributes["axis"] in (1, -1) and len(call.types[0].shape) == 2
        if not is_part or not along or len(call.types) != parts or split not in (None, call):
            raise _NoMatch
        if len({type_.shape for type_ in call.types}) != 1:
            raise _NoMatch
        return call

    def linear(self, value: Value) -> Linear:
        """A dense layer and the constants that are added to it."""
        biases: list[Constant] = []
        calls: list[OpCall] = []
        call = self.made_by(value, "add", "bias_add", "dense")
        while call.name != "dense":
            data, bias = call.operands
            if isinstance(data, Constant):
                data, bias = bias, data
            features = call.shape[-1]
            is_bias = isinstance(bias, Constant) and bias.array.size == bias.shape[-1] == features
            if not isinstance(bias, Constant) or not is_bias:
                raise _NoMatch
            biases.append(bias)
            calls.append(call)
            call = self.made_by(data, "add", "bias_add", "dense")
        if not isinstance(call.operands[1], Constant):
            raise _NoMatch
        return Linear(call.operands[0], call.operands[1], tuple(biases), (*calls, call))


    def terms(self, value: Value) -> tuple[list[Value], tuple[Constant, ...]]:
        """What a tree of sums adds: values and constants."""
        values: list[Value] = []
        constants: list[Constant] = []
        waiting = [value]
        while waiting:
            one = waiting.pop()
            call = self._maker(one)
            if isinstance(one, Constant):
                constants.append(one)
            elif call is not None and call.name in ("add", "bias_add"):
                waiting += self.made_by(one, call.name).operands
            else:
                values.append(one)
        return values, tuple(constants)

    def gate(
        self, value: Value, split: OpCall | None, position: int
    ) -> tuple[OpCall, Linear]:
        """Part ``position`` of x's sums plus a dense layer plus constants: the split of x's sums,
        and the dense layer with the constants."""
        values, constants = self.terms(value)
        makers = [self._maker(one) for one in values]
        by_name = {
            maker.name: one for maker, one in zip(makers, values, strict=True) if maker is not None
        }
        if len(values) != 2 or set(by_name) != {"dense", "split"}:
            raise _NoMatch
        split, dense = self.part(by_name["split"], split, position, 3), by_name["dense"]
        linear = self.linear(dense)
        size = linear.weight.shape[0]
        if any(constant.array.size != size for constant in constants):
            raise _NoMatch
        return split, replace(linear, biases=constants)


def _is_static(call: OpCall) -> bool:
    return all(type_.static_shape is not None for type_ in call.types)


def lstm_cell(call: OpCall, maker: Maker) -> Cell | None:
    """``call`` is h = sigmoid(o) * tanh(c) of such a cell:

    i, f, g, o = split(dense(concatenate(x, h')) + biases)
    c = sigmoid(f) * c' + sigmoid(i) * tanh(g)
    """
    if call.name != "multiply":
        return None
    for outer, squashed in _both_orders(call):
        for swapped in (False, True):
            try:
                return _lstm(call, outer, squashed, swapped, maker)
            except _NoMatch:
                continue
    return None


def _lstm(call: OpCall, outer: Value, squashed: Value, swapped: bool, maker: Maker) -> Cell:
    pattern = _Pattern(maker)
    pattern.met.append(call)
    cell_state = pattern.operand(squashed, "tanh")
    gates = pattern.part(pattern.operand(outer, "sigmoid"), None, 3, 4)
    total = pattern.made_by(cell_state, "add")
    kept, new = reversed(total.operands) if swapped else total.operands
    kept_call, new_call = (pattern.made_by(value, "multiply") for value in (kept, new))
    before_c = _forgotten(pattern, kept_call, gates, maker)
    _written(pattern, new_call, gates, maker)
    linear = pattern.linear(gates.operands[0])
    joined = pattern.made_by(linear.value, "concatenate")
    if len(joined.operands) != 2 or joined.attributes["axis"] not in (1, -1):
        raise _NoMatch
    x, before_h = joined.operands
    return Cell(
        "lstm", x, (before_h, before_c), (call.result(), cell_state), (linear,),
        frozenset(pattern.met),
    )  # fmt: skip


def _forgotten(pattern: _Pattern, call: OpCall, gates: OpCall, maker: Maker) -> Value:
    """c' of sigmoid(f) * c'."""
    for gate, state in _both_orders(call):
        made = maker(gate)
        if made is not None and made.name == "sigmoid":
            pattern.part(pattern.operand(gate, "sigmoid"), gates, 1, 4)
            return state
    raise _NoMatch


def _written(pattern: _Pattern, call: OpCall, gates: OpCall, maker: Maker) -> None:
    """Checks sigmoid(i) * tanh(g)."""
    for gate, new in _both_orders(call):
        made = maker(gate)
        if made is not None and made.name == "sigmoid":
            pattern.part(pattern.operand(gate, "sigmoid"), gates, 0, 4)
            pattern.part(pattern.operand(new, "tanh"), gates, 2, 4)
            return
    raise _NoMatch


def gru_cell(call: OpCall, maker: Maker) -> Cell | None:
    """``call`` is h = (h' - n) * sigmoid(z) + n of such a cell, "linear before reset":

    xr, xz, xn = split(dense(x) + biases); hr, hz, hn = split(dense(h') + biases)
    z = xz + hz; n = tanh(xn + sigmoid(xr + hr) * hn)

    or, with three dense layers for h' and sums of biases,

    z = xz + dense(h') + bias; r = sigmoid(xr + dense(h') + bias)
    n = tanh(xn + dense(r * h') + bias)
    """
    if call.name != "add":
        return None
    for moved, new in _both_orders(call):
        for gates in (_linear_before_reset, _reset_before_linear):
            try:
                return _gru(call, moved, new, maker, gates)
            except _NoMatch:
                continue
    return None


Gates = Callable[["_Pattern", Value, Value, Value, Maker], tuple[Linear, ...]]
"""(pattern, n, what sigmoid makes z of, h', maker) -> x's sums and those of h'."""


def _gru(call: OpCall, moved: Value, new: Value, maker: Maker, gates: Gates) -> Cell:
    pattern = _Pattern(maker)
    pattern.met.append(call)
    product = pattern.made_by(moved, "multiply")
    difference, update = _ordered(product, maker, "subtract")
    before, other = pattern.made_by(difference, "subtract").operands
    if other != new:
        raise _NoMatch
    linears = gates(pattern, new, pattern.operand(update, "sigmoid"), before, maker)
    return Cell(
        "gru", linears[0].value, (before,), (call.result(),), linears, frozenset(pattern.met)
    )


def _linear_before_reset(
    pattern: _Pattern, new: Value, update: Value, before: Value, maker: Maker
) -> tuple[Linear, ...]:
    added = pattern.made_by(pattern.operand(new, "tanh"), "add")
    plain, reset = _ordered(added, maker, "split")
    from_input = pattern.part(plain, None, 2, 3)
    reset_call = pattern.made_by(reset, "multiply")
    opened, hidden = _ordered(reset_call, maker, "sigmoid")
    from_state = pattern.part(hidden, None, 2, 3)
    for position, value in ((0, pattern.operand(opened, "sigmoid")), (1, update)):
        first, second = pattern.made_by(value, "add").operands
        if maker(first) is not from_input:
            first, second = second, first
        pattern.part(first, from_input, position, 3)
        pattern.part(second, from_state, position, 3)
    linears = pattern.linear(from_input.operands[0]), pattern.linear(from_state.operands[0])
    if linears[1].value != before:
        raise _NoMatch
    return linears


def _reset_before_linear(
    pattern: _Pattern, new: Value, update: Value, before: Value, maker: Maker
) -> tuple[Linear, ...]:
    from_input, for_new = pattern.gate(pattern.operand(new, "tanh"), None, 2)
    reset, kept = _ordered(pattern.made_by(for_new.value, "multiply"), maker, "sigmoid")
    _, for_reset = pattern.gate(pattern.operand(reset, "sigmoid"), from_input, 0)
    _, for_update = pattern.gate(update, from_input, 1)
    if any(value != before for value in (kept, for_reset.value, for_update.value)):
        raise _NoMatch
    return pattern.linear(from_input.operands[0]), for_reset, for_update, for_new


def _both_orders(call: OpCall) -> Iterator[tuple[Value, Value]]:
    if len(call.operands) == 2:
        first, second = call.operands
        yield first, second
        yield second, first


def _ordered(call: OpCall, maker: Maker, name: str) -> tuple[Value, Value]:
    """Both operands, the one that a call of ``name`` makes first."""
    for first, second in _both_orders(call):
        made = maker(first)
        if made is not None and made.name == name:
            return first, second
    raise _NoMatch
