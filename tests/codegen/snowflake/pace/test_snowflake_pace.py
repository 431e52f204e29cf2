"""What programs say that their layers take against what these take in the simulator: blocks,
layers, plans and graphs that nobody chose."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from tests.codegen.random_graphs import graphs, random_inputs
from tests.codegen.snowflake.plan.plan_cases import MACHINES as ANY_BUFFERS
from tests.codegen.snowflake.plan.plan_cases import Given, plan_of, problem_of
from tests.codegen.snowflake.snowflake_cases import (
    MACHINES,
    Outcome,
    convolutions,
    graph_of,
    machine,
    outcome,
    pools,
)
from tests.examples import examples
from tvm_npu.codegen.backends import backend_of
from tvm_npu.codegen.compile import CompileOptions, fixed_graph
from tvm_npu.codegen.errors import PlanningError
from tvm_npu.codegen.graph import FixedGraph, Graph
from tvm_npu.codegen.ops import FixedConv
from tvm_npu.codegen.ops.registry import missing_layers
from tvm_npu.codegen.passes.calibrate import calibrate
from tvm_npu.codegen.snowflake.code.banks import Bank, CodeBlock, pack
from tvm_npu.codegen.snowflake.code.block import BlockCompiler
from tvm_npu.codegen.snowflake.code.nodes import Value, Writer
from tvm_npu.codegen.snowflake.pace import together
from tvm_npu.codegen.snowflake.pace.items import Item, memory_units
from tvm_npu.codegen.snowflake.pace.layers import layer_cycles, way
from tvm_npu.codegen.snowflake.pace.paces import Paces
from tvm_npu.codegen.snowflake.plan.tiling import SnowflakePlan
from tvm_npu.sim.snowflake.isa import Finish, Layout, MacMode, Preload, Special, Wait
from tvm_npu.sim.snowflake.simulator import SnowflakeSimulator

RANDOM = settings(deadline=None, max_examples=examples(40), phases=[Phase.explicit, Phase.generate])


def nest(rows: int, columns: int, copies: int, length: int, mode: MacMode) -> Writer:
    """Sums with biases in two loops, ``copies`` in a turn of the inner one."""
    writer = Writer()
    writer.set(Special.OUTPUTS, 16)
    writer.set(Special.OUT_STEP, 16)
    layout = Layout.COOP if mode is MacMode.COOP else Layout.INDP

    def row(values: list[Value]) -> None:
        bias, weights = writer.held(Value(None, 0)), writer.held(Value(None, 32))
        writer.set(Special.OUT, 16384)
        moving = [values[0].plus(16 * copy) for copy in range(copies)]

        def sums(places: list[Value]) -> None:
            for place in places:
                writer.vmov(Preload.BIAS, layout, bias)
                writer.mac(mode, Finish.RESULT, writer.held(place), weights, length)

        writer.loop(columns, moving, [16 * copies] * copies, sums)

    writer.loop(rows, [Value(None, 0)], [16], row)
    return writer


@pytest.mark.parametrize("mode", (MacMode.COOP, MacMode.INDP))
@pytest.mark.parametrize("copies", (1, 3))
@pytest.mark.parametrize("length", (16, 80, 256))
@pytest.mark.parametrize(("rows", "columns"), ((1, 1), (1, 40), (25, 3), (30, 30)))
def test_a_block_takes_what_it_takes_on_the_machine(
    mode: MacMode, copies: int, length: int, rows: int, columns: int
) -> None:
    """To the cycle, where traces begin at whole lines: turns of loops that are added up, too."""
    found, cycles = predicted_and_simulated([nest(rows, columns, copies, length, mode)])
    assert found == pytest.approx(cycles, abs=1.0)


@pytest.mark.parametrize("blocks", (20, 90, 200))
def test_code_comes_from_memory(blocks: int) -> None:
    """Bank by bank, while the one before runs, which here is shorter than that takes."""
    found, cycles = predicted_and_simulated([nest(1, 1, 3, 16, MacMode.COOP)] * blocks)
    assert found == pytest.approx(cycles, rel=0.002)


@pytest.mark.parametrize(("word", "is_first"), ((4, True), (-1, False)))
def test_a_bank_that_begins_inside_of_a_block(word: int, is_first: bool) -> None:
    """It comes in front of what takes long: a loop behind the first instructions."""
    on = machine("snowflake-1cc")
    paces, held = Paces(on), {Special.OUTPUTS: 16, Special.OUT_STEP: 16}
    compiler = BlockCompiler(on.control.raw_cycles, paces=paces)
    writer = nest(1, 500, 3, 256, MacMode.COOP)
    writer.set(Special.OUT, 0)
    words = compiler.words(writer.nodes, held)
    bank = Bank(0, word % len(words.words), 512)
    kinds = way([CodeBlock(0, words)], [bank], on.control.raw_cycles).items[:, together.KIND]
    found = [kind for kind in kinds.tolist() if kind in (together.ENTER, together.VECTOR)]
    assert found == ([together.ENTER, together.VECTOR] if is_first else [together.VECTOR])


def predicted_and_simulated(writers: Sequence[Writer]) -> tuple[float, float]:
    """Cycles of one layer that has these blocks, predicted and simulated."""
    on = machine("snowflake-1cc")
    paces, held = Paces(on), {Special.OUTPUTS: 16, Special.OUT_STEP: 16}
    compiler = BlockCompiler(on.control.raw_cycles, paces=paces)
    blocks = [CodeBlock(0, compiler.words(writer.nodes, held)) for writer in writers]
    end = Writer()
    end.sync(Wait.END)
    blocks.append(CodeBlock(0, compiler.words(end.nodes), (Item(together.SYNC, Wait.END),)))
    packed = pack(blocks)
    simulator = SnowflakeSimulator(
        on, [packed.words], [], 0, layer_names=["layer"], layer_of=[packed.layers.astype(np.int32)]
    )
    cycles = simulator.run().layers[0].cycles
    (found,) = layer_cycles([way(blocks, packed.banks, on.control.raw_cycles)], paces, on, 1)
    return found, cycles


def check(found: Outcome) -> None:
    """No layer is farther off than 2 %, nor all together; but for a few cycles, of which small
    ones have few: where traces begin in lines is known on average."""
    runs = found.statistics.runs
    pairs = [
        (entry.predicted_cycles or 0.0, layer.cycles / runs)
        for entry, layer in zip(found.program.layers, found.statistics.layers, strict=True)
    ]
    for predicted, cycles in (*pairs, tuple(map(sum, zip(*pairs, strict=True)))):
        assert predicted == pytest.approx(cycles, rel=0.02, abs=20), pairs


@RANDOM
@given(convolutions(), ANY_BUFFERS, st.data())
def test_layers_under_any_plan(fixed: FixedGraph, on: object, data: st.DataObject) -> None:
    plan = data.draw(plan_of(problem_of(fixed, on), on))  # type: ignore[arg-type]
    if plan is not None:
        check(outcome(fixed, on, Given(plan)))  # type: ignore[arg-type]


def test_registers_written_in_front_of_a_wait_that_is_over() -> None:
    """A `mac` behind a `sync` and a `vmov` reads what was written in front of them: cycles in each
    of many small steps."""
    rng = np.random.default_rng(1)
    layer = FixedConv(
        "conv", ("x",), ("y",), rng.integers(-300, 300, (48, 16, 1, 1)).astype(np.int16),
        np.zeros(48, np.int32), (2, 2), groups=3, shift=9, low=-30000, high=1763,
    )  # fmt: skip
    fixed = graph_of(layer, {"x": (48, 6, 9), "y": (48, 3, 5)})
    plan = Given(SnowflakePlan("coop", 4, 3, 4, "kernels"))
    found = outcome(fixed, machine("snowflake-1cu"), plan)  # type: ignore[arg-type]
    (layer_run,) = found.statistics.layers
    predicted = found.program.layers[0].predicted_cycles
    assert predicted == pytest.approx(layer_run.cycles / found.statistics.runs, rel=0.01)


@RANDOM
@given(
    st.one_of(convolutions(), pools()), st.sampled_from(MACHINES),
    st.sampled_from(("snowflake", "exact")),
)
def test_layers_on_any_machine(fixed: FixedGraph, name: str, planner: str) -> None:
    try:
        found = outcome(fixed, machine(name), planner)
    except PlanningError:
        return
    check(found)


@RANDOM
@given(graphs(10), st.sampled_from(MACHINES), st.integers(0, 1 << 30))
def test_graphs(graph: Graph, name: str, seed: int) -> None:
    """What layers do beside their neighbours counts where it counts in the simulator."""
    on = machine(name)
    types = backend_of(on).layer_types
    if any(missing_layers(type(layer), types) for layer in graph.layers):
        return
    ranges = calibrate(graph, [random_inputs(graph, seed)])
    fixed = fixed_graph(graph, ranges, on, CompileOptions())
    try:
        found = outcome(fixed, on, "exact", seed)
    except PlanningError:
        return
    check(found)


@settings(deadline=None, max_examples=200)
@given(st.integers(0, 500), st.integers(1, 300), st.integers(1, 9), st.integers(-400, 400))
def test_units_of_memory(offset: int, words: int, runs: int, step: int) -> None:
    first, size = 2 * offset + (1 << 15), 2 * words
    begins = [first + 2 * step * k for k in range(runs)]
    touched = [{byte // 64 for byte in range(begin, begin + size)} for begin in begins]
    wanted = len(set().union(*touched)) if step == words else sum(map(len, touched))
    assert memory_units(first, size, runs, 2 * step) == wanted
