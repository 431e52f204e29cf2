"""Stores and residuals that run in a step of the TLT's own (`plan.spread`).

A tile that waits to be stored is remembered by its place in the loops.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from tvm_npu.codegen.nmp.emit.commands import Assign, Nodes, when
from tvm_npu.codegen.nmp.emit.conventions import PENDING_STORES, wait_store
from tvm_npu.codegen.nmp.emit.expressions import Expression, Variable
from tvm_npu.codegen.nmp.emit.liveness import most_live
from tvm_npu.codegen.nmp.emit.parameters import LayerParameters
from tvm_npu.codegen.nmp.emit.steps import Step, Steps
from tvm_npu.codegen.nmp.plan.spread import own_step, spreads


@dataclass(frozen=True)
class Spread:
    """``channel`` is that at which this TLT's own step begins."""

    steps: Steps
    channel: Expression

    def in_own_step(self, step: Step, nodes: Nodes) -> Nodes:
        return when(step.n - self.channel, "==", nodes)

    def open(self, step: Step) -> Nodes:
        """In front of the loops, whose indices ``step`` names: no tile waits."""
        pairs = self._remembered(step)[0]
        return tuple(
            Assign(variable, Expression(constant=variable.low)) for variable, _ in pairs
        )

    def keep(self, step: Step) -> Nodes:
        """The tile of ``step`` waits to be stored."""
        return tuple(Assign(variable, value) for variable, value in self._remembered(step)[0])

    def store(self, step: Step, store: Callable[[Step], Nodes]) -> Nodes:
        """``store`` of the tile that waits, if one does."""
        pairs, place = self._remembered(step)
        if not pairs:
            return ()
        make, kept = self.steps.at(place, "stored")
        count = Assign(PENDING_STORES, Expression.of(PENDING_STORES) + 1)
        flag = pairs[0][0]
        nodes = (*make, *store(kept), count, Assign(flag, Expression(constant=flag.low)))
        return when(Expression.of(flag) + 1, ">", nodes)

    def await_stores(self) -> Nodes:
        """MB2 may be overwritten: all stores that were asked for are complete."""
        return (*wait_store(), Assign(PENDING_STORES, Expression()))

    def has_several_places(self, step: Step) -> bool:
        return bool(self._remembered(step)[0])

    def _remembered(self, step: Step) -> tuple[list[tuple[Variable, Expression]], Step]:
        """Variables for the place of ``step`` with their values, and the place in them. The first
        is negative where no tile waits."""
        pairs: list[tuple[Variable, Expression]] = []
        values: dict[str, Expression] = {}
        for name in ("m", "r", "c"):
            value = getattr(step, name)
            if not value.is_constant:
                low = value.low if pairs else -value.multiple
                copy = Variable(f"stored_{name}", low, value.high, value.multiple)
                pairs.append((copy, value))
                values[name] = Expression.of(copy)
        return pairs, replace(step, **values)


MOST_LIVE = 22
"""Values that a layer's tree may keep in registers where TLTs have own steps; the lowering has
some more, and takes what is left for sums and products."""


def with_own_steps(
    steps: Steps, parameters: LayerParameters, emit: Callable[[Spread | None], Nodes]
) -> Nodes:
    """What ``emit`` makes with own steps, or without where all TLTs store and load at once: plans
    with few steps, and trees that would need too many registers. Adds a word to ``parameters``."""
    tiles, tlts = steps.tiles, steps.tiles.shares.tlts
    tile = tiles.largest[1]
    number = -(-tiles.channels // tile)
    if not spreads(tiles.plan.buffers, number):
        return emit(None)
    channels = [
        own_step(core % tlts, tlts, number) * tile for core in range(len(tiles.shares.cores))
    ]
    words = len(parameters.variables)
    nodes = emit(Spread(steps, parameters.number("own_channel", channels)))
    if most_live(nodes, frozenset(parameters.variables)) <= MOST_LIVE:
        return nodes
    del parameters.variables[words:], parameters.words[words:]
    return emit(None)
