"""Where graphs may be cut, without TVM."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from tvm_npu.pipelines.cut_points import Cut, bits, cut_points


def cuts(
    operands: Sequence[Sequence[int]], weights: Sequence[float] | None = None
) -> list[list[int]]:
    """The nodes before each cut; every crossing tensor counts as one byte."""
    readers = [
        {node for node, reads in enumerate(operands) if other in reads}
        for other in range(len(operands))
    ]

    def crossing(before: int) -> int:
        return sum(bool(readers[n] - set(bits(before))) for n in bits(before))

    found = cut_points(operands, weights or [1.0] * len(operands), crossing)
    return [list(bits(cut.before)) for cut in found]


def test_a_chain_is_cut_everywhere() -> None:
    assert cuts([(), (0,), (1,), (2,)]) == [[0], [0, 1], [0, 1, 2]]


def test_one_operator_and_none_that_works() -> None:
    assert cuts([()]) == []
    assert cuts([(), (0,)], [0.0, 0.0]) == []


def test_operators_without_work_join_the_layer_with_the_smaller_cut() -> None:
    # 0 conv, 1 reads it twice (a skip), 2 joins both: behind 1 two tensors cross, behind 2 one
    assert cuts([(), (0,), (0, 1), (2,)], [1.0, 0.0, 0.0, 1.0]) == [[0]]
    # two reshapes between: equal cuts, the first
    assert cuts([(), (0,), (1,), (2,)], [1.0, 0.0, 0.0, 1.0]) == [[0]]


def test_inside_a_residual_block_with_an_identity() -> None:
    # stem, three convolutions, the last adds the stem's result
    assert cuts([(), (0,), (1,), (2, 0)]) == [[0], [0, 1], [0, 1, 2]]


def test_a_projection_stays_with_its_block() -> None:
    # stem; convolutions 1, 2 beside projection 3; 4 joins
    operands = [(), (0,), (1,), (0,), (2, 3), (4,)]
    assert cuts(operands) == [[0], [0, 1, 2, 3, 4]]


def test_a_shortcut_without_work_is_like_an_identity() -> None:
    # stem; convolutions 1, 2 beside a slice 3; 4 joins
    operands = [(), (0,), (1,), (0,), (2, 3), (4,)]
    weights = [1.0, 1.0, 1.0, 0.0, 0.0, 1.0]
    assert cuts(operands, weights) == [[0], [0, 1, 3], [0, 1, 2, 3, 4]]


def test_fire_and_inception_are_one_layer() -> None:
    # squeeze 0, expands 1 and 2 (work 1:9 as in SqueezeNet), concat 3, next squeeze 4
    fire = [(), (0,), (0,), (1, 2), (3,)]
    assert cuts(fire, [1.0, 1.0, 9.0, 0.0, 1.0]) == [[0], [0, 1, 2, 3]]
    # four branches of 1, 2, 2, 2 operators
    inception = [(), (0,), (0,), (2,), (0,), (4,), (0,), (6,), (1, 3, 5, 7), (8,)]
    assert cuts(inception) == [[0], list(range(9))]


def test_a_light_head_is_carried_to_the_end() -> None:
    # backbone 0, 1, 3, 4 of work 10; head 2 of work 1 on 1, joined with 4 by the last concat 5
    operands = [(), (0,), (1,), (1,), (3,), (2, 4)]
    weights = [10.0, 10.0, 1.0, 10.0, 10.0, 0.0]
    assert cuts(operands, weights) == [[0], [0, 1], [0, 1, 2, 3]]
    # a head as heavy as what runs beside it keeps everything behind it in one piece
    assert cuts(operands, [10.0, 10.0, 20.0, 10.0, 10.0, 0.0]) == [[0], [0, 1]]
    # work behind the join: the branches are parallel
    assert cuts([*operands, (5,)], [*weights, 1.0]) == [[0], [0, 1], list(range(6))]


@st.composite
def graphs(draw: st.DrawFn) -> tuple[list[tuple[int, ...]], list[float]]:
    count = draw(st.integers(1, 14))
    operands: list[tuple[int, ...]] = [()]
    for node in range(1, count):
        near = st.integers(max(0, node - 4), node - 1)
        operands.append(tuple(sorted(draw(st.sets(near, min_size=1, max_size=3)))))
    weights = draw(st.lists(st.sampled_from([0.0, 1.0, 5.0]), min_size=count, max_size=count))
    return operands, weights


@given(graphs())
def test_cuts_are_nested_closed_and_have_work_between(
    graph: tuple[list[tuple[int, ...]], list[float]],
) -> None:
    operands, weights = graph
    found = [set(before) for before in cuts(operands, weights)]
    for before in found:
        for node in before:
            assert set(operands[node]) <= before
    edges = [set(), *found, set(range(len(operands)))]
    for one, other in zip(edges, edges[1:], strict=False):
        assert one < other
        if found:
            assert sum(weights[node] for node in other - one) > 0


@given(graphs())
def test_working_branches_that_meet_before_work_are_not_separated(
    graph: tuple[list[tuple[int, ...]], list[float]],
) -> None:
    """Nothing that works reads what was made by work beside the way to the cut."""
    operands, weights = graph
    for cut in cut_points(operands, weights, lambda _: 0):
        assert isinstance(cut, Cut)
        before = set(bits(cut.before))
        needed = {cut.node}
        for node in reversed(range(cut.node + 1)):
            if node in needed:
                needed |= set(operands[node])
        side = before - needed
        if not sum(weights[node] for node in side):
            continue
        behind: set[int] = set()
        for node in range(len(operands)):
            if node not in before and (set(operands[node]) & (side | behind)):
                behind.add(node)
        assert sum(weights[node] for node in behind) == 0
