"""What `exact` keeps from one machine to the next: tables, whose numbers are those of any machine
that has in common what they read."""

from __future__ import annotations

from math import ceil
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.codegen.nmp.plan.plan_reference import conv, convs, machine, machines
from tests.examples import examples
from tvm_npu.codegen.backends import backend_of
from tvm_npu.codegen.nmp.plan.exact import axes, layer, tables
from tvm_npu.codegen.plan.kept import Kept, keeping, kept_or_made
from tvm_npu.codegen.plan.limits import NO_LIMITS
from tvm_npu.codegen.plan.problem import ConvProblem
from tvm_npu.sim.nmp.machine import NmpMachine, nmp_machine_from_dict


def tables_of(problem: ConvProblem, mach: NmpMachine) -> list[Any]:
    parts = layer.parts_of(problem, mach, NO_LIMITS, uses_ring=True)
    return [array for part in parts for table in part.numbers[3:7] for array in table]


@settings(max_examples=examples(20))
@given(st.lists(convs(), min_size=2, max_size=3), machines(), machines(), st.integers(4, 7))
def test_tables_of_another_machine_are_those_of_this_one(
    problems: list[ConvProblem], first: NmpMachine, other: NmpMachine, datapath: int
) -> None:
    values = {**other.model_dump(), **first.model_dump(include={"cores", "ring"})}
    values["mac"]["datapath_bits"] = 1 << datapath
    values["dram"]["burst_bytes"] = first.dram.burst_bytes
    alike = nmp_machine_from_dict(values)
    assert backend_of(first).common(first) == backend_of(alike).common(alike)
    with keeping(Kept(1 << 24)):
        for problem in problems:
            tables_of(problem, first)
        found = [tables_of(problem, alike) for problem in problems]
    for problem, mine in zip(problems, found, strict=True):
        plain = tables_of(problem, alike)
        assert all(np.array_equal(a, b) for a, b in zip(mine, plain, strict=True))


def test_tables_are_made_once_for_machines_that_have_them_in_common() -> None:
    problem, kept = conv(48, 16, (14, 14), (3, 3)), Kept(1 << 24)
    with keeping(kept):
        first = tables_of(problem, machine())
        again = tables_of(problem, machine(memories=(4096, 2048, 4096, 4096), dme_rate=3.0))
        assert all(a is b for a, b in zip(first, again, strict=True))
        tables_of(problem, machine(tles=2))
        assert kept.used_bytes < sum(array.nbytes for array in first)


@settings(max_examples=examples(40))
@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 5)), max_size=20), st.integers(0, 200))
def test_no_more_is_kept_than_there_is_room_for(
    asked: list[tuple[int, int]], most_bytes: int
) -> None:
    kept = Kept(most_bytes)
    with keeping(kept):
        for common, key in asked:
            made = kept_or_made(common, key, lambda at=(common, key): (np.full(at[1], at[0]),))
            assert made[0].tolist() == [common] * key
            assert kept.used_bytes <= most_bytes


def plain_item_row(task: axes.Task, spread: Any, kind: int, position: int, tile: int) -> list[int]:
    """W_LOADS, W_BURSTS, W_FILTERS of a TLE, its filter parts and turns one by one."""
    slices, parts, sharing = map(int, spread)
    size = ceil(task.items / slices)
    here = task.items % size if kind else size
    loads = bursts = filters = 0
    for part in range(parts):
        run = here // parts + (part < here % parts)
        for begin in range(0, run, tile):
            extent = min(tile, run - begin) * task.item_filters
            share = ceil(tile / sharing) if sharing > 1 else extent
            own = min(share, extent - (position + part) % sharing * share)
            if own > 0:
                loads, filters = loads + 1, filters + own
                taps = task.channels * task.kernel * task.element_bytes
                bursts += ceil(own * taps / task.burst_bytes)
    return [loads, bursts, filters]


@settings(max_examples=examples(60))
@given(st.integers(1, 40), st.data())
def test_items_at_every_position_of_a_ring_are_counted(items: int, data: st.DataObject) -> None:
    parts = st.sampled_from((1, 2, 4, 6))
    spread = data.draw(st.tuples(st.integers(1, 4), parts, st.integers(1, 6)))
    values: dict[str, Any] = dict.fromkeys(axes.Task._fields, 1)
    values |= {"items": items, "channels": data.draw(st.integers(1, 9)), "kernel": 3}
    task = axes.Task(**{**values, "burst_bytes": 16})
    made = tables.item_tables(task, np.array([spread]))
    for kind in range(2):
        for position in range(spread[2] if made.count[0, kind] and made.used[0] else 0):
            for tile in range(1, made.longest[0] + 1):
                row = made.table[made.begin[0, kind, position] + tile]
                columns = [tables.W_LOADS, tables.W_BURSTS, tables.W_FILTERS]
                wanted = plain_item_row(task, spread, kind, position, tile)
                assert row[columns].tolist() == wanted
