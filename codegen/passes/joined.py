"""Layers that can run as one, and which of them do so that the whole graph is fastest."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from tvm_npu.codegen.graph import FixedGraph, FixedLayer


@dataclass(frozen=True)
class Joined:
    """``layer`` does what the layers of the graph that make the tensors ``members`` do one after
    the other: each reads what the one before it makes, and nobody else does."""

    layer: FixedLayer
    members: tuple[str, ...]


def with_joined(
    fixed: FixedGraph, candidates: Sequence[Joined], cycles: Callable[[FixedLayer], float]
) -> FixedGraph:
    """The graph in the layers of least total ``cycles``, where each of ``candidates`` may stand in
    the place of its last member. Ties go to fewer members.

    As nobody else reads what lies between members, all members of all candidates are runs of
    disjoint paths, and dynamic programming along the layers (which are in order) is exact: the
    least time up to a layer is that up to the first member of whatever ends with it, and that.
    """
    ending: dict[str, list[Joined]] = {}
    before: dict[str, str] = {}
    for one in sorted(candidates, key=lambda one: len(one.members)):
        ending.setdefault(one.members[-1], []).append(one)
        before.update(zip(one.members[1:], one.members, strict=False))
    on_paths = {tensor for one in candidates for tensor in one.members}
    best: dict[str, float] = {}
    chosen: dict[str, Joined] = {}
    for layer in fixed.layers:
        made = layer.outputs[0]
        if made not in on_paths:
            continue
        for one in (Joined(layer, (made,)), *ending.get(made, ())):
            front = before.get(one.members[0])
            total = cycles(one.layer) + (0.0 if front is None else best[front])
            if made not in best or total < best[made]:
                best[made], chosen[made] = total, one
    inner = set(before.values())
    taken: dict[str, FixedLayer] = {}
    gone: set[str] = set()
    for end in (made for made in best if made not in inner):
        at: str | None = end
        while at is not None:
            one = chosen[at]
            taken[at] = one.layer
            gone.update(one.members[:-1])
            at = before.get(one.members[0])
    kept = [layer for layer in fixed.layers if layer.outputs[0] not in gone]
    layers = tuple(taken.get(layer.outputs[0], layer) for layer in kept)
    return replace(fixed, layers=layers)
