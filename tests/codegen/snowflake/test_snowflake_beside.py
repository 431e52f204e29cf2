"""Maxima whose steps run between those of a convolution: the reference's bits, and no race."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np
import pytest

from tests.codegen.snowflake.snowflake_cases import machine, outcome
from tvm_npu.codegen import ops
from tvm_npu.codegen.compile import generate
from tvm_npu.codegen.graph import FixedGraph, FixedLayer, Shape
from tvm_npu.codegen.graph.scale import q_point_scales
from tvm_npu.codegen.program.constants import Constants
from tvm_npu.codegen.snowflake.backend import SnowflakeBackend
from tvm_npu.codegen.snowflake.emit.beside import APART, as_made, merged
from tvm_npu.codegen.snowflake.emit.clusters import Touched
from tvm_npu.codegen.snowflake.emit.layers import layer_steps
from tvm_npu.codegen.snowflake.emit.tables import Tables
from tvm_npu.codegen.snowflake.plan import maxima_apart
from tvm_npu.codegen.snowflake.plan.beside import runs_beside
from tvm_npu.codegen.snowflake.plan.division import parts_of
from tvm_npu.codegen.snowflake.plan.made import Maker, hidden_cycles
from tvm_npu.codegen.snowflake.plan.pools import PoolTiles, pool_parts
from tvm_npu.codegen.snowflake.plan.tiling import Divides
from tvm_npu.codegen.snowflake.steps.objects import Bases, Kind, Move, Step
from tvm_npu.codegen.snowflake.steps.passes import PlacedLoad, PlacedStep, grouped
from tvm_npu.sim.snowflake.machine import SnowflakeMachine


def conv(
    rng: np.random.Generator, name: str, source: str, target: str, filters: int, planes: int,
    kernel: int, stride: int = 1,
) -> ops.FixedConv:  # fmt: skip
    weight = rng.integers(-300, 300, (filters, planes, kernel, kernel)).astype(np.int16)
    bias = rng.integers(-(1 << 20), 1 << 20, filters).astype(np.int32)
    return ops.FixedConv(
        name, (source,), (target,), weight, bias, (stride, stride), (kernel // 2,) * 4, (1, 1), 1,
        shift=9, low=-30000, high=31000,
    )  # fmt: skip


def maximum(source: str, target: str, stride: int, behind: int = 1) -> ops.FixedPool:
    """Of 3x3 windows, with padding in front and ``behind``."""
    padding = (1, 1, behind, behind)
    return ops.FixedPool(
        "pool", (source,), (target,), "max", (3, 3), (stride, stride), padding, False, padding,
        shift=0, low=-30000, high=31000,
    )  # fmt: skip


def graph(
    layers: tuple[FixedLayer, ...], shapes: dict[str, Shape], output: str
) -> FixedGraph:
    scales = q_point_scales(dict.fromkeys(shapes, 8))
    return FixedGraph(layers, shapes, ("x",), (output,), scales, 2)


def branches(rng: np.random.Generator, least: int = 5) -> FixedGraph:
    """A map of at least so many rows and columns, made by a convolution of single pixels, that a
    larger one and a maximum read; their results lie side by side."""
    planes, filters = (int(rng.integers(1, 9)) * 16 for _ in range(2))
    rows, columns = (int(size) for size in rng.integers(least, least + 16, 2))

    layers = (
        conv(rng, "first", "x", "m", planes, 32, 1),
        conv(rng, "second", "m", "c", filters, planes, 3), maximum("m", "p", 1),
        ops.FixedConcat("together", ("c", "p"), ("y",)),
    )  # fmt: skip
    pixels = (rows, columns)
    shapes = {
        "x": (32, *pixels), "m": (planes, *pixels), "c": (filters, *pixels),
        "p": (planes, *pixels), "y": (filters + planes, *pixels),
    }  # fmt: skip
    return graph(layers, shapes, "y")


@pytest.mark.parametrize("name", ["snowflake-1cc", "snowflake-2cc", "snowflake-4cc"])
def test_a_maximum_runs_beside_a_convolution(name: str) -> None:
    beside = 0
    for seed in range(3):
        fixed = branches(np.random.default_rng(seed))
        planned = generate(fixed, machine(name), "snowflake").planned
        beside += any(runs_beside(one.plan) for one in planned.layers)
        found = outcome(fixed, machine(name), seed=seed)
        assert found.wrong == 0
        assert not found.hazards
    assert beside


def test_convolutions_leave_maxima_room(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tiles of a convolution are cut for a maximum beside it, and both together take less time."""
    fixed, on = branches(np.random.default_rng(3), 24), machine("snowflake-4cc")
    planned = generate(fixed, on, "snowflake").planned
    found = outcome(fixed, on)
    assert (found.wrong, found.hazards) == (0, ())
    assert any(runs_beside(one.plan) for one in planned.layers)
    monkeypatch.setattr(SnowflakeBackend, "in_sequence", lambda self, layers, machine: layers)
    apart = generate(fixed, on, "snowflake").planned
    tiles, uncut = ([one.plan.tile_c for one in each.layers[:2]] for each in (planned, apart))
    assert tiles != uncut
    assert found.statistics.cycles < 0.97 * outcome(fixed, on).statistics.cycles


