"""How long variables of a command tree need registers, and which parameters deserve one.

A variable is needed from a command that gives it a value to the last one that may read this value.
(One that a loop carries to its next turn has its first value in front of the loop.)
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Set

from tvm_npu.codegen.nmp.emit.commands import (
    Assign,
    If,
    Loop,
    Minimum,
    Node,
    Nodes,
    Product,
    assigned,
    operands,
    walk,
)
from tvm_npu.codegen.nmp.emit.expressions import Variable

LOOP_TURNS = 8
"""What a loop is assumed to turn when uses of a variable are counted."""

Variables = frozenset[Variable]


def mentioned(node: Node) -> Variables:
    """All variables that a command or its body reads or changes."""
    found = set(assigned((node,)))
    for inner in walk((node,)):
        for value in operands(inner):
            found |= value.variables
    return frozenset(found)


def with_needed(nodes: Nodes, later: Set[Variable]) -> Iterator[tuple[Node, Variables, Variables]]:
    """Each command with the variables whose values commands behind it read (``later``: behind the
    sequence), and those that it or its body names and whose values none reads any more."""
    behind = [frozenset(later)]
    for node in reversed(nodes[1:]):
        reads, sets = _reads_and_sets(node)
        behind.append(reads | (behind[-1] - sets))
    for node, needed in zip(nodes, reversed(behind), strict=False):
        yield node, needed, mentioned(node) - needed


def _reads_and_sets(node: Node) -> tuple[Variables, Variables]:
    """The variables whose values in front of ``node`` it may read, and those that it gives new
    values in any case."""
    own = frozenset(variable for value in operands(node) for variable in value.variables)
    if isinstance(node, Assign | Minimum | Product):
        return own, frozenset((node.variable,))
    if isinstance(node, If):
        sides = [_all_reads_and_sets(side) for side in (node.then, node.otherwise)]
        return own | sides[0][0] | sides[1][0], sides[0][1] & sides[1][1]
    if isinstance(node, Loop):  # of one turn at least
        made = {node.index} if node.extent is None else {node.index, node.extent}
        reads, sets = _all_reads_and_sets(node.body)
        return own | (reads - made), sets
    return own, frozenset()


def _all_reads_and_sets(nodes: Nodes) -> tuple[Variables, Variables]:
    reads, sets = frozenset[Variable](), frozenset[Variable]()
    for node in reversed(nodes):
        own, made = _reads_and_sets(node)
        reads, sets = own | (reads - made), sets | made
    return reads, sets


def most_live(nodes: Nodes, bound: Set[Variable], later: Set[Variable] = frozenset()) -> int:
    """The most variables that need registers at one time, those in ``bound`` not counted."""
    live: set[Variable] = set()
    most = 0
    for node, needed, ended in with_needed(nodes, later):
        inner = 0
        known = frozenset(bound) | live
        if isinstance(node, Loop):
            own = {node.index} if node.extent is None else {node.index, node.extent}
            inner = len(own) + most_live(node.body, known | own, needed)
        elif isinstance(node, If):
            sides = (node.then, node.otherwise)
            inner = max(most_live(side, known, needed) for side in sides)
        made = assigned((node,)) - known
        most = max(most, len(live) + inner, len(live | made) if inner == 0 else 0)
        live |= made & needed
        live -= ended
    return most


def most_used(parameters: tuple[Variable, ...], nodes: Nodes, room: int) -> set[Variable]:
    """The ``room`` parameters that are read most often, by depth in loops."""
    if len(parameters) <= room:
        return set(parameters)
    uses = uses_of(nodes)
    ranked = sorted(parameters, key=lambda v: (-uses[v], parameters.index(v)))
    return set(ranked[: max(0, room)])


def uses_of(nodes: Nodes) -> Counter[Variable]:
    """How often commands read each variable, by depth in loops."""
    uses: Counter[Variable] = Counter()
    _count_uses(nodes, 1, uses)
    return uses


def _count_uses(nodes: Nodes, weight: int, uses: Counter[Variable]) -> None:
    for node in nodes:
        for value in operands(node):
            for variable in value.variables:
                uses[variable] += weight
        if isinstance(node, Loop):
            _count_uses(node.body, weight * LOOP_TURNS, uses)
        elif isinstance(node, If):
            _count_uses(node.then, weight, uses)
            _count_uses(node.otherwise, weight, uses)
