"""Cuts of a chain in the order of their coefficient of variation, one by one."""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterator, Sequence
from fractions import Fraction


def coefficient_of_variation(weights: Sequence[float], stages: Sequence[int]) -> float:
    """Pipe-Search, Equation 3: standard deviation of the stages' weights over their mean."""
    sums = []
    first = 0
    for layers in stages:
        sums.append(math.fsum(weights[first : first + layers]))
        first += layers
    mean = math.fsum(sums) / len(sums)
    if mean == 0:
        return 0.0
    return math.sqrt(math.fsum((one - mean) ** 2 for one in sums) / len(sums)) / mean


def balanced_cuts(weights: Sequence[float], stages: int) -> Iterator[tuple[int, ...]]:
    """All cuts into ``stages`` stages, the most even first, equal ones by fewer layers in front.

    For a given number of stages the mean is the same for all cuts, so that their order is that of
    the sum of squared stage weights: paths of ``stages`` edges from the first layer to the last,
    in the order of their length. They come from a best-first search whose estimate of the rest is
    exact (dynamic programming from the end), so that memory grows with the number of cuts that
    were asked for, not with the space. Sums are exact: equal cuts are equal.
    """
    layers = len(weights)
    if not 1 <= stages <= layers:
        return
    exact = [Fraction(weight) for weight in weights]
    scale = math.lcm(*(one.denominator for one in exact))
    prefix = [0]
    for one in exact:
        prefix.append(prefix[-1] + int(one * scale))
    # rest[n][i]: least sum of squares of layers from i on in n stages.
    rest: list[list[int | None]] = [[None] * layers + [0]]
    for count in range(1, stages + 1):
        row: list[int | None] = [None] * (layers + 1)
        for first in range(layers - count, -1, -1):
            row[first] = min(
                (prefix[end] - prefix[first]) ** 2 + after
                for end in range(first + 1, layers - count + 2)
                if (after := rest[-1][end]) is not None
            )
        rest.append(row)
    start = rest[stages][0]
    if start is None:
        return
    # (estimate of the whole path, edges so far, squares so far)
    queue: list[tuple[int, tuple[int, ...], int]] = [(start, (0,), 0)]
    while queue:
        _, edges, squares = heapq.heappop(queue)
        left = stages - len(edges) + 1
        if left == 0:
            yield tuple(b - a for a, b in zip(edges, edges[1:], strict=False))
            continue
        first = edges[-1]
        for end in range(first + 1, layers + 1):
            after = rest[left - 1][end]
            if after is not None:
                so_far = squares + (prefix[end] - prefix[first]) ** 2
                heapq.heappush(queue, (so_far + after, (*edges, end), so_far))
