"""No program is faster than its region's bound, nor moves less than compulsory traffic."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.codegen.nmp.fixed_layers import SEEDS, for_machine, layers, random_tensors
from tests.codegen.nmp.plan.plan_reference import conv
from tests.codegen.nmp.plan.test_prediction_simulated import graph_of
from tests.codegen.nmp.simulated import simulate
from tests.codegen.nmp.test_blocks import blocks
from tests.examples import examples
from tvm_npu.codegen.compile import generate
from tvm_npu.codegen.graph import FixedGraph, q_point_scales
from tvm_npu.codegen.nmp.plan.graph_bound import graph_bound
from tvm_npu.codegen.ops import FixedPool
from tvm_npu.sim.nmp.machine import NmpMachine, load_nmp_machine

NMP = load_nmp_machine("nmp-4x8")
MACHINES = st.sampled_from(("nmp-4x8", "nmp-4x8-dual"))


def behind(first: FixedGraph, second: FixedGraph) -> FixedGraph:
    """Two layers, one after the other."""
    (layer,) = second.layers
    return replace(
        first,
        layers=(*first.layers, replace(layer, name="second", inputs=("y",), outputs=("z",))),
        shapes={**first.shapes, "z": second.shapes["y"]},
        outputs=("z",),
        scales=first.scales | q_point_scales({"z": 8}),
    )


def test_two_layers_by_hand() -> None:
    """The first one looks at every other row and column; what lies between need not move."""
    first = graph_of(conv(8, 4, (6, 6), (1, 1), stride=(2, 2)))
    second = graph_of(conv(16, 8, (3, 3), (3, 3), padding=(1, 1, 1, 1)))
    planned = generate(behind(first, second), NMP, "tso").planned
    found = graph_bound(planned, NMP)
    inputs, outputs = 2 * 4 * 3 * 3, 2 * 16 * 3 * 3
    constants = 2 * 8 * 4 + 4 * 8 + 2 * 16 * 8 * 9 + 4 * 16
    assert found.compulsory_bytes == inputs + constants + outputs
    assert found.mac_cycles == pytest.approx((8 * 4 * 9 + 16 * 8 * 9 * 9) / 192)
    assert found.traffic_cycles == pytest.approx(found.compulsory_bytes / 5.6)
    assert found.cycles == found.traffic_cycles > found.mac_cycles


@pytest.mark.parametrize(
    ("extent", "pool", "stride", "looked_at"), [(5, 2, 2, 2), (13, 1, 4, 3), (13, 2, 8, 4)]
)
def test_windows_that_pass_over_results(
    extent: int, pool: int, stride: int, looked_at: int
) -> None:
    """Of a convolution that runs as one layer with a window, what no window looks at is not
    computed: a bound that counts it is none."""
    first = graph_of(conv(64, 64, (extent, extent), (3, 3)))
    out = (extent - 2 - pool) // stride + 1
    (made,) = first.layers
    layer = FixedPool(
        "pool", ("y",), ("z",), kind="max", kernel=(pool, pool), stride=(stride, stride),
        shift=0, low=-32768, high=32767,
    )  # fmt: skip
    graph = replace(
        first, layers=(made, layer), shapes={**first.shapes, "z": (64, out, out)}, outputs=("z",),
        scales=first.scales | q_point_scales({"z": 8}),
    )  # fmt: skip
    slow = NMP.model_copy(update={"mac": NMP.mac.model_copy(update={"efficiency": 0.02})})
    for planner in ("tso", "exact"):
        check(graph, slow, planner, 1)
        planned = generate(graph, slow, planner).planned
        macs = 64 * 64 * 9 * looked_at**2
        assert graph_bound(planned, slow).mac_cycles == pytest.approx(macs / (256 * 0.02))


def check(graph: FixedGraph, machine: NmpMachine, planner: str, seed: int) -> None:
    generated = generate(for_machine(graph, machine), machine, planner)
    found = graph_bound(generated.planned, machine)
    _, statistics = simulate(generated.program(), random_tensors(graph, seed))
    assert found.cycles <= statistics.cycles * (1 + 1e-9)
    assert found.compulsory_bytes <= sum(layer.moved_bytes for layer in statistics.layers)
    assert generated.graph_bound == found


@settings(max_examples=examples(25), deadline=None, suppress_health_check=list(HealthCheck))
@given(layers(2), MACHINES, st.sampled_from(("tso", "exact")), SEEDS)
def test_no_layer_is_below(graph: FixedGraph, machine: str, name: str, seed: int) -> None:
    check(graph, load_nmp_machine(machine), name, seed)


@settings(max_examples=examples(15), deadline=None, suppress_health_check=list(HealthCheck))
@given(st.data(), st.booleans(), MACHINES, SEEDS)
def test_no_block_is_below(data: st.DataObject, windows: bool, name: str, seed: int) -> None:
    check(data.draw(blocks(2, windows)), load_nmp_machine(name), "exact", seed)
