"""What keeps a network from the peak of its MACs."""

from __future__ import annotations

from dataclasses import dataclass

from studies.snowflake.measuring import Measured


@dataclass(frozen=True)
class Losses:
    """Shares of a run's time in which MACs do nothing useful; with the efficiency they add up to 1.

    ``pools``: no trace runs, in layers that multiply nothing (pools, additions, copies). In the
    others: ``memory``, no trace runs while the memory moves words; ``short_traces``, no trace runs
    and the memory does not work: traces end before the control core has issued the next ones, or
    results, syncs and latencies are waited for. ``lanes``: traces run with MACs whose sums no
    result needs, since planes or filters do not fill them.
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
    """Of the counted layers; None where no events were recorded. Layers overlap a little: traces
    that run before the layer in front has ended are no loss of that one."""
    idle = [(layer, layer.idle) for layer in one.counted if layer.idle is not None]
    if len(idle) != len(one.counted) or not one.expected_cycles:
        return None
    pools = sum(of.memory_cycles + of.other_cycles for layer, of in idle if not layer.macs)
    memory = sum(of.memory_cycles for layer, of in idle if layer.macs)
    short = sum(of.other_cycles for layer, of in idle if layer.macs)
    traces = one.cycles - one.rest_cycles - pools - memory - short
    found = (pools + one.rest_cycles, traces - one.expected_cycles, memory, short)
    return Losses(*(cycles / one.cycles for cycles in found))