def test_exact_layers_runs_nothing_beside_or_behind() -> None:
    """`exact` runs a maximum beside a convolution, and one behind it in the same layer."""
    on, both, pooled = machine("snowflake-1cc"), branches(np.random.default_rng(3), 24), even_pool()
    joined = {name: generate(both, on, name).planned.layers for name in ("exact", "exact-layers")}
    assert any(runs_beside(one.plan) for one in joined["exact"])
    assert not any(runs_beside(one.plan) for one in joined["exact-layers"])
    one, two = (generate(pooled, on, name).planned.layers for name in ("exact", "exact-layers"))
    assert [len(one), len(two)] == [1, 2]
    for fixed in (both, pooled):
        found = outcome(fixed, on, planner="exact-layers")
        assert (found.wrong, found.hazards) == (0, ())


def even_pool() -> FixedGraph:
    """A convolution and maxima of 2x2 windows that do not overlap."""
    rng = np.random.default_rng(7)
    pool = ops.FixedPool(
        "pool", ("c",), ("y",), "max", (2, 2), (2, 2), shift=0, low=-30000, high=31000
    )
    layers = (conv(rng, "conv", "x", "c", 32, 16, 3), pool)
    return graph(layers, {"x": (16, 24, 24), "c": (32, 24, 24), "y": (32, 12, 12)}, "y")


