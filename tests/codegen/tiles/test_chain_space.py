"""Tables of all tiles of a chain say of each what is said of it by itself, and no tiles take less
time than those of the planner."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

import pytest
from hypothesis import example, given, note, settings
from hypothesis import strategies as st

from tests.codegen.tiles.chain_graphs import bottleneck
from tests.codegen.tiles.test_chains import MACHINES, chains, joined
from tests.codegen.tiles.tile_cases import tile_machine
from tests.examples import examples
from tvm_npu.codegen.compile import compile_fixed
from tvm_npu.codegen.graph import FixedGraph
from tvm_npu.codegen.plan import TileLimits
from tvm_npu.codegen.plan.problem import Infeasible, tile_sizes
from tvm_npu.codegen.tiles.emit.runs import chain_cycles
from tvm_npu.codegen.tiles.plan import chain_space
from tvm_npu.codegen.tiles.plan import chains as planning
from tvm_npu.codegen.tiles.plan.chain import (
    ChainPlan,
    ChainProblem,
    ChainTiles,
    Seat,
    can_keep_rows,
    fits,
    least_need,
)
from tvm_npu.codegen.tiles.plan.chain_space import Place
from tvm_npu.codegen.tiles.plan.chains import all_tries, plan_chain, plan_of, smallest_tiles
from tvm_npu.sim.machine_file import load_machine
from tvm_npu.sim.tiles.machine import TileMachine

MEMORIES, WORDS = (2048, 1024, 4096), (1, 2, 4, 8)
OTHER_MACHINES = (
    *MACHINES,
    tile_machine((4096, 1024, 256), WORDS),
    tile_machine(MEMORIES, WORDS, mover={"bytes_per_cycle": 1.5, "segment_cycles": 3.0}),
    tile_machine(MEMORIES, WORDS, mover={"bytes_per_cycle": 0.5, "setup_cycles": 2.0}),
    tile_machine(
        MEMORIES, WORDS,
        array={"column_mapping": "OH", "row_mapping": "OC", "width": 2, "height": 2},
    ),
    tile_machine(
        (768, 512, 2048), WORDS, mover={"setup_cycles": 200.0},
        array={"column_mapping": "OW", "row_mapping": "IC", "width": 4, "setup_cycles": 0.0},
    ),
)  # fmt: skip


def every_tiles(problem: ChainProblem, place: Place) -> Iterator[tuple[ChainTiles, int]]:
    """That may be a plan's, whether they fit or not; and how many buffers."""
    point = problem.point
    for rows, channels in product(range(1, point.rows + 1), range(1, point.channels + 1)):
        if place.held and rows < point.rows:
            continue
        for keeps_rows in {False, can_keep_rows(problem, channels)}:
            tiles = ChainTiles(problem, rows, channels, keeps_rows, place.held, place.kept)
            yield tiles, 1
            yield tiles, 2


def keeps_none(tiles: ChainTiles) -> bool:
    """Though it says so."""
    plain = ChainTiles(
        tiles.problem, tiles.tile_rows, tiles.tile_channels, False, tiles.held, tiles.kept
    )
    return tiles.keeps_rows and tiles.moved_bytes() == plain.moved_bytes()


@settings(max_examples=examples(40), deadline=None)
@given(
    st.sampled_from(OTHER_MACHINES), chains(), st.booleans(), st.booleans(), st.booleans()
)
@example(OTHER_MACHINES[len(MACHINES)], bottleneck(2, 2, 6), True, False, True)
def test_what_tables_say_of_tiles(
    machine: TileMachine, fixed: FixedGraph, in_run: bool, held: bool, kept: bool
) -> None:
    _, problem = joined(fixed, machine)
    place = Place(in_run, held and in_run, kept and in_run)
    seat = Seat(0, 0) if in_run else None
    said = {}
    for one in all_tries(problem, machine, place):
        for number, moved in enumerate(one.moved_bytes):
            said[one.tiles(number), one.buffers] = moved
    true = {
        (tiles, buffers): tiles.moved_bytes()
        for tiles, buffers in every_tiles(problem, place)
        if not keeps_none(tiles) and fits(tiles, buffers, machine, seat)
    }
    assert said == true
    if not true:
        _, needed, room = least_need(smallest_tiles(problem, place), machine, seat)
        assert needed > room


def tile_extents(tiles: ChainTiles) -> Iterator[tuple[int, int, int, int]]:
    """Filters and channels of a group, rows and columns that commands of each convolution work on
    at a time, strip by strip and round by round."""
    head, point = tiles.problem.head, tiles.problem.point
    for strip, (_, channels) in product(tiles.strips, tiles.rounds):
        if head.groups == 1:
            yield channels, head.channels, strip.middle[1], head.columns
        else:
            yield 1, 1, strip.middle[1], head.columns
        if tiles.problem.middle is not None:
            yield 1, 1, strip.rows[1], tiles.problem.middle.columns
        yield point.filters, channels, strip.rows[1], point.columns


