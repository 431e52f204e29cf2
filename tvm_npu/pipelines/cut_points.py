"""Where a graph of operators can be cut into consecutive layers; free of TVM types.

A cut behind node v splits the graph into v's descendants, which come behind the cut, and all the
rest, which comes before it. What is parallel to v (neither needed by v nor needing it) decides:

- nothing is parallel: cut. In a residual block this holds behind every operator of its body as
  long as the shortcut is an identity; the block's input then crosses the cut beside v's result.
- branches that are joined again (inception and fire modules, a projection shortcut): no cut, they
  stay in one layer.
- only operators without work (a reshape, a shortcut that cuts and pads): cut, as for an identity.
- side branches behind which no work is left (a detector's heads: they end in outputs, or in a
  last concatenation): cut, if they weigh at most `SIDE_SHARE` of the lane that v is in. They are
  computed before the cut and their results carried along.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

SIDE_SHARE = 1 / 8
"""Largest weight of side branches that end in outputs, over the weight of what runs beside them."""


@dataclass(frozen=True)
class Cut:
    """The cut behind ``node``; ``before`` holds bit n for every node n before it."""

    node: int
    before: int


def bits(mask: int) -> Iterator[int]:
    """Numbers of the set bits, ascending."""
    while mask:
        lowest = mask & -mask
        yield lowest.bit_length() - 1
        mask ^= lowest


def cut_points(
    operands: Sequence[Sequence[int]],
    weights: Sequence[float],
    crossing_bytes: Callable[[int], int],
) -> tuple[Cut, ...]:
    """The cuts of a graph, each set before a cut containing the one of the cut in front.

    ``operands[n]`` are the nodes that node n reads, all below n; ``weights[n]`` is its work.
    Between two cuts, before the first and behind the last there is always work: of cuts with no
    work between them the one with the fewest ``crossing_bytes(before)`` stays (ties: the first).
    """
    relations = _Relations(operands, weights)
    allowed = [node for node in range(len(operands)) if relations.allows_cut(node)]
    chain = [Cut(node, relations.before(node)) for node in relations.longest_chain(allowed)]
    total = sum(weights)
    best: dict[float, tuple[int, Cut]] = {}
    for cut in chain:
        work = relations.work(cut.before)
        if not 0 < work < total:
            continue
        cost = crossing_bytes(cut.before)
        if work not in best or cost < best[work][0]:
            best[work] = (cost, cut)
    return tuple(best[work][1] for work in sorted(best))


class _Relations:
    """Ancestors, descendants and parallel nodes as bit masks."""

    def __init__(self, operands: Sequence[Sequence[int]], weights: Sequence[float]) -> None:
        count = len(operands)
        self.everything = (1 << count) - 1
        self.weights = weights
        self.readers = [0] * count
        self.ancestors = [0] * count
        self.descendants = [0] * count
        for node, reads in enumerate(operands):
            for operand in reads:
                self.readers[operand] |= 1 << node
                self.ancestors[node] |= self.ancestors[operand] | 1 << operand
        for node in reversed(range(count)):
            for reader in bits(self.readers[node]):
                self.descendants[node] |= self.descendants[reader] | 1 << reader

    def work(self, mask: int) -> float:
        return sum(self.weights[node] for node in bits(mask))

    def before(self, node: int) -> int:
        return self.everything & ~self.descendants[node]

    def parallel(self, node: int) -> int:
        return self.everything & ~(self.ancestors[node] | self.descendants[node] | 1 << node)

    def allows_cut(self, node: int) -> bool:
        side = self.parallel(node)
        if not self.work(side):
            return True
        lane = 0
        for other in bits(side):
            lane |= self.parallel(other)
        lane &= ~side
        joins = 0
        for other in bits(side):
            joins |= self.descendants[other] & self.descendants[node]
        return not self.work(joins) and self.work(side) <= SIDE_SHARE * self.work(lane)

    def longest_chain(self, nodes: Sequence[int]) -> list[int]:
        """The most nodes with work, then the most nodes, each a descendant of the one before."""
        best: dict[int, tuple[int, int]] = {}
        previous: dict[int, int | None] = {}
        for node in nodes:
            reached, start = (0, 0), None
            for earlier in nodes:
                if earlier >= node:
                    break
                if self.descendants[earlier] >> node & 1 and best[earlier] > reached:
                    reached, start = best[earlier], earlier
            best[node] = (reached[0] + (self.weights[node] > 0), reached[1] + 1)
            previous[node] = start
        chain: list[int] = []
        last = max(nodes, key=lambda node: (best[node], -node), default=None)
        while last is not None:
            chain.append(last)
            last = previous[last]
        return chain[::-1]
