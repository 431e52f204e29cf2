"""With two buffers, TLTs store their tiles and load residuals in steps of their own."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tests.codegen.nmp.fixed_layers import SEEDS, random_tensors
from tests.codegen.nmp.forced import Forced
from tests.codegen.nmp.plan.plan_reference import conv
from tests.codegen.nmp.plan.test_prediction_simulated import (
    Given,
    blocked_graph,
    graph_of,
    measured,
)
from tests.codegen.nmp.simulated import simulate, small_machine
from tests.examples import examples
from tvm_npu.codegen.compile import generate
from tvm_npu.codegen.nmp.plan.block import BlockPlan, BlockProblem
from tvm_npu.codegen.nmp.plan.block_check import check_block
from tvm_npu.codegen.nmp.plan.block_search import plan_block
from tvm_npu.codegen.nmp.plan.conv_plan import ConvPlan
from tvm_npu.codegen.nmp.plan.cost import predict
from tvm_npu.codegen.nmp.plan.overlap import TileTimes, overlapped_cycles
from tvm_npu.codegen.nmp.plan.spread import own_step, spreads, steps_with_some
from tvm_npu.codegen.nmp.plan.tile_overlap import tile_cycles
from tvm_npu.codegen.ops import FixedConv
from tvm_npu.codegen.plan.limits import TileLimits
from tvm_npu.codegen.plan.problem import Window
from tvm_npu.codegen.reference import run_fixed
from tvm_npu.sim.nmp.machine import NmpMachine, load_nmp_machine, nmp_machine_from_dict


def dual(tles: int, tlts: int, queue_depth: int) -> NmpMachine:
    values = small_machine(tles, tlts, 4096, 4096, 4096, queue_depth=queue_depth).model_dump()
    values["memories"]["ports"] = 2
    values["ring"] = {"bytes_per_cycle": 16.0, "hop_cycles": 4.0}
    return nmp_machine_from_dict(values)


@given(st.integers(1, 32), st.integers(3, 100))
def test_own_steps_are_neither_the_first_nor_the_last(tlts: int, steps: int) -> None:
    own = [own_step(tlt, tlts, steps) for tlt in range(tlts)]
    assert own == sorted(own) and own[0] == 1 and own[-1] <= steps - 2
    assert len(set(own)) == steps_with_some(tlts, steps)
    assert (steps - 2 in own) == (steps_with_some(tlts, steps) == steps - 2)
    assert spreads(2, steps) and not spreads(1, steps) and not spreads(2, 2)


@settings(max_examples=examples(20), deadline=None)
@given(st.data())
def test_ragged_tiles_run_to_the_bit(data: st.DataObject) -> None:
    """Every extent of what waits to be stored differs from those of the tile at work."""
    draw = data.draw
    small = st.integers(2, 3)
    tiles = [draw(small) for _ in range(4)]
    extents = [tile * draw(small) + draw(st.integers(0, tile - 1)) for tile in tiles]
    machine = dual(draw(st.sampled_from((1, 2))), draw(st.sampled_from((1, 2, 3, 8))), draw(small))
    tlts = machine.cores.tlts_per_tle
    channels = tiles[1] * draw(st.integers(3, 9)) - draw(st.integers(0, tiles[1] - 1))
    has_residual = draw(st.booleans())
    problem = conv(
        extents[0] * tlts, channels, (extents[2], extents[3]), (1, 1), has_residual=has_residual
    )
    plan = ConvPlan(
        "multicast", "OFM", machine.cores.tles, 1, draw(st.sampled_from(("OS", "WS"))), tiles[0],
        tiles[1], min(tiles[2], -(-extents[2] // machine.cores.tles)), tiles[3], buffers=2,
        linear_maps=draw(st.booleans()), weights=draw(st.sampled_from(("filters", "tiles"))),
    )  # fmt: skip
    fixed = graph_of(problem)
    inputs = random_tensors(fixed, draw(SEEDS))
    generated = generate(fixed, machine, Given(plan))
    assume("stored_" in generated.listing())  # there are registers enough
    expected = run_fixed(fixed, {name: value[None] for name, value in inputs.items()})
    outputs, _ = simulate(generated.program(), inputs)
    np.testing.assert_array_equal(outputs["y"], expected["y"][0])


@pytest.mark.parametrize("has_residual", [False, True])
def test_stores_hide_under_many_steps(has_residual: bool) -> None:
    """Loads and stores take less than the MACs; together in one step they would not."""
    machine = load_nmp_machine("nmp-4x8-dual")
    problem = conv(1024, 256, (14, 14), (1, 1), has_residual=has_residual)
    plan = ConvPlan(
        "multicast", "KS", 1, 4, "OS", 8, 6, 14, 14, ring_in=True, weights="tiles",
        linear_maps=True, buffers=2,
    )  # fmt: skip
    found = predict(problem, plan, machine)
    simulated = measured(graph_of(problem), machine, replace(plan, prediction=found))
    assert found.cycles == pytest.approx(simulated, rel=0.08)
    assert simulated < found.mac_cycles + found.store_cycles + found.load_cycles / 3


@pytest.mark.parametrize("macs_first", [False, True])
def test_a_residual_of_a_block_arrives_while_channels_are_passed_on(macs_first: bool) -> None:
    """It has room of its own; tiles of the head have steps enough."""
    machine = load_nmp_machine("nmp-4x8-dual")
    window = Window(12, 14, (3, 3), (1, 1), (1, 1), has_weights=True)
    head = conv(64, 12, (12, 14), (1, 1))
    problem = BlockProblem(replace(head, window=window), 16, True)
    plan = plan_block(problem, machine, TileLimits(max_tile_n=3), "x")
    assert isinstance(plan, BlockPlan) and plan.slots == 2
    plan = replace(plan, head=replace(plan.head, buffers=2, macs_first=macs_first))
    assert check_block(problem, plan, machine) is None
    fixed = blocked_graph(head, window, 16)
    point = fixed.layers[-1]
    assert isinstance(point, FixedConv)
    fixed = replace(
        fixed,
        layers=(*fixed.layers[:-1], replace(point, inputs=("v", "r"))),
        shapes={**fixed.shapes, "r": fixed.shapes["w"]},
        inputs=(*fixed.inputs, "r"),
        scales={**fixed.scales, "r": fixed.scales["w"]},
    )
    inputs = random_tensors(fixed, 3)
    generated = generate(fixed, machine, Forced(plan))
    assert len(generated.planned.layers) == 1 and "own_channel" in generated.listing()
    expected = run_fixed(fixed, {name: value[None] for name, value in inputs.items()})
    outputs, statistics = simulate(generated.program(), inputs)
    np.testing.assert_array_equal(outputs["w"], expected["w"][0])
    # Its many short loads in front come in a row: the DRAM serves others while one is set up.
    predicted = generated.program().layers[0].predicted_cycles
    assert predicted == pytest.approx(statistics.cycles, rel=0.11)


@given(
    st.lists(st.floats(1.0, 1e4), min_size=9, max_size=9), st.integers(1, 12), st.integers(1, 9),
    st.booleans(),
)  # fmt: skip
def test_the_search_counts_tiles_as_the_cost_model(
    times: list[float], count: int, tlts: int, is_first: bool
) -> None:
    load, last_load, mac, last_mac, store, residual, following, behind, beside = times
    ragged = TileTimes(
        tlts, (count - 1, 1) if count > 1 else (1,), (load, last_load) if count > 1 else (load,),
        (mac, last_mac) if count > 1 else (last_mac,), residual, 0.0, store, behind, beside,
    )  # fmt: skip
    tile = np.array([load, last_load, residual, mac, last_mac, store, behind, beside])
    for given_load, next_load in ((following, following), (ragged.first_load, None)):
        found = tile_cycles.py_func(
            tile, tlts, count, given_load, 0.0 if is_first else store, residual
        )
        right = ragged.cycles(is_first=is_first, next_load=next_load)
        assert found == pytest.approx(right, rel=1e-12)


def test_a_layer_of_few_tiles_begins_with_the_loads_of_the_first() -> None:
    large = TileTimes(8, (1,), (100.0,), (80.0,), 0.0, 0.0, 5.0)
    small = TileTimes(8, (1,), (10.0,), (20.0,), 0.0, 0.0, 5.0)
    # The large tile's load; its MACs, under them the small one's load; the small one's MACs, under
    # them the large one's store; its own.
    assert overlapped_cycles([(large, 1), (small, 1)], ()) == 100.0 + 80.0 + 20.0 + 5.0