def stem(
    rng: np.random.Generator, some_filters: Sequence[int] = (32, 64, 160, 192)
) -> FixedGraph:
    """A convolution and a maximum of every second 3x3 window of its results."""
    planes, kernel = ((3, 7), (64, 3), (32, 5))[int(rng.integers(3))]
    filters = int(rng.choice(some_filters))
    rows, columns = (int(size) for size in rng.integers(20, 60, 2))
    stride = int(rng.integers(1, 3))
    extents = [(size - 1) // stride + 1 for size in (rows, columns)]
    pooled = [extent // 2 + 1 for extent in extents]
    last = [2 * (out - 1) + 3 - 1 - extent for out, extent in zip(pooled, extents, strict=True)]
    pool = maximum("m", "p", 2)
    pool = replace(pool, padding=(1, 1, *last), counted_padding=(1, 1, *last))
    shapes: dict[str, Shape] = {
        "x": (planes, rows, columns), "m": (filters, *extents), "p": (filters, *pooled),
    }  # fmt: skip
    return graph((conv(rng, "conv", "x", "m", filters, planes, kernel, stride), pool), shapes, "p")


@pytest.mark.parametrize("name", ["snowflake-1cc", "snowflake-4cc"])
def test_a_maximum_runs_beside_the_convolution_that_makes_its_input(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Random pairs; where both run together they are not slower, but for a little."""
    ratios = []
    for seed in range(4):
        fixed = stem(np.random.default_rng(seed))
        planned = generate(fixed, machine(name), "snowflake").planned
        if not runs_beside(planned.layers[1].plan):
            continue
        found = outcome(fixed, machine(name), seed=seed)
        assert (found.wrong, found.hazards) == (0, ())
        with monkeypatch.context() as patch:
            patch.setattr(SnowflakeBackend, "in_sequence", lambda self, layers, machine: layers)
            apart = outcome(fixed, machine(name), seed=seed, timing=True)
        ratios.append(apart.statistics.cycles / found.statistics.cycles)
    assert ratios
    assert min(ratios) > 0.95
    assert max(ratios) > 1.005


@pytest.mark.parametrize("name", ["snowflake-1cc", "snowflake-4cc"])
@pytest.mark.parametrize("tiling", ["as planned", "tall", "blocks"])
def test_what_is_ready_is_what_the_steps_store(name: str, tiling: str) -> None:
    """The share of a cluster's results behind which a maximum's tile can come is said by the
    planner as by the addresses that the steps of both touch; ``tall``: tiles of the convolution of
    many rows and few columns; ``blocks``: few filters, so that a filter stands for each result of a
    block."""
    on, held = machine(name), 0
    tall, some = tiling == "tall", (1, 2, 4, 8) if tiling == "blocks" else (32, 64, 160, 192)
    for seed in range(12 if tiling == "blocks" else 8):
        fixed = stem(np.random.default_rng(100 + seed), some)
        planned = generate(fixed, on, "snowflake").planned
        first, second = planned.layers
        in_blocks = first.problem.filters != fixed.shapes["m"][0]
        if in_blocks != (tiling == "blocks"):
            continue
        if in_blocks:
            tiles = replace(second.plan, tile_r=-(-second.plan.tile_r // 3))
            second = replace(second, plan=tiles)
        if tall:
            plan = replace(first.plan, tile_r=12, tile_c=-(-first.plan.tile_c // 6))
            tiles = replace(second.plan, tile_c=-(-second.plan.tile_c // 3))
            first, second = replace(first, plan=plan), replace(second, plan=tiles)
        count = on.clusters.count
        makers, loaders = (
            layer_steps(at, one, planned, on, Constants(), Tables(Constants()), count)
            for at, one in enumerate((first, second))
        )
        parts = (cluster.parts[0] for cluster in makers)
        steps = [grouped(steps, Kind(stays)) for steps, _, stays in parts]
        stores = [[one.stores(Bases()) for one in mine] for mine in steps]
        ready: dict[tuple[int, ...], float] = {}
        for number, cluster in enumerate(loaders):
            for step in cluster.parts[0][0]:
                (load,) = step.loads
                _, row, column, plane = load.key
                ready[number, plane, row, column] = max(
                    share_until(mine, touched([load.moves])) for mine in stores
                )
        said = list(Maker(first.problem, first.plan, count).ready(second.problem, second.plan))
        assert said == pytest.approx([ready[tile] for tile in sorted(ready)])
        held += len(set(said)) > 2
    assert held > (0 if tiling == "blocks" else 3)


def share_until(stores: Sequence[tuple[Move, ...]], loaded: Touched) -> float:
    """Of the words that steps store those behind the last step that stores what is loaded."""
    words = [sum(move.runs * move.words for move in moves) for moves in stores]
    last = [at for at, moves in enumerate(stores) if touched([moves]).meet(loaded)]
    return sum(words[: last[-1] + 1]) / sum(words) if last else 0.0


@pytest.mark.parametrize(("divides", "groups"), [("rows", 1), ("both", 2), ("filters", 4)])
def test_clusters_load_what_they_have_stored(divides: Divides, groups: int) -> None:
    """Parts of a maximum go to clusters as those of the convolution do."""
    rng = np.random.default_rng(1)
    layers = (conv(rng, "conv", "x", "m", 128, 32, 3), maximum("m", "p", 2, behind=0))
    shapes: dict[str, Shape] = {"x": (32, 32, 40), "m": (128, 32, 40), "p": (128, 16, 20)}
    on = machine("snowflake-4cc")
    first, second = generate(graph(layers, shapes, "p"), on, "snowflake").planned.layers
    tiles = PoolTiles(32, 2, 20, groups, 1, 2)
    parts = parts_of(first.problem, divides, 4)
    loaded = pool_parts(second.problem, tiles, 4)
    assert [part.filters for part in parts] == [planes for _, planes in loaded]
    assert [part.rows for part in parts] == [(2 * at, 2 * count) for (at, count), _ in loaded]
    plan = replace(first.plan, divides=divides)
    assert Maker(first.problem, plan, 4).is_divided_like(tiles)
    assert not Maker(first.problem, plan, 4).is_divided_like(replace(tiles, plane_clusters=3))


def test_tiles_come_in_the_order_in_which_they_are_ready() -> None:
    """Columns of tiles that lie one behind the other in a layer alone."""
    on = machine("snowflake-1cc")
    planned = generate(stem(np.random.default_rng(3)), on, "snowflake").planned
    first, second = planned.layers
    tiles = replace(second.plan, tile_r=2, tile_c=-(-second.plan.tile_c // 2))
    layers = (replace(first, plan=replace(first.plan, tile_r=2)), replace(second, plan=tiles))
    made, pooled = (
        layer_steps(at, one, planned, on, Constants(), Tables(Constants()), 1)[0].parts[0][0]
        for at, one in enumerate(layers)
    )
    before = [PlacedStep(step, Bases(), (), (), step.stores(Bases())) for step in made]
    (ordered,) = as_made((before,), [pooled])
    rows = [step.loads[0].key[1] for step in ordered]
    assert len(rows) > len(set(rows)) > 4
    assert sorted(rows) != [step.loads[0].key[1] for step in pooled]
    assert rows == sorted(rows)
    assert {id(step) for step in ordered} == {id(step) for step in pooled}


def test_tiles_that_are_ready_at_once_come_one_after_the_other() -> None:
    """Behind the first tall tiles of a convolution many tiles of the maximum are ready: the memory
    has time for each of them while there is something to compute."""
    on = machine("snowflake-1cc")
    planned = generate(stem(np.random.default_rng(105)), on, "snowflake").planned
    first, second = planned.layers
    rows, columns = first.problem.rows, first.problem.columns
    plan = replace(first.plan, tile_r=-(-rows // 2), tile_c=-(-columns // 12))
    tiles = replace(second.plan, tile_r=1, tile_c=second.problem.columns.out, tile_planes=64)
    made, pooled = (
        layer_steps(at, one, planned, on, Constants(), Tables(Constants()), 1)[0].parts[0][0]
        for at, one in enumerate((replace(first, plan=plan), replace(second, plan=tiles)))
    )
    before = placed(made)
    (others,) = as_made((before,), [pooled])
    found = merged((before,), (placed(others),), 0, on)
    assert found is not None
    between, waits, ended = 0.0, [], sum(step.step.layer == 0 for step in found[0])
    for step in found[0]:
        if step.step.layer == 0:
            between += vector_cycles(step)
            ended -= 1
        elif ended:
            waits.append(between / load_cycles(step, on))
            between = 0.0
    assert len(waits) > 4
    assert min(waits) >= APART


def placed(steps: Iterable[Step]) -> list[PlacedStep]:
    return [
        PlacedStep(
            step, Bases(), tuple(PlacedLoad(load, load.moves) for load in step.loads), (),
            step.stores(Bases()),
        )
        for step in steps
    ]  # fmt: skip


def vector_cycles(step: PlacedStep) -> int:
    return sum(chunk.cycles for chunk in step.step.compute(step.bases))


def load_cycles(step: PlacedStep, on: SnowflakeMachine) -> float:
    words = sum(move.runs * move.words for load in step.loads for move in load.moves)
    return 2 * words / on.memory_bytes_per_cycle


def touched(moves: Iterable[Iterable[Move]]) -> Touched:
    found = Touched()
    found.add([move.in_memory for some in moves for move in some])
    return found


@pytest.mark.parametrize(
    ("ready", "hidden"),
    [
        ([0, 0, 0, 0], 400),  # all at once, in an idle memory
        ([1, 1, 1, 1], 0),  # at the end
        ([0.25, 0.5, 0.75, 1], 300),
        ([0, 0, 0.9, 0.9], 250),  # 100 cycles left, of which a half is idle
    ],
)
def test_tiles_that_are_ready_late_are_not_hidden(ready: list[float], hidden: float) -> None:
    """Of 400 cycles for four tiles, in a convolution of 1000 that leaves half of them."""
    assert hidden_cycles(ready, 1000, 500, 400) == pytest.approx(hidden)


def module_of_branches(rng: np.random.Generator, parts: tuple[int, ...]) -> FixedGraph:
    """Convolutions of one map, their results side by side, and a maximum of every second window."""
    size = int(rng.integers(24, 40))
    pooled = size // 2 + 1
    names = [f"part{number}" for number in range(len(parts))]
    convolutions = [
        conv(rng, name, "x", name, planes, 64, 3) for name, planes in zip(names, parts, strict=True)
    ]
    last = 2 * (pooled - 1) + 3 - 1 - size
    layers = (
        *convolutions, ops.FixedConcat("together", tuple(names), ("m",)),
        replace(maximum("m", "p", 2), padding=(1, 1, last, last),
                counted_padding=(1, 1, last, last)),
    )  # fmt: skip
    shapes: dict[str, Shape] = {
        "x": (64, size, size), "m": (sum(parts), size, size), "p": (sum(parts), pooled, pooled),
        **{name: (planes, size, size) for name, planes in zip(names, parts, strict=True)},
    }  # fmt: skip
    return graph(layers, shapes, "p")


@pytest.mark.parametrize("name", ["snowflake-2cc", "snowflake-4cc"])
def test_maxima_of_a_concatenation_come_apart(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of its first parts run while the others are made."""
    fixed = module_of_branches(np.random.default_rng(5), (64, 96, 128))
    planned = generate(fixed, machine(name), "snowflake").planned
    maxima = [one for one in planned.layers if isinstance(one.layer, ops.FixedPool)]
    assert len(maxima) == 3
    assert sum(runs_beside(one.plan) for one in maxima) >= 2
    found = outcome(fixed, machine(name))
    assert (found.wrong, found.hazards) == (0, ())
    monkeypatch.setattr(maxima_apart, "with_maxima_apart", lambda fixed: fixed)
    assert found.statistics.cycles < 0.995 * outcome(fixed, machine(name)).statistics.cycles


@pytest.mark.parametrize("change", ["lines", "output", "reader", "one"])
def test_maxima_stay_together(change: str) -> None:
    """Where a part's pixels are no whole units of the memory, something else reads what is put
    together, or only one of its parts is made by a convolution."""
    rng = np.random.default_rng(7)
    fixed = module_of_branches(rng, (64, 80 if change == "lines" else 96))
    first, _, whole, pool = fixed.layers
    layers, shapes = fixed.layers, fixed.shapes
    if change == "reader":
        layers = (*layers, conv(rng, "further", "m", "q", 32, sum((64, 96)), 1))
        shapes = {**shapes, "q": (32, *shapes["m"][1:])}
    elif change == "one":
        layers = (first, replace(whole, inputs=("part0", "x")), pool)
        shapes = {**shapes, "m": (128, *shapes["m"][1:]), "p": (128, *shapes["p"][1:])}
    outputs = {"output": ("p", "m"), "reader": ("p", "q")}.get(change, ("p",))
    fixed = replace(fixed, layers=layers, shapes=shapes, outputs=outputs)
    assert maxima_apart.with_maxima_apart(fixed) is fixed
    found = outcome(fixed, machine("snowflake-2cc"))
    assert (found.wrong, found.hazards) == (0, ())
