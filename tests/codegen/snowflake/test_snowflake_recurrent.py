"""LSTM and GRU layers on Snowflake machines, against the reference: every bit, and a race checker
that has nothing to say."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from tests.codegen.snowflake.snowflake_cases import MACHINES, Outcome, machine, outcome
from tests.examples import examples
from tvm_npu.codegen.compile import CompileOptions, fixed_graph
from tvm_npu.codegen.errors import PlanningError
from tvm_npu.codegen.graph import FixedGraph, Graph, State
from tvm_npu.codegen.ops import Gru, Lstm
from tvm_npu.codegen.passes.calibrate import calibrate
from tvm_npu.codegen.plan import planner
from tvm_npu.codegen.snowflake.plan.recurrent import WeightsChosen

RANDOM = settings(deadline=None, max_examples=examples(40), phases=[Phase.explicit, Phase.generate])
EXTENTS = (1, 2, 5, 15, 16, 17, 40, 64, 100, 130)


def stacked(
    cell: str, extents: tuple[int, ...], steps: int, seed: int, begins: bool, linear: bool,
    precision: Any = "int16", name: str = "snowflake-1cc",
) -> FixedGraph:  # fmt: skip
    """Layers one behind the other: ``extents`` are the elements of the input and of each layer's
    state; ``begins``: initial states are inputs."""
    random = np.random.default_rng(seed)
    shapes: dict[str, tuple[int, ...]] = {"x": (steps, extents[0])}
    layers: list[Any] = []
    letters = "hc" if cell == "lstm" else "h"
    outputs, inputs, source = [], ["x"], "x"
    for number, (features, hidden) in enumerate(zip(extents, extents[1:], strict=False)):
        rows = (4 if cell == "lstm" else 3) * hidden

        def some(*shape: int) -> np.ndarray:
            return (random.normal(size=shape) / np.sqrt(shape[-1])).astype(np.float32)

        states = tuple(
            State(f"{one}{number}", f"{one}{number}begin" if begins else None, f"{one}{number}end")
            for one in letters
        )
        first = tuple(state.initial for state in states if state.initial is not None)
        ends = tuple(f"{one}{number}end" for one in letters)
        common: Any = (
            f"layer{number}", (source, *first), (f"y{number}", *ends), some(rows, features),
            some(rows, hidden), some(rows),
        )  # fmt: skip
        if cell == "lstm":
            layers.append(Lstm(*common, states=states))
        else:
            layers.append(Gru(*common, some(hidden), linear, states=states))
        shapes[f"y{number}"] = (steps, hidden)
        shapes.update(dict.fromkeys((*first, *ends, *(s.tensor for s in states)), (hidden,)))
        source = f"y{number}"
        inputs += first
        outputs += ends
    graph = Graph(tuple(layers), shapes, tuple(inputs), (source, *outputs))  # type: ignore[arg-type]
    data = {t: random.normal(size=(2, *shapes[t])).astype(np.float32) for t in graph.inputs}
    ranges = calibrate(graph, [data])
    return fixed_graph(graph, ranges, machine(name), CompileOptions(precision))


@RANDOM
@given(
    st.sampled_from(("lstm", "gru")), st.lists(st.sampled_from(EXTENTS), min_size=2, max_size=3),
    st.integers(1, 5), st.booleans(), st.booleans(), st.sampled_from(("int16", "int8")),
    st.sampled_from(MACHINES), st.sampled_from((None, False, True)), st.integers(0, 1 << 30),
)  # fmt: skip
def test_random_recurrent_layers(
    cell: str, extents: list[int], steps: int, begins: bool, linear: bool, precision: str,
    name: str, keeps_weights: bool | None, seed: int,
) -> None:  # fmt: skip
    fixed = stacked(cell, tuple(extents), steps, seed, begins, linear, precision, name)
    chosen = planner("snowflake")
    if keeps_weights is not None:
        chosen = WeightsChosen(chosen, keeps_weights)
    try:
        found = outcome(
            fixed, machine(name), chosen, seed, largest=3000 if precision == "int16" else 127
        )
    except PlanningError as error:
        assert keeps_weights
        assert "all weights and tables do not fit" in str(error)
        return
    assert (found.wrong, found.hazards) == (0, ())


def test_weights_stay_where_that_is_faster() -> None:
    """What fits the WBufs comes once unless the caller says otherwise; what does not comes in
    every time step."""
    on, steps = machine("snowflake-1cc"), 6
    small = stacked("lstm", (128, 128), steps, 1, False, True)
    kept = outcome(small, on)
    loaded = outcome(small, on, WeightsChosen(planner("snowflake"), False))
    large = outcome(stacked("gru", (256, 256), steps, 1, False, True), on)
    weights = 2 * 4 * 128 * 256
    biases = 2 * 16 * 4 * 128
    assert _weight_bytes(kept) == weights + biases
    assert _weight_bytes(loaded) == steps * (weights + biases)
    assert _weight_bytes(large) == steps * 2 * 3 * 256 * 512 + steps * 2 * 16 * (4 * 256)
    assert kept.statistics.cycles < loaded.statistics.cycles / 2


def _weight_bytes(found: Outcome) -> int:
    return found.statistics.bytes_by_link["loaded"]["weight"]
