"""What keeps a network from the peak of its MACs."""

from __future__ import annotations

from dataclasses import dataclass

from studies.snowflake.measuring import LayerCost, Measured


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


@dataclass(frozen=True)
class Excess:
    """Cycles that a run takes beyond the bound of its layers, one after another, in this order:
    ``lanes``, what traces take beyond their products at the peak (mean over the clusters);
    ``uneven``, what those of the slowest cluster take beyond the mean; ``again``, what the memory
    is busy beyond the longer of both, since halos, maps or kernels come more than once; ``ends``,
    all other time, in which the first maps of a layer come, its last results leave and barriers
    are waited for. A layer and one that runs beside it count as one, which can take less time than
    the bounds of both."""

    layers: int
    bound_cycles: float
    lanes: float
    uneven: float
    again: float
    ends: float

    @property
    def with_transfers_cycles(self) -> float:
        """What no order of these loads, sums and stores passes while layers run one after the
        other."""
        return self.bound_cycles + self.lanes + self.uneven + self.again


def excess_of(one: Measured) -> Excess:
    """Of the counted layers."""
    groups: list[list[LayerCost]] = []
    for layer in one.counted:
        if layer.is_beside and groups:
            groups[-1].append(layer)
        else:
            groups.append([layer])
    lanes = uneven = again = 0.0
    for group in groups:
        bound = sum(layer.bound_cycles for layer in group)
        traces = max(bound, sum(layer.mac_cycles for layer in group))
        slowest = max(traces, sum(layer.slowest_mac_cycles for layer in group))
        moves = max(slowest, sum(layer.memory_cycles for layer in group))
        lanes += traces - bound
        uneven += slowest - traces
        again += moves - slowest
    bound = one.bound_cycles
    ends = one.cycles - bound - lanes - uneven - again
    return Excess(len(groups), bound, lanes, uneven, again, ends)
