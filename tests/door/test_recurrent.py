"""Unrolled LSTMs and GRUs: which calls are one layer, what it computes, and what stays calls."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.door.flows import all_layers, const, constant, flow, of, split, x
from tests.door.unrolled import (
    Unrolled,
    gru_weights,
    lstm_weights,
    run_gru,
    run_lstm,
    run_reset_gru,
)
from tests.examples import examples
from tvm_npu.codegen.graph import Graph
from tvm_npu.codegen.ops import Gru, Lstm
from tvm_npu.codegen.passes.calibrate import calibrate
from tvm_npu.codegen.passes.fuse import fuse
from tvm_npu.codegen.passes.quantize import quantize
from tvm_npu.codegen.program.parts import as_batch
from tvm_npu.codegen.reference import run_fixed, run_float
from tvm_npu.door.dataflow import Value
from tvm_npu.door.importer import import_dataflow
from tvm_npu.door.partition import Partition
from tvm_npu.door.recurrent import recurrent_chains

STEPS, FEATURES, HIDDEN = 4, 3, 5
RUN: dict[str, Any] = {"lstm": run_lstm, "gru": run_gru, "reset_gru": run_reset_gru}


@pytest.fixture(autouse=True)
def _machine_of_all_layers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tvm_npu.door.partition.machine_layers", lambda machine: all_layers())


def layer(kind: str = "lstm", *initial: Value | None, **options: Any) -> Unrolled:
    weights = lstm_weights(FEATURES, HIDDEN) if kind == "lstm" else gru_weights(FEATURES, HIDDEN)
    given = options.pop("sequence", None) or x(STEPS, 1, FEATURES)
    return Unrolled(kind, given, options.pop("weights", weights), initial, **options)


def kinds(graph: Graph) -> list[str]:
    return [type(one).__name__ for one in graph.layers]


def region_graph(found: Partition) -> Graph:
    (region,) = found.regions
    return fuse(import_dataflow(region.flow))


@st.composite
def sizes(draw: st.DrawFn) -> tuple[str, int, int, int, int, bool, bool]:
    """kind, steps, features, hidden, seed, operands swapped, states given"""
    kind = draw(st.sampled_from(sorted(RUN)))
    swapped, given_states = draw(st.booleans()), draw(st.booleans())
    steps, features, hidden = (draw(st.integers(1, most)) for most in (5, 6, 6))
    return kind, steps, features, hidden, draw(st.integers(0, 1 << 16)), swapped, given_states


@settings(deadline=None, max_examples=examples(60))
@given(sizes())
def test_random_layers_are_one_layer(drawn: tuple[str, int, int, int, int, bool, bool]) -> None:
    kind, steps, features, hidden, seed, swapped, given_states = drawn
    random = np.random.default_rng(seed)
    weights = (lstm_weights if kind == "lstm" else gru_weights)(features, hidden, seed)
    names = "hc" if kind == "lstm" else "h"
    states = [random.uniform(-1, 1, (1, hidden)).astype(np.float32) for _ in names]
    initial = [x(1, hidden, name=name) for name in names] if given_states else []
    made = Unrolled(kind, x(steps, 1, features), weights, initial, swapped=swapped)
    last = [values[-1] for values in (made.hidden, made.cell)[: len(names)]]
    whole = flow(made.stack(), *last)
    (chain,) = recurrent_chains(whole)
    assert set(chain.calls) == set(whole.calls)

    graph = import_dataflow(whole)
    (only,) = graph.layers
    assert isinstance(only, Lstm if kind == "lstm" else Gru)
    assert kind == "lstm" or only.linear_before_reset is (kind == "gru")  # type: ignore
    assert [state.initial is not None for state in only.states] == [given_states] * len(names)
    data = random.normal(size=(steps, 1, features)).astype(np.float32)
    by_value = {made.sequence: data, **dict(zip(initial, states, strict=False))}
    arrays = [by_value[value] for value in whole.inputs]
    feed = {
        name: as_batch(array, graph.shapes[name])
        for name, array in zip(graph.inputs, arrays, strict=True)
    }
    begin = [one[0] if given_states else np.zeros(hidden) for one in states]
    expected = RUN[kind](data[:, 0], weights, *begin)
    floats = run_float(graph, feed)
    for tensor, wanted in zip(graph.outputs, expected, strict=True):
        np.testing.assert_allclose(floats[tensor][0], wanted, atol=1e-5)

    fixed = quantize(graph, calibrate(graph, [feed]), "int16")
    integers = run_fixed(fixed, {n: fixed.scales[n].quantize(feed[n], 2) for n in fixed.inputs})
    for tensor, wanted in zip(graph.outputs, expected, strict=True):
        error = np.abs(fixed.scales[tensor].dequantize(integers[tensor])[0] - wanted).max()
        assert error < 4e-3 * max(1.0, np.abs(wanted).max()), tensor


@pytest.mark.parametrize("kind", ["lstm", "gru"])
def test_stacked_layers_are_two_layers_of_one_region(kind: str) -> None:
    first = layer(kind)
    make = lstm_weights if kind == "lstm" else gru_weights
    second = layer(kind, sequence=first.stack(), weights=make(HIDDEN, HIDDEN, seed=3))
    found = split(second.stack())
    assert found.refusals == () and kinds(region_graph(found)) == [kind.capitalize()] * 2
    gates = 4 if kind == "lstm" else 3
    macs = STEPS * gates * HIDDEN * (FEATURES + HIDDEN + 2 * HIDDEN)
    assert found.total_macs == found.regions[0].report().macs == macs
    assert [value.shape for value in found.regions[0].inputs] == [(STEPS, 1, FEATURES)]


def test_a_machine_without_the_layer_gets_its_operators(monkeypatch: pytest.MonkeyPatch) -> None:
    rest = frozenset(one for one in all_layers() if one.__name__ not in ("FixedLstm", "FixedGru"))
    monkeypatch.setattr("tvm_npu.door.partition.machine_layers", lambda machine: rest)
    for kind in ("lstm", "gru"):
        found = split(layer(kind).stack())
        (region,) = found.regions
        on_cpu = {refusal.operator for refusal in found.refusals}
        assert on_cpu <= {"my.split", "my.squeeze", "my.zeros", "my.zeros_like", "my.stack",
                          "my.expand_dims"}  # fmt: skip
        names = {one.name for one in region.calls}
        assert names >= {"dense", "sigmoid", "tanh", "multiply", "add", "split"}
        assert "TableFunction" in kinds(region_graph(found))


@pytest.mark.parametrize("kind", RUN)
def test_operators_alone_compute_the_same(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    rest = frozenset(one for one in all_layers() if one.__name__ not in ("FixedLstm", "FixedGru"))
    monkeypatch.setattr("tvm_npu.door.partition.machine_layers", lambda machine: rest)
    names = "hc" if kind == "lstm" else "h"
    made = layer(kind, *(x(1, HIDDEN, name=name) for name in names))
    (region,) = split(made.stack()).regions
    graph = region_graph(split(made.stack()))
    random = np.random.default_rng(5)
    arrays = {value: random.normal(size=value.shape).astype(np.float32) for value in region.inputs}
    parts = sorted(
        (value for value in region.inputs if value in made.parts), key=made.parts.index
    )
    rows = np.concatenate([arrays[value] for value in parts]).reshape(-1, FEATURES)
    states = [arrays[value][0] for value in made.initial if value is not None]
    expected = RUN[kind](rows, made.weights, *states)[0]
    floats = run_float(graph, dict(zip(graph.inputs, arrays.values(), strict=True)))
    outputs = dict(zip(region.outputs, graph.outputs, strict=True))
    for step, value in enumerate(made.hidden):
        np.testing.assert_allclose(floats[outputs[value]][0], expected[step], atol=1e-5)


def other_order() -> Value:
    return layer(order=[*range(STEPS - 1, -1, -1)]).stack()


def two_images() -> Value:
    return layer(sequence=x(STEPS, 2, FEATURES)).stack()


def a_hidden_state_is_read() -> Value:
    made = layer()
    return of("add", made.stack(), made.hidden[1], to=(STEPS, 1, HIDDEN))


def a_cell_state_is_read() -> Value:
    made = layer()
    return of("concatenate", made.hidden[-1], made.cell[1], to=(1, 2 * HIDDEN), axis=1)


def a_gate_is_read() -> Value:
    made = layer("gru")
    gate = next(one for one in flow(made.stack()).calls if one.name == "sigmoid")
    return of("concatenate", made.hidden[-1], gate.result(), to=(1, 2 * HIDDEN), axis=1)


def something_is_added_to_a_state() -> Value:
    """What is added to each state of a GRU is known at run time."""
    made = layer("reset_gru", order=[], weights=gru_weights(FEATURES, HIDDEN))
    h: Value = x(1, HIDDEN, name="h")
    for part in made.parts:
        squeezed = of("squeeze", part, to=(1, FEATURES))
        h = of("add", made.reset_gru(squeezed, h, made.constants), x(1, HIDDEN), to=(1, HIDDEN))
        made.hidden.append(h)
    return made.stack()


def a_part_is_left_out() -> Value:
    return layer(order=[0, 1, 2]).hidden[-1]


def other_weights_at_a_step() -> Value:
    made = layer()
    x_last = of("squeeze", made.parts[3], to=(1, FEATURES))
    shorter = layer(order=[0, 1, 2])
    made.constants = [constant(values * 2) for values in made.weights]
    x_last = of("squeeze", shorter.parts[3], to=(1, FEATURES))
    h, _ = shorter.lstm(x_last, shorter.hidden[-1], shorter.cell[-1], made.constants)
    shorter.hidden.append(h)
    return shorter.stack()


def constant_initial_state() -> Value:
    return layer("lstm", const(1, HIDDEN)).stack()


def peepholes() -> Value:
    made = layer("lstm", order=[])
    h, c = x(1, HIDDEN, name="h"), x(1, HIDDEN, name="c")
    for step in range(STEPS):
        part = of("squeeze", made.parts[step], to=(1, FEATURES))
        joined = of("concatenate", part, h, to=(1, FEATURES + HIDDEN), axis=1)
        i, f, g, o = made.split(made.linear(joined, *made.constants), 4)
        i = of("add", i, of("multiply", c, const(1, HIDDEN), to=(1, HIDDEN)), to=(1, HIDDEN))
        kept = made.two("multiply", made.one("sigmoid", f), c)
        new = made.two("multiply", made.one("sigmoid", i), made.one("tanh", g))
        c = made.two("add", kept, new)
        h = made.two("multiply", made.one("sigmoid", o), made.one("tanh", c))
        made.hidden.append(h)
    return made.stack()


def one_gru_step(kind: str, **changes: Any) -> Value:
    made = layer(kind, sequence=x(1, 1, FEATURES), order=[], weights=gru_weights(FEATURES, HIDDEN))
    part = of("squeeze", made.parts[0], to=(1, FEATURES))
    step = made.gru if kind == "gru" else made.reset_gru
    made.hidden.append(step(part, x(1, HIDDEN, name="h"), made.constants, **changes))
    return made.stack()


def another_state_in_the_products() -> Value:
    return one_gru_step("gru", other=x(1, HIDDEN, name="other"))


def another_new_value_in_the_difference() -> Value:
    return one_gru_step("gru", new=x(1, HIDDEN, name="other"))


def another_state_behind_the_reset_gate() -> Value:
    return one_gru_step("reset_gru", other=x(1, HIDDEN, name="other"))


def one_number_added_to_a_gate() -> Value:
    return one_gru_step("reset_gru", term=const(1, 1))


OTHERS = (
    another_state_in_the_products, another_new_value_in_the_difference,
    another_state_behind_the_reset_gate, one_number_added_to_a_gate,
    other_order, two_images, something_is_added_to_a_state, a_hidden_state_is_read,
    a_cell_state_is_read, a_gate_is_read,
    a_part_is_left_out, other_weights_at_a_step, constant_initial_state, peepholes,
)  # fmt: skip


@pytest.mark.parametrize("make", OTHERS)
def test_what_is_no_layer_stays_operators(make: Any) -> None:
    whole = flow(make())
    assert recurrent_chains(whole) == ()
    found = split(whole.outputs[0])
    names = {one.name for region in found.regions for one in region.calls}
    assert {"dense", "sigmoid", "tanh"} <= names
    for region in found.regions:
        assert not {"Lstm", "Gru"} & set(kinds(import_dataflow(region.flow)))


@pytest.mark.parametrize("kind", ["gru", "reset_gru"])
def test_one_step_without_changes_is_a_layer(kind: str) -> None:
    assert len(recurrent_chains(flow(one_gru_step(kind)))) == 1


def test_who_reads_a_sequence_as_images_stays_on_the_cpu() -> None:
    made = layer()
    directed = made.stack().call.operands[0]  # type: ignore[attr-defined]
    assert directed.shape == (STEPS, 1, 1, HIDDEN)
    found = split(of("relu", directed, to=directed.shape), made.hidden[-1])
    (refusal,) = found.refusals
    assert refusal.operator == "my.relu" and "Only a recurrent layer" in refusal.rule
    assert kinds(region_graph(found)) == ["Lstm"]


def test_a_dense_layer_reads_the_last_state_in_the_same_region() -> None:
    made = layer("gru")
    found = split(of("dense", made.hidden[-1], const(7, HIDDEN), to=(1, 7)), made.stack())
    assert found.refusals == () and kinds(region_graph(found)) == ["Gru", "Dense"]


def test_initial_states_that_the_region_computes() -> None:
    begin = of("dense", x(1, 6, name="thought"), const(HIDDEN, 6), to=(1, HIDDEN))
    found = split(layer("lstm", begin).stack())
    assert found.refusals == () and kinds(region_graph(found)) == ["Dense", "Lstm"]


def test_values_that_are_not_finite_are_refused_one_by_one() -> None:
    weights = lstm_weights(FEATURES, HIDDEN)
    weights[0][0, 0] = np.nan
    found = split(layer(weights=weights).stack())
    broken = [one for one in found.refusals if "neither NaN" in one.rule]
    assert [one.operator for one in broken] == ["my.dense"] * STEPS


def test_a_path_that_comes_back_does_not_tear_a_layer_apart() -> None:
    """The state begins with a region's result, from which the CPU makes the sequence: the products
    of the state alone could join that region, and the others could not."""
    begin = of("dense", x(1, 6, name="seed"), const(HIDDEN, 6), to=(1, HIDDEN))
    sequence = of("erf", begin, to=(STEPS, 1, FEATURES))
    found = split(layer("gru", begin, sequence=sequence).stack())
    assert [refusal.operator for refusal in found.refusals] == ["my.erf"]
    assert [kinds(import_dataflow(one.flow)) for one in found.regions] == [["Dense"], ["Gru"]]


def test_context_without_recurrent_layers_looks_for_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tvm_npu.door.partition.machine_layers", lambda machine: frozenset())
    monkeypatch.setattr(
        "tvm_npu.door.partition.recurrent_chains", lambda flow: pytest.fail("was asked")
    )
    assert split(layer().stack()).regions == ()
