"""Merging on random graphs: groups are supported nodes, contract to a DAG, cannot grow."""

from __future__ import annotations

from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tvm_npu.door.regions import execution_order, merge_regions


@st.composite
def graphs(draw: st.DrawFn) -> tuple[list[list[int]], list[bool]]:
    count = draw(st.integers(1, 14))
    operands = [
        sorted(draw(st.sets(st.integers(0, node - 1), max_size=3))) if node else []
        for node in range(count)
    ]
    return operands, draw(st.lists(st.booleans(), min_size=count, max_size=count))


def is_acyclic(operands: list[list[int]], groups: list[tuple[int, ...]]) -> bool:
    """Kahn's algorithm on the contracted graph, written another way than the code under test."""
    name = {node: node for node in range(len(operands))}
    for group in groups:
        name.update(dict.fromkeys(group, group[0]))
    edges = {(name[r], name[n]) for n, reads in enumerate(operands) for r in reads}
    edges = {(a, b) for a, b in edges if a != b}
    left = set(name.values())
    while left:
        sources = {node for node in left if not any(b == node and a in left for a, b in edges)}
        if not sources:
            return False
        left -= sources
    return True


@given(graphs())
def test_groups_are_disjoint_supported_and_complete(
    graph: tuple[list[list[int]], list[bool]],
) -> None:
    operands, supported = graph
    groups = merge_regions(operands, supported)
    grouped = [node for group in groups for node in group]
    assert sorted(grouped) == [node for node, ok in enumerate(supported) if ok]


@given(graphs())
def test_contracted_graph_is_acyclic_and_runs_in_order(
    graph: tuple[list[list[int]], list[bool]],
) -> None:
    operands, supported = graph
    groups = merge_regions(operands, supported)
    assert is_acyclic(operands, list(groups))
    done: set[int] = set()
    for piece in execution_order(operands, groups):
        for node in piece:
            assert all(r in done or r in piece for r in operands[node])
        done |= set(piece)
    assert done == set(range(len(operands)))


@given(graphs())
def test_no_two_neighbours_could_still_be_merged(
    graph: tuple[list[list[int]], list[bool]],
) -> None:
    operands, supported = graph
    groups = list(merge_regions(operands, supported))
    for first, second in combinations(groups, 2):
        joined = {*first, *second}
        touches = any(r in first for n in second for r in operands[n]) or any(
            r in second for n in first for r in operands[n]
        )
        if touches:
            rest = [group for group in groups if group not in (first, second)]
            assert not is_acyclic(operands, [*rest, tuple(sorted(joined))])


def test_region_does_not_wait_for_itself() -> None:
    # 0 -> 1 (CPU) -> 2 and 0 -> 2: merging 0 and 2 would need 1 in the middle.
    assert merge_regions([[], [0], [0, 1]], [True, False, True]) == ((0,), (2,))


def test_two_regions_do_not_wait_for_each_other() -> None:
    # 0 -> 1 and 2 -> 3 inside; 4 (CPU) lies between 1 and 2.
    operands = [[], [0], [4], [2, 1], [1]]
    order = [0, 1, 4, 2, 3]
    renumbered = [[order.index(r) for r in operands[node]] for node in order]
    groups = merge_regions(renumbered, [node != 4 for node in order])
    assert groups == ((0, 1), (3, 4))


def test_groups_that_wait_for_each_other_are_an_error() -> None:
    with pytest.raises(ValueError, match="2 groups wait for each other"):
        execution_order([[], [0], [1]], [(0, 2)])
