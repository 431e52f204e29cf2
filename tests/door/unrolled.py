"""Recurrent layers as TVM's ONNX frontend unrolls them, written as neutral calls."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from tests.door.flows import Array, call, constant, of
from tvm_npu.door.dataflow import Constant, Result, Value


@dataclass
class Unrolled:
    """One layer. ``hidden`` and ``cell`` are the states after each step; ``order`` says which part
    of the sequence each step takes."""

    kind: str
    sequence: Value
    weights: Sequence[Array]
    """lstm: [4 H, I + H], biases; gru and reset_gru: [3 H, I], [3 H, H], bias, bias."""
    initial: Sequence[Value | None] = ()
    order: Sequence[int] | None = None
    swapped: bool = False
    hidden: list[Value] = field(default_factory=list)
    cell: list[Value] = field(default_factory=list)
    parts: list[Result] = field(default_factory=list)

    def __post_init__(self) -> None:
        steps, batch, features = self.sequence.shape
        split = call("split", self.sequence, to=[(1, batch, features)] * steps, axis=0,
                     indices_or_sections=steps)  # fmt: skip
        self.parts = [split.result(step) for step in range(steps)]
        gates = 4 if self.kind == "lstm" else 3
        self.batch, self.features = batch, features
        self.rows = len(self.weights[0])
        self.size = self.rows // gates
        self.constants = [constant(values) for values in self.weights]
        state = (batch, self.size)
        zeros = call("zeros", to=(1, *state))
        begin = call("split", zeros.result(), to=[(1, *state)], axis=0, indices_or_sections=1)
        h = self._given(0) or of("squeeze", begin.result(0), to=state)
        c = self._given(1) or of("squeeze", of("zeros_like", begin.result(0), to=(1, *state)),
                                 to=state)  # fmt: skip
        for step in range(steps) if self.order is None else self.order:
            x = of("squeeze", self.parts[step], to=(batch, features))
            if self.kind == "lstm":
                h, c = self.lstm(x, h, c, self.constants)
                self.cell.append(c)
            else:
                step_of = self.gru if self.kind == "gru" else self.reset_gru
                h = step_of(x, h, self.constants)
            self.hidden.append(h)

    def _given(self, number: int) -> Value | None:
        return self.initial[number] if number < len(self.initial) else None

    def two(self, name: str, a: Value, b: Value) -> Value:
        return of(name, *((b, a) if self.swapped else (a, b)), to=a.shape)

    def one(self, name: str, a: Value) -> Value:
        return of(name, a, to=a.shape)

    def linear(self, value: Value, weight: Constant, *biases: Constant) -> Value:
        shape = (self.batch, self.rows)
        total = of("dense", value, weight, to=shape)
        for bias in biases:
            total = of("add", total, bias, to=shape)
        return total

    def split(self, value: Value, parts: int) -> list[Result]:
        made = call("split", value, to=[(self.batch, self.size)] * parts, axis=-1,
                    indices_or_sections=parts)  # fmt: skip
        return [made.result(part) for part in range(parts)]

    def lstm(
        self, x: Value, h: Value, c: Value, constants: Sequence[Constant]
    ) -> tuple[Value, Value]:
        joined = of("concatenate", x, h, to=(self.batch, self.features + self.size), axis=1)
        i, f, g, o = self.split(self.linear(joined, *constants), 4)
        kept = self.two("multiply", self.one("sigmoid", f), c)
        new = self.two("multiply", self.one("sigmoid", i), self.one("tanh", g))
        c = self.two("add", kept, new)
        return self.two("multiply", self.one("sigmoid", o), self.one("tanh", c)), c

    def reset_gru(
        self,
        x: Value,
        h: Value,
        constants: Sequence[Constant],
        other: Value | None = None,
        term: Constant | None = None,
    ) -> Value:
        """The reset gate before the products; ``other`` is what it multiplies instead of h,
        ``term`` is added to a gate."""
        state = (self.batch, self.size)
        from_input = self.split(self.linear(x, constants[0]), 3)
        weights, *biases = (
            [constant(part) for part in np.split(self.weights[index], 3)] for index in (1, 2, 3)
        )

        def gate(number: int, value: Value) -> Value:
            dense = of("dense", value, weights[number], to=state)
            total = self.two("add", from_input[number], dense)
            both = constant(biases[0][number].array + biases[1][number].array)
            return of("add", total, both, to=state)

        z, r = (self.one("sigmoid", gate(number, h)) for number in (1, 0))
        inner = gate(2, self.two("multiply", r, h if other is None else other))
        if term is not None:
            inner = of("add", inner, term, to=state)
        n = self.one("tanh", inner)
        difference = of("subtract", h, n, to=h.shape)
        return self.two("add", self.two("multiply", difference, z), n)

    def gru(
        self,
        x: Value,
        h: Value,
        constants: Sequence[Constant],
        other: Value | None = None,
        new: Value | None = None,
    ) -> Value:
        """``other`` goes into the products of the state's weights instead of h, ``new`` is
        subtracted instead of n."""
        from_input = self.split(self.linear(x, constants[0], constants[2]), 3)
        from_state = self.split(self.linear(other or h, constants[1], constants[3]), 3)
        r = self.one("sigmoid", self.two("add", from_input[0], from_state[0]))
        z = self.one("sigmoid", self.two("add", from_input[1], from_state[1]))
        gated = self.two("multiply", r, from_state[2])
        n = self.one("tanh", self.two("add", from_input[2], gated))
        difference = of("subtract", h, new or n, to=h.shape)
        return self.two("add", self.two("multiply", difference, z), n)

    def stack(self) -> Value:
        """[T, B, H] of all hidden states, by way of a direction as in ONNX."""
        flat = (len(self.hidden), self.batch, self.size)
        stacked = of("stack", *self.hidden, to=flat, axis=0)
        directed = of("expand_dims", stacked, to=(flat[0], 1, *flat[1:]))
        return of("squeeze", directed, to=flat)


def lstm_weights(features: int, hidden: int, seed: int = 0, scale: float = 0.5) -> list[Array]:
    random = np.random.default_rng(seed)
    shapes = ((4 * hidden, features + hidden), (4 * hidden,), (4 * hidden,))
    return [(random.normal(size=shape) * scale).astype(np.float32) for shape in shapes]


def gru_weights(features: int, hidden: int, seed: int = 0, scale: float = 0.5) -> list[Array]:
    random = np.random.default_rng(seed)
    rows = 3 * hidden
    shapes = ((rows, features), (rows, hidden), (rows,), (rows,))
    return [(random.normal(size=shape) * scale).astype(np.float32) for shape in shapes]


def sigmoid(x: Array) -> Array:
    return 1.0 / (1.0 + np.exp(-x))


def run_lstm(x: Array, weights: Sequence[Array], h: Array, c: Array) -> tuple[Array, Array, Array]:
    """(all h, last h, last c) of x [T, I], in float64."""
    found = []
    for row in x.astype(np.float64):
        gates = weights[0] @ np.concatenate([row, h]) + weights[1] + weights[2]
        i, f, g, o = np.split(gates, 4)
        c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
        h = sigmoid(o) * np.tanh(c)
        found.append(h)
    return np.array(found), h, c


def run_gru(x: Array, weights: Sequence[Array], h: Array) -> tuple[Array, Array]:
    """(all h, last h) of x [T, I], in float64."""
    found = []
    for row in x.astype(np.float64):
        xr, xz, xn = np.split(weights[0] @ row + weights[2], 3)
        hr, hz, hn = np.split(weights[1] @ h + weights[3], 3)
        z, n = sigmoid(xz + hz), np.tanh(xn + sigmoid(xr + hr) * hn)
        h = (1 - z) * n + z * h
        found.append(h)
    return np.array(found), h


def run_reset_gru(x: Array, weights: Sequence[Array], h: Array) -> tuple[Array, Array]:
    """As `run_gru`, with the reset gate before the products of the new one."""
    found = []
    inputs, states = np.split(weights[0], 3), np.split(weights[1], 3)
    biases = np.split(weights[2] + weights[3], 3)
    for row in x.astype(np.float64):
        r, z = (sigmoid(inputs[k] @ row + states[k] @ h + biases[k]) for k in (0, 1))
        n = np.tanh(inputs[2] @ row + states[2] @ (r * h) + biases[2])
        h = (1 - z) * n + z * h
        found.append(h)
    return np.array(found), h
