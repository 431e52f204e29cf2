"""The cost model against the simulator: bytes equal, cycles near, on layers and plans that nobody
chose; and room as the code that is emitted sees it."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from tests.codegen.snowflake.plan.plan_cases import (
    MACHINES,
    Given,
    fits,
    plan_of,
    problem_of,
    space,
    with_buffers,
)
from tests.codegen.snowflake.snowflake_cases import graph_of, machine, near_and_far, outcome
from tests.examples import examples
from tvm_npu.codegen import ops
from tvm_npu.codegen.errors import PlanningError
from tvm_npu.codegen.graph import FixedGraph
from tvm_npu.codegen.snowflake.plan.divide import predict
from tvm_npu.codegen.snowflake.plan.numbers import numbers
from tvm_npu.codegen.snowflake.plan.predict import choice
from tvm_npu.codegen.snowflake.plan.tiling import SnowflakePlan, conv_shape, geometry
from tvm_npu.codegen.snowflake.plan.timeline import places_of
from tvm_npu.sim.snowflake.machine import SnowflakeMachine

RANDOM = settings(deadline=None, max_examples=examples(60), phases=[Phase.explicit, Phase.generate])
MODES = ("coop", "indp")


@RANDOM
@given(near_and_far(), MACHINES, st.data(), st.integers(0, 1 << 30))
def test_random_plans(
    fixed: FixedGraph, on: SnowflakeMachine, data: st.DataObject, seed: int
) -> None:
    """Any plan that fits gives the reference's bits without hazards and moves the bytes that are
    predicted."""
    problem = problem_of(fixed, on)
    plan = data.draw(plan_of(problem, on))
    if plan is None:
        return
    found = outcome(fixed, on, Given(plan), seed)
    assert (found.wrong, found.hazards) == (0, ())
    expected = predict(problem, plan, on)
    links = found.statistics.bytes_by_link
    loaded, stored = links["loaded"], links["stored"]
    runs = found.statistics.runs
    moved = loaded.get("in", 0) + loaded.get("residual", 0), loaded["weight"], stored["out"]
    assert tuple(size // runs for size in moved) == (
        expected.in_bytes, expected.weight_bytes, expected.out_bytes,
    )  # fmt: skip


LAYERS = (
    # channels, size, filters, kernel, stride, residual: ResNet, VGG, GoogLeNet, AlexNet
    (3, 64, 64, 7, 2, False), (64, 28, 64, 3, 1, True), (256, 28, 64, 1, 1, False),
    (64, 28, 128, 1, 2, False), (512, 7, 128, 3, 1, False), (256, 14, 512, 1, 1, True),
    (16, 28, 32, 5, 1, False), (192, 13, 384, 3, 1, False),
)  # fmt: skip


@pytest.mark.parametrize("planner", ("snowflake", "exact"))
@pytest.mark.parametrize("layer", LAYERS, ids=str)
def test_times_of_layers_of_networks(
    layer: tuple[int, int, int, int, int, bool], planner: str
) -> None:
    channels, size, filters, kernel, stride, residual = layer
    rng = np.random.default_rng(7)
    border = kernel // 2
    out = (size + 2 * border - kernel) // stride + 1
    conv = ops.FixedConv(
        "conv", ("x", "r") if residual else ("x",), ("y",),
        rng.integers(-300, 300, (filters, channels, kernel, kernel)).astype(np.int16),
        rng.integers(-900, 900, filters).astype(np.int32), (stride, stride),
        (border,) * 4, (1, 1), 1, shift=9, low=-30000, high=30000,
    )  # fmt: skip
    shapes = {"x": (channels, size, size), "y": (filters, out, out)}
    if residual:
        shapes["r"] = shapes["y"]
    fixed = graph_of(conv, shapes)  # type: ignore[arg-type]
    found = outcome(fixed, machine("snowflake-1cc"), planner)
    expected = found.planned_cycles[0]
    assert expected is not None
    cycles = found.statistics.cycles / found.statistics.runs
    assert expected == pytest.approx(cycles, rel=0.04)


@pytest.mark.parametrize("planner", ("snowflake", "exact"))
@pytest.mark.parametrize(
    ("channels", "size", "filters", "rate"),
    ((960, 14, 64, 12), (256, 14, 128, 4), (64, 28, 64, 6), (1280, 14, 64, 7), (96, 28, 96, 12)),
    ids=str,
)
def test_times_of_dilated_layers(
    channels: int, size: int, filters: int, rate: int, planner: str
) -> None:
    """Of DeepLab's kind; the last one depthwise."""
    rng = np.random.default_rng(7)
    groups = channels if channels == filters else 1
    conv = ops.FixedConv(
        "conv", ("x",), ("y",),
        rng.integers(-300, 300, (filters, channels // groups, 3, 3)).astype(np.int16),
        rng.integers(-900, 900, filters).astype(np.int32), (1, 1), (rate,) * 4, (rate, rate),
        groups, shift=9, low=-30000, high=30000,
    )  # fmt: skip
    fixed = graph_of(conv, {"x": (channels, size, size), "y": (filters, size, size)})
    found = outcome(fixed, machine("snowflake-1cc"), planner)
    assert (found.wrong, found.hazards) == (0, ())
    expected = found.planned_cycles[0]
    assert expected is not None
    cycles = found.statistics.cycles / found.statistics.runs
    assert expected == pytest.approx(cycles, rel=0.04)


def _random_layer(rng: np.random.Generator) -> FixedGraph | None:
    """A layer as networks have them; None for one that is much smaller or larger."""
    channels, filters = (int(rng.choice((3, 16, 32, 64, 96, 192, 256, 512))) for _ in range(2))
    kernel, stride = int(rng.choice((1, 1, 3, 3, 5, 7))), int(rng.choice((1, 1, 2)))
    size, border = int(rng.choice((7, 10, 14, 20, 28, 40, 56))), kernel // 2
    residual = rng.random() < 0.5
    out = (size + 2 * border - kernel) // stride + 1
    if not 1e6 < channels * filters * kernel**2 * out**2 < 4e7:
        return None
    conv = ops.FixedConv(
        "conv", ("x", "r") if residual else ("x",), ("y",),
        rng.integers(-300, 300, (filters, channels, kernel, kernel)).astype(np.int16),
        rng.integers(-900, 900, filters).astype(np.int32), (stride, stride),
        (border,) * 4, (1, 1), 1, shift=9, low=-30000, high=30000,
    )  # fmt: skip
    shapes = {"x": (channels, size, size), "y": (filters, out, out)}
    if residual:
        shapes["r"] = shapes["y"]
    return graph_of(conv, shapes)  # type: ignore[arg-type]


@settings(deadline=None, max_examples=examples(1), phases=[Phase.generate])
@given(st.integers(0, 1 << 30))
def test_times_of_random_layers(seed: int) -> None:
    """Of ten layers that nobody chose the mean error is small; none is far off."""
    rng = np.random.default_rng(seed)
    errors: list[float] = []
    while len(errors) < 10:
        fixed = _random_layer(rng)
        if fixed is None:
            continue
        found = outcome(fixed, machine("snowflake-1cc"), "exact")
        expected = found.planned_cycles[0]
        assert expected is not None
        cycles = found.statistics.cycles / found.statistics.runs
        errors.append(abs(expected / cycles - 1))
    assert max(errors) < 0.2 and sum(errors) / len(errors) < 0.035, errors


@RANDOM
@given(near_and_far(), MACHINES, st.data())
def test_room_in_numbers_is_the_geometrys(
    fixed: FixedGraph, on: SnowflakeMachine, data: st.DataObject
) -> None:
    problem = problem_of(fixed, on)
    everything = list(space(problem, on))
    layer = numbers(problem, on)
    for _ in range(20):
        plan = data.draw(st.sampled_from(everything))
        rooms = geometry(conv_shape(problem), plan, on).rooms
        places = places_of(layer, choice(layer, plan))
        wanted = (0, 0, 0)
        if rooms is not None:
            wanted = (len(rooms.maps), len(rooms.kernels), len(rooms.out))
        assert places == wanted, plan


def test_a_plan_that_does_not_fit_has_no_prediction() -> None:
    on = with_buffers(2048, 2048)
    conv = ops.FixedConv(
        "conv", ("x",), ("y",), np.ones((64, 64, 3, 3), np.int16), np.zeros(64, np.int32),
        (1, 1), (1, 1, 1, 1), (1, 1), 1, shift=9, low=-30000, high=30000,
    )  # fmt: skip
    problem = problem_of(graph_of(conv, {"x": (64, 8, 8), "y": (64, 8, 8)}), on)
    plan = SnowflakePlan("coop", 64, 8, 8, "maps")
    assert not fits(problem, plan, on)
    with pytest.raises(PlanningError, match="in a WBuf, bytes is 4736"):
        predict(problem, plan, on)
