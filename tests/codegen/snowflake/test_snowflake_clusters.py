"""Several clusters on one image: every way to divide a layer gives the reference's bits, memory is
read once for all, and barriers come where one cluster touches what another stored."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from tests.codegen.snowflake.snowflake_cases import graph_of, machine, near_and_far, outcome
from tests.examples import examples
from tvm_npu.codegen import ops
from tvm_npu.codegen.graph import FixedGraph
from tvm_npu.codegen.plan import planner as planner_called
from tvm_npu.codegen.plan.problem import ConvProblem, Infeasible
from tvm_npu.codegen.snowflake.plan.divide import divided_prediction, fits
from tvm_npu.codegen.snowflake.plan.division import parts_of
from tvm_npu.codegen.snowflake.plan.tiling import Divides, SnowflakePlan
from tvm_npu.sim.snowflake.machine import SnowflakeMachine

RANDOM = settings(deadline=None, max_examples=examples(60), phases=[Phase.explicit, Phase.generate])
SEVERAL = ("snowflake-2cc", "snowflake-4cc")


@dataclass(frozen=True)
class Divided:
    """The planner `snowflake` with its tiles cut smaller, divided as asked where that is
    possible."""

    divides: Divides
    cut: int
    name: str = "divided"

    def plan(self, problem: ConvProblem, on: SnowflakeMachine) -> SnowflakePlan | Infeasible:
        parts = parts_of(problem, self.divides, on.clusters.count)
        single = machine("snowflake-1cc")
        for part in parts:
            plan = planner_called("snowflake").plan(part.problem, single)
            if not isinstance(plan, SnowflakePlan):
                continue
            plan = replace(
                plan, divides=self.divides, tile_r=-(-plan.tile_r // self.cut),
                tile_c=-(-plan.tile_c // self.cut),
            )  # fmt: skip
            if fits(problem, plan, on):
                return replace(plan, prediction=divided_prediction(problem, plan, on))
        return planner_called("snowflake").plan(problem, on)


@RANDOM
@given(
    near_and_far(), st.sampled_from(SEVERAL), st.sampled_from(("rows", "filters", "both", "none")),
    st.integers(1, 3), st.integers(0, 1 << 30),
)  # fmt: skip
def test_every_division_of_random_convolutions(
    fixed: FixedGraph, name: str, divides: Divides, cut: int, seed: int
) -> None:
    found = outcome(fixed, machine(name), Divided(divides, cut), seed=seed)
    assert (found.wrong, found.hazards) == (0, ())


def conv_of(channels: int, filters: int, size: int, kernel: int) -> FixedGraph:
    rng = np.random.default_rng(channels)
    layer = ops.FixedConv(
        "conv", ("x",), ("y",),
        rng.integers(-300, 300, (filters, channels, kernel, kernel)).astype(np.int16),
        np.zeros(filters, np.int32), padding=(kernel // 2,) * 4, shift=9, low=-30000, high=30000,
    )  # fmt: skip
    return graph_of(layer, {"x": (channels, size, size), "y": (filters, size, size)})


@pytest.mark.parametrize("name", SEVERAL)
def test_what_all_clusters_need_is_read_once(name: str) -> None:
    """By rows weights come once, by filters maps."""
    fixed = conv_of(64, 128, 28, 3)
    single = outcome(fixed, machine("snowflake-1cc")).statistics.bytes_by_link["loaded"]
    rows = outcome(fixed, machine(name), Divided("rows", 1)).statistics.bytes_by_link["loaded"]
    assert rows["weight"] == single["weight"]
    on, alone = machine(name), machine("snowflake-1cc")
    filters = outcome(fixed, on, Divided("filters", 1)).statistics.bytes_by_link["loaded"]
    part = conv_of(64, 128 // on.clusters.count, 28, 3)
    assert filters["in"] == outcome(part, alone).statistics.bytes_by_link["loaded"]["in"]
    assert filters["weight"] == single["weight"]


@pytest.mark.parametrize(("name", "least"), (("snowflake-2cc", 1.9), ("snowflake-4cc", 3.4)))
@pytest.mark.parametrize("layer", ((64, 64, 56, 3), (256, 256, 14, 3)))
def test_clusters_together_are_faster(
    name: str, least: float, layer: tuple[int, int, int, int]
) -> None:
    fixed = conv_of(*layer)
    alone = outcome(fixed, machine("snowflake-1cc")).statistics.cycles
    assert alone / outcome(fixed, machine(name)).statistics.cycles >= least


def test_the_memory_never_waits_for_a_steps_end() -> None:
    """Kernels are most of what moves, and have three places: the time is little more than that of
    their bytes."""
    on = machine("snowflake-4cc")
    found = outcome(conv_of(512, 512, 8, 3), on)
    moved = found.statistics.moved_bytes / found.statistics.runs
    cycles = found.statistics.cycles / found.statistics.runs
    assert cycles < 1.1 * moved / on.memory_bytes_per_cycle
    assert (found.wrong, found.hazards) == (0, ())


def test_rows_and_filters_are_shared_out_evenly() -> None:
    """14 rows are no whole number for each of four clusters, 7 are for each of two."""
    on = machine("snowflake-4cc")
    found = outcome(conv_of(160, 320, 14, 3), on)
    (entry,) = found.program.layers
    assert entry.plan is not None and entry.plan["divides"] == "both"
    products = 160 * 320 * 40 * 40  # without those with padding
    peak = on.macs_per_cycle(2) * on.clusters.count
    assert found.statistics.cycles / found.statistics.runs < 1.14 * products / peak
    assert (found.wrong, found.hazards) == (0, ())


@pytest.mark.parametrize("size, kernel", [((3, 1), 1), ((1, 3), 1), ((5, 3), 3)])
def test_halves_that_can_not_all_be_shared_out_are_not_taken(
    size: tuple[int, int], kernel: int
) -> None:
    """Three results in a row: filters of two are shared out in units of the memory, of one in
    lines, and 24 filters are one unit but two lines."""
    generator = np.random.default_rng(0)
    layer = ops.FixedConv(
        "c", ("x",), ("y",),
        generator.integers(-300, 300, (24, 64, kernel, kernel)).astype(np.int16),
        np.zeros(24, np.int32), shift=9, low=-30000, high=31000,
    )  # fmt: skip
    out = (24, size[0] - kernel + 1, size[1] - kernel + 1)
    four = machine("snowflake-4cc")
    for planner in ("snowflake", "exact"):
        found = outcome(graph_of(layer, {"x": (64, *size), "y": out}), four, planner)
        assert (found.wrong, found.hazards) == (0, ()), planner


@given(st.integers(1, 4), st.integers(1, 4), st.integers(1, 70), st.sampled_from((1, 3)))
def test_parts_are_the_whole_layer_or_there_are_none(
    rows: int, columns: int, filters: int, kernel: int
) -> None:
    problem = ConvProblem(
        filters=filters, channels=16, groups=1, rows=rows, columns=columns,
        in_rows=rows + kernel - 1, in_columns=columns + kernel - 1, kernel=(kernel, kernel),
        stride=(1, 1), dilation=(1, 1), padding=(0, 0, 0, 0), element_bytes=2,
    )  # fmt: skip
    for divides, clusters in (("rows", 2), ("filters", 2), ("both", 4), ("filters", 4)):
        parts = parts_of(problem, divides, clusters)  # type: ignore[arg-type]
        made = sum(part.rows[1] * part.filters[1] for part in parts)
        whole = (rows * columns if kernel == 1 else rows) * filters
        assert made in (0, whole), divides