limit = st.one_of(st.none(), st.integers(1, 12))


@settings(max_examples=examples(60), deadline=None)
@given(st.sampled_from(OTHER_MACHINES), chains(), st.tuples(limit, limit, limit, limit))
def test_tiles_keep_to_limits(
    machine: TileMachine, fixed: FixedGraph, most: tuple[int | None, ...]
) -> None:
    """All that do, and no others; a planner within limits says why it has no plan."""
    _, problem = joined(fixed, machine)
    limits = TileLimits(*most)

    def within(tiles: ChainTiles) -> bool:
        return all(
            largest is None or size <= largest
            for extents in tile_extents(tiles)
            for size, largest in zip(extents, most, strict=True)
        )

    every, kept = (
        {(one.tiles(at), one.buffers) for one in tries for at in range(len(one.bounds))}
        for tries in (
            all_tries(problem, machine, Place()), all_tries(problem, machine, Place(), limits)
        )
    )
    assert kept == {one for one in every if within(one[0])}
    for goal in ("cycles", "bytes"):
        found = plan_chain(problem, machine, "x", chain_cycles, limits, goal)
        if kept:
            assert isinstance(found, ChainPlan)
        elif every:
            assert isinstance(found, Infeasible) and "max_tile_" in str(found)


def test_graphs_under_limits_join_nothing_larger() -> None:
    """A bottleneck's layers, whose pointwise convolution has 16 filters, which a chain makes at a
    time, and 64 channels."""
    fixed, machine = bottleneck(16, 64, 14), tile_machine((32768, 16384, 65536))
    for limits, joins in (
        (TileLimits(), True), (TileLimits(max_tile_m=16, max_tile_r=4), True),
        (TileLimits(max_tile_m=15), False), (TileLimits(max_tile_c=13), False),
    ):  # fmt: skip
        (layer, *others) = compile_fixed(fixed, machine, "exact-traffic", limits).layers
        assert joins == (not others), limits
        if joins and limits.max_tile_r:
            assert layer.plan["tile_rows"] <= 2 and layer.plan["tile_channels"] <= 16


@settings(max_examples=examples(40), deadline=None)
@given(st.sampled_from(OTHER_MACHINES), chains())
def test_no_tiles_take_less_time(machine: TileMachine, fixed: FixedGraph) -> None:
    """Than their bound, nor than the plan."""
    _, problem = joined(fixed, machine)
    bounds = {
        (one.tiles(number), one.buffers): bound
        for one in all_tries(problem, machine, Place())
        for number, bound in enumerate(one.bounds)
    }
    times = []
    for tiles, buffers in every_tiles(problem, Place()):
        if fits(tiles, buffers, machine):
            plan = plan_of(tiles, buffers, "")  # type: ignore[arg-type]
            times.append(chain_cycles(problem, plan, machine))
            note(str(plan))
            assert bounds.get((tiles, buffers), 0.0) <= times[-1] + 1e-6
    found = plan_chain(problem, machine, "exact", chain_cycles)
    assert isinstance(found, ChainPlan if times else Infeasible)
    if isinstance(found, ChainPlan):
        assert chain_cycles(problem, found, machine) == pytest.approx(min(times), rel=1e-12)


def large() -> tuple[ChainProblem, TileMachine]:
    machine = load_machine("setup-a")
    assert isinstance(machine, TileMachine)
    return joined(bottleneck(24, 144, 56), machine)[1], machine


def test_few_plans_are_timed() -> None:
    """Of thousands: bounds are near."""
    problem, machine = large()
    timed = []

    def clock(problem: ChainProblem, plan: ChainPlan, machine: TileMachine) -> float:
        timed.append(plan)
        return chain_cycles(problem, plan, machine)

    found = plan_chain(problem, machine, "exact", clock)
    assert found in timed and len(timed) < 6
    assert sum(len(one.bounds) for one in all_tries(problem, machine, Place())) > 2_000


def test_limits_of_planning_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without time for more, the answer is the best that was timed, or the one of least bound."""
    problem, machine = large()
    monkeypatch.setattr(chain_space, "MOST_TRIED", 56 * 144 - 1)
    tries = all_tries(problem, machine, Place())
    tried = {one.tiles(number).tile_rows for one in tries for number in range(len(one.bounds))}
    assert tried < set(tile_sizes(56)) and 11 not in tried
    least = min(one.best("cycles") for one in tries)
    monkeypatch.setattr(planning, "MOST_STEPS", 1)
    found = plan_chain(problem, machine, "exact", lambda *_: pytest.fail("timed"))
    assert found == plan_of(least[1], least[2], "exact")
    tiles = least[1]
    monkeypatch.setattr(planning, "MOST_STEPS", len(tiles.strips) * len(tiles.rounds))
    times = iter((1e9, 0.0))
    assert plan_chain(problem, machine, "exact", lambda *_: next(times)) == found
