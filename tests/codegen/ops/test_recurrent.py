"""The fixed meaning of LSTM and GRU against integers in plain loops, and against the float one."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tests.examples import examples
from tvm_npu.codegen.errors import CutTermsWarning, QuantizationError
from tvm_npu.codegen.fixed_point import element_limits
from tvm_npu.codegen.graph import Graph, State
from tvm_npu.codegen.ops import FixedGru, FixedLstm, Gru, Lstm
from tvm_npu.codegen.ops.table import Table
from tvm_npu.codegen.passes.calibrate import calibrate
from tvm_npu.codegen.passes.quantize import quantize
from tvm_npu.codegen.reference import run_fixed, run_float


@st.composite
def graphs(draw: st.DrawFn) -> tuple[Graph, dict[str, np.ndarray]]:
    """A graph of one layer, and two images for it."""
    steps, features, hidden = (draw(st.integers(1, most)) for most in (6, 5, 4))
    is_lstm, given_states = draw(st.booleans()), draw(st.booleans())
    random = np.random.default_rng(draw(st.integers(0, 1 << 16)))
    scale = draw(st.sampled_from((0.1, 0.5, 2.0)))
    rows = (4 if is_lstm else 3) * hidden

    def some(*shape: int) -> np.ndarray:
        return (random.normal(size=shape) * scale).astype(np.float32)

    letters = "hc" if is_lstm else "h"
    states = tuple(
        State(letter, f"{letter}0" if given_states else None, f"{letter}1") for letter in letters
    )
    begins = tuple(state.initial for state in states if state.initial is not None)
    ends = tuple(f"{letter}1" for letter in letters)
    common: Any = ("l", ("x", *begins), ("y", *ends), some(rows, features), some(rows, hidden),
                   some(rows))  # fmt: skip
    if is_lstm:
        layer: Any = Lstm(*common, states=states)
    else:
        layer = Gru(*common, some(hidden), draw(st.booleans()), states=states)
    shapes = {"x": (steps, features), "y": (steps, hidden)}
    shapes.update(dict.fromkeys((*begins, *ends, *letters), (hidden,)))  # type: ignore[arg-type]
    graph = Graph((layer,), shapes, layer.inputs, layer.outputs)
    data = {"x": random.normal(size=(2, steps, features)).astype(np.float32)}
    data.update({name: some(2, hidden) for name in begins})
    return graph, data


class Slow:
    """One image in Python's integers, as the fixed layers' docstrings say it."""

    def __init__(self, layer: FixedLstm | FixedGru, element_bytes: int) -> None:
        self.layer = layer
        self.low, self.high = element_limits(element_bytes)
        self.hidden = layer.hidden_weight.shape[1]

    def rq(self, acc: int, shift: int) -> int:
        wide = (acc + (1 << shift - 1)) >> shift if shift > 0 else acc << -shift
        return max(self.low, min(self.high, wide))

    def look_up(self, table: Table, a: int) -> int:
        x = max(self.low, min(self.high, a << -table.shift)) - self.low
        j, f = x >> table.bits, x & ((1 << table.bits) - 1)
        low, high = int(table.values[j]), int(table.values[j + 1])
        half = (1 << table.bits) >> 1
        return low + (((high - low) * f + half) >> table.bits) if table.bits else low

    def product(self, weight: np.ndarray, row: int, values: Sequence[int]) -> int:
        return sum(int(a) * int(b) for a, b in zip(weight[row], values, strict=True))

    def lstm(self, x: list[int], h: list[int], c: list[int]) -> tuple[list[int], list[int]]:
        one, n = self.layer, self.hidden
        assert isinstance(one, FixedLstm)
        gates = [
            self.rq(
                self.product(one.input_weight, row, x)
                + self.product(one.hidden_weight, row, h) + int(one.bias[row]),
                one.gate_shift,
            )
            for row in range(4 * n)
        ]  # fmt: skip
        new_h, new_c = [], []
        for k in range(n):
            i, f, o = (self.look_up(one.sigmoid, gates[g * n + k]) for g in (0, 1, 3))
            g = self.look_up(one.tanh, gates[2 * n + k])
            kept, new = self.rq(f * c[k], one.keep_shift), self.rq(i * g, one.new_shift)
            new_c.append(self.rq(kept + new, 0))
            new_h.append(self.rq(o * self.look_up(one.cell_tanh, new_c[-1]), one.hidden_shift))
        return new_h, new_c

    def gru(self, x: list[int], h: list[int]) -> list[int]:
        one, n = self.layer, self.hidden
        assert isinstance(one, FixedGru)
        sums = [self.product(one.input_weight, row, x) + int(one.bias[row]) for row in range(3 * n)]
        gates = [
            self.rq(sums[row] + self.product(one.hidden_weight, row, h), one.gate_shift)
            for row in range(2 * n)
        ]
        resets = [self.look_up(one.sigmoid, gate) for gate in gates[:n]]
        reset_h = [self.rq(r * value, one.unit_shift) for r, value in zip(resets, h, strict=True)]
        made = []
        for k in range(n):
            row = 2 * n + k
            if one.linear_before_reset:
                own = self.product(one.hidden_weight, row, h) + int(one.hidden_bias[k])
                gated = self.rq(resets[k] * self.rq(own, one.gate_shift), one.unit_shift)
                inner = self.rq(self.rq(sums[row], one.gate_shift) + gated, 0)
            else:
                own = self.product(one.hidden_weight, row, reset_h) + int(one.hidden_bias[k])
                inner = self.rq(sums[row] + own, one.gate_shift)
            new = self.look_up(one.tanh, inner)
            z, y = (self.look_up(table, gates[n + k]) for table in (one.sigmoid, one.complement))
            kept = self.rq(z * h[k], one.unit_shift)
            made.append(self.rq(kept + self.rq(y * new, one.new_shift), 0))
        return made

    def run(self, x: np.ndarray, states: list[list[int]]) -> tuple[list[list[int]], list[int]]:
        """All h, and the last c or h."""
        found = []
        for row in x.astype(object).tolist():
            if isinstance(self.layer, FixedLstm):
                states = list(self.lstm(row, *states))
            else:
                states = [self.gru(row, *states)]
            found.append(states[0])
        return found, states[-1]


@settings(deadline=None, max_examples=examples(80))
@given(graphs(), st.sampled_from(("int16", "int8")))
def test_integers_are_exactly_those_of_the_docstring(drawn: Any, precision: Any) -> None:
    graph, data = drawn
    fixed = quantize(graph, calibrate(graph, [data]), precision)
    (layer,) = fixed.layers
    assert isinstance(layer, FixedLstm | FixedGru)
    inputs = {
        name: fixed.scales[name].quantize(values, fixed.element_bytes)
        for name, values in data.items()
    }
    made = run_fixed(fixed, inputs)
    hidden = layer.hidden_weight.shape[1]
    slow = Slow(layer, fixed.element_bytes)
    for image in range(2):
        states = [
            inputs[state.initial][image].astype(object).tolist() if state.initial else [0] * hidden
            for state in layer.states
        ]
        all_h, last = slow.run(inputs["x"][image], states)
        assert made["y"][image].tolist() == all_h
        assert made[layer.outputs[1]][image].tolist() == all_h[-1]
        assert made[layer.outputs[-1]][image].tolist() == last


@settings(deadline=None, max_examples=examples(80))
@given(graphs())
def test_int16_is_near_the_float_layer(drawn: Any) -> None:
    """Weights of 2.0 drive gates beyond the 8 at which they saturate; still within 1 %, or within
    some times what a change of the input by its last bits makes: large weights magnify it in every
    step. Where a GRU cuts what it adds up to its new value, a warning says so."""
    graph, data = drawn
    floats = run_float(graph, data)
    step = 2.0**-12
    moved = [
        run_float(graph, {name: values * (1 + sign * step) for name, values in data.items()})
        for sign in (-1, 1)
    ]
    with warnings.catch_warnings(record=True) as told:
        fixed = quantize(graph, calibrate(graph, [data]), "int16")
    assume(not told)
    made = run_fixed(fixed, {n: fixed.scales[n].quantize(data[n], 2) for n in fixed.inputs})
    for name in graph.outputs:
        error = np.abs(fixed.scales[name].dequantize(made[name]) - floats[name]).max()
        magnified = max(np.abs(one[name] - floats[name]).max() for one in moved)
        assert error < max(1e-2 * max(1.0, np.abs(floats[name]).max()), 32 * magnified), name


@pytest.mark.parametrize(("term", "is_told"), ((12.0, True), (9.0, False)))
def test_terms_that_a_gru_cuts_are_told(term: float, is_told: bool) -> None:
    """n is the tanh of ``term`` - 9 r, r is 1: 3 becomes 0; 0 stays 0."""
    bias = np.array([20.0, 0.0, term], np.float32)
    zeros = np.zeros((3, 1), np.float32)
    layer = Gru("cell", ("x",), ("y", "h1"), zeros, zeros, bias, np.full(1, -9.0, np.float32),
                states=(State("h", None, "h1"),))  # fmt: skip
    graph = Graph((layer,), {"x": (2, 1), "y": (2, 1), "h1": (1,), "h": (1,)}, ("x",), ("y", "h1"))
    ranges = calibrate(graph, [{"x": np.zeros((1, 2, 1), np.float32)}])
    with warnings.catch_warnings(record=True) as told:
        quantize(graph, ranges, "int16")
    assert [one.category for one in told] == [CutTermsWarning] * is_told
    if is_told:
        assert "'cell'" in str(told[0].message) and "to 12," in str(told[0].message)


def lstm(**changes: Any) -> Graph:
    values = {
        "input_weight": np.ones((8, 3), np.float32), "hidden_weight": np.ones((8, 2), np.float32),
        "bias": np.zeros(8, np.float32), **changes,
    }  # fmt: skip
    layer = Lstm(
        "l", ("x",), ("y", "h1", "c1"), **values,
        states=(State("h", None, "h1"), State("c", None, "c1")),
    )  # fmt: skip
    shapes = {"x": (4, 3), "y": (4, 2), **dict.fromkeys(("h1", "c1", "h", "c"), (2,))}
    return Graph((layer,), shapes, ("x",), layer.outputs)


def test_values_in_the_formats_of_states_give_their_ranges() -> None:
    """c ends near 0 and was near 1 before: the Q-point of its state holds both."""
    x = np.array([[[4, 0, 0]] * 3 + [[-40, 0, 0]]], np.float32)
    weight = np.zeros((8, 3), np.float32)
    weight[:6, 0] = 4.0  # i, f and g follow the first feature
    graph = lstm(input_weight=weight, hidden_weight=np.zeros((8, 2), np.float32))
    ranges = calibrate(graph, [{"x": x}])
    assert ranges["c1"].high < 0.01 and ranges["c"].high > 2.9
    assert quantize(graph, ranges, "int16").scales["c1"].q_point == 13


def test_a_term_that_is_larger_than_its_sum_is_not_cut_off() -> None:
    """c is 0.45 before and -0.45 behind the step; what is added is -0.9."""
    bias = np.repeat(np.array([12.0, 12.0, -1.47, 12.0], np.float32), 2)
    layer = Lstm(
        "l", ("x", "c0"), ("y", "h1", "c1"), np.zeros((8, 3), np.float32),
        np.zeros((8, 2), np.float32), bias,
        states=(State("h", None, "h1"), State("c", "c0", "c1")),
    )  # fmt: skip
    shapes = {"x": (1, 3), "y": (1, 2), **dict.fromkeys(("c0", "h1", "c1", "h", "c"), (2,))}
    graph = Graph((layer,), shapes, ("x", "c0"), layer.outputs)
    data = {"x": np.ones((1, 1, 3), np.float32), "c0": np.full((1, 2), 0.45, np.float32)}
    fixed = quantize(graph, calibrate(graph, [data]), "int16")
    made = run_fixed(fixed, {n: fixed.scales[n].quantize(data[n], 2) for n in fixed.inputs})
    np.testing.assert_allclose(fixed.scales["c1"].dequantize(made["c1"]), -0.45, atol=2e-3)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"bias": np.full(8, np.nan, np.float32)}, "has the weight or bias nan"),
        ({"bias": np.full(8, 1e30, np.float32)}, "no Q-point of its sums"),
    ],
)
def test_weights_that_cannot_be_integers(changes: dict[str, Any], message: str) -> None:
    data = {"x": np.ones((1, 4, 3), np.float32)}
    ranges = calibrate(lstm(), [data])
    with pytest.raises(QuantizationError, match=message):
        quantize(lstm(**changes), ranges, "int16")
