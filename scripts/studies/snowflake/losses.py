"""What keeps a network from the peak of its MACs."""

from __future__ import annotations

from dataclasses import dataclass

from studies.snowflake.measuring import LayerCost, Measured


@dataclass(frozen=True)
class Losses:
    """Shares of a run's time in which MACs do nothing useful; with the efficiency they add up to 1.

    ``pools``: in layers that multiply nothing (pools, additions, copies). In the others: ``lanes``,
    MACs that work on what no result needs, since planes or filters do not fill them; ``memory``, no
    trace runs while the memory moves words; ``short_traces``, no trace runs and the memory does not
    work: traces end before the control core has issued the next ones, or results, syncs and
    latencies are waited for.
    """

    pools: float
    lanes: float
    memory: float
    short_traces: float

    @property
    def largest(self) -> str:
        """What binds."""
        return max(vars(self), key=lambda name: float(vars(self)[name])).replace("_", " ")


def losses_of(one: Measured) -> Losses | None:
    """Of the counted layers; None where no events were recorded."""
    layers = [layer for layer in one.counted if layer.macs]
    if any(layer.idle is None for layer in layers) or not layers:
        return None
    pools = sum(layer.cycles for layer in one.counted if not layer.macs) + one.rest_cycles
    memory = sum(layer.idle.memory_cycles for layer in layers if layer.idle)
    short = sum(layer.idle.other_cycles for layer in layers if layer.idle)
    lanes = sum(_lanes(layer, one) for layer in layers)
    whole = one.cycles
    return Losses(pools / whole, lanes / whole, memory / whole, short / whole)


def _lanes(layer: LayerCost, one: Measured) -> float:
    """Cycles of traces beyond those at the peak."""
    assert layer.idle is not None
    busy = layer.cycles - layer.idle.memory_cycles - layer.idle.other_cycles
    return busy - layer.macs / one.macs_per_cycle
