"""Which operators go into which region: merging on a directed acyclic graph, free of TVM types."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Sequence


def merge_regions(
    operands: Sequence[Sequence[int]],
    supported: Sequence[bool],
    together: Iterable[Sequence[int]] = (),
) -> tuple[tuple[int, ...], ...]:
    """Groups of supported nodes, as large as the graph allows. Those of ``together`` are in one
    group each, whatever lies between them; no path may leave such a group and come back.

    ``operands[n]`` are the nodes that node n reads, all below n. Two groups that share an edge
    become one unless a path leaves the first and comes back into the second through a third:
    then the merged group would wait for itself. Groups and their members come in ascending
    order; contracting all of them leaves an acyclic graph.
    """
    count = len(operands)
    group = list(range(count))
    members: dict[int, set[int]] = {node: {node} for node in range(count)}
    feeds: dict[int, set[int]] = {node: set() for node in range(count)}
    reads_from: dict[int, set[int]] = {node: set(operands[node]) for node in range(count)}
    for node, reads in enumerate(operands):
        for operand in reads:
            feeds[operand].add(node)

    def detour(start: int, end: int) -> bool:
        """Is there a path from start to end through another group?"""
        todo = list(feeds[start] - {end})
        seen = set(todo)
        while todo:
            for following in feeds[todo.pop()]:
                if following == end:
                    return True
                if following not in seen:
                    seen.add(following)
                    todo.append(following)
        return False

    def absorb(first: int, second: int) -> None:
        for member in members[second]:
            group[member] = first
        members[first] |= members.pop(second)
        for links, back in ((feeds, reads_from), (reads_from, feeds)):
            for other in links.pop(second):
                back[other].discard(second)
                if other != first:
                    back[other].add(first)
                    links[first].add(other)
            links[first].discard(second)

    for first, *others in together:
        for other in others:
            absorb(first, other)
    changed = True
    while changed:
        changed = False
        for node, reads in enumerate(operands):
            for operand in sorted(set(reads)):
                first, second = group[operand], group[node]
                if first == second or not (supported[operand] and supported[node]):
                    continue
                if not detour(first, second):
                    absorb(first, second)
                    changed = True
    found = {group[node] for node in range(len(operands)) if supported[node]}
    return tuple(sorted(tuple(sorted(members[which])) for which in found))


def execution_order(
    operands: Sequence[Sequence[int]], groups: Iterable[Sequence[int]]
) -> tuple[tuple[int, ...], ...]:
    """All nodes, each group in one piece, operands first; ties go to the lowest node."""
    pieces: list[tuple[int, ...]] = [tuple(group) for group in groups]
    grouped = {node for piece in pieces for node in piece}
    pieces += [(node,) for node in range(len(operands)) if node not in grouped]
    piece_of = {node: index for index, piece in enumerate(pieces) for node in piece}
    waits: list[set[int]] = [
        {piece_of[operand] for node in piece for operand in operands[node]} - {index}
        for index, piece in enumerate(pieces)
    ]
    frees: list[list[int]] = [[] for _ in pieces]
    for index, needed in enumerate(waits):
        for before in needed:
            frees[before].append(index)
    ready = [(pieces[index][0], index) for index, needed in enumerate(waits) if not needed]
    heapq.heapify(ready)
    order: list[tuple[int, ...]] = []
    missing = [len(needed) for needed in waits]
    while ready:
        _, index = heapq.heappop(ready)
        order.append(pieces[index])
        for following in frees[index]:
            missing[following] -= 1
            if missing[following] == 0:
                heapq.heappush(ready, (pieces[following][0], following))
    if len(order) != len(pieces):
        raise ValueError(f"{len(pieces) - len(order)} groups wait for each other")
    return tuple(order)
