"""Which layers of an int8 region compute in int16: those that keep a stated loss at the least time.

The layers of the least cost whose parts in the loss are enough are found as an integer program
(`codegen.int16_costs` has both). Where all layers in int16 are predicted to take less time, all
are.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from tvm_npu.codegen.compile import CompileOptions
from tvm_npu.codegen.graph import Graph
from tvm_npu.codegen.int16_costs import Int16Region, Layers, Sample, Together, joined
from tvm_npu.codegen.passes.calibrate import Ranges
from tvm_npu.sim.description import MachineDescription

STEPS, STEPS_PER_HALF = 320, 16
"""The parts of the layers that stay int8 are tried from all of them down to 2^-20, so many tries
from one half to the next."""


@dataclass(frozen=True)
class Choice:
    """The names of the layers; the loss with them and without any, and the predicted cycles of
    both."""

    layers: Layers
    loss: float
    int8_loss: float
    cycles: float
    int8_cycles: float


def choose_int16_layers(
    graph: Graph,
    ranges: Ranges,
    machine: MachineDescription,
    options: CompileOptions,
    sample: Sample,
    max_loss: float,
) -> Choice:
    """The layers of a region's float ``graph``, beside those that ``options`` name; ``sample`` has
    float32 [B, *shape] by input name. All layers where nothing less keeps the loss.

    Raises as `compile_graph`.
    """
    region = Int16Region(graph, ranges, machine, replace(options, precision="int8"), sample)
    none = region.options.int16_layers
    if region.loss(none) <= max_loss:
        return _choice(region, none)
    choices = region.choices()
    if not choices:
        return _choice(region, none)
    singles = [one for one in choices if len(one.layers) == 1]
    everything = joined(none, tuple(name for one in singles for name in one.layers))

    def enough(step: int) -> Layers:
        found = _cheapest(choices, 1 - 2 ** (-step / STEPS_PER_HALF))
        return everything if found is None else joined(none, found)

    first = bisect_left(range(STEPS), -max_loss, key=lambda step: -region.loss(enough(step)))
    found = [everything] if first == STEPS else [enough(first), everything]
    kept = [_without_needless(region, layers, singles, max_loss) for layers in found]
    return _choice(region, min(kept, key=region.cycles))


def _cheapest(choices: Sequence[Together], share: float) -> Layers | None:
    """The layers of the least cost that have such a share of all parts, one choice a run at most;
    None where rounding leaves no such layers."""
    from scipy.optimize import LinearConstraint, milp  # slow to import, and few need it

    runs = sorted({one.run for one in choices})
    in_run = np.array([[one.run == run for one in choices] for run in runs], dtype=float)
    part, cost = (np.array([getattr(one, key) for one in choices]) for key in ("part", "cost"))
    total = sum(one.part for one in choices if len(one.layers) == 1) or 1.0
    limits = [LinearConstraint(in_run, ub=1), LinearConstraint(part / total, lb=share)]
    cost /= np.abs(cost).max() or 1
    found = milp(cost, integrality=np.ones(len(cost)), bounds=(0, 1), constraints=limits)
    if found.x is None:
        return None
    taken = (one for one, amount in zip(choices, found.x, strict=True) if amount > 0.5)
    return tuple(name for one in taken for name in one.layers)


def _without_needless(
    region: Int16Region, layers: Layers, singles: Sequence[Together], max_loss: float
) -> Layers:
    """``layers`` without those that cost time and are not needed to keep the loss, the dearest
    first; those are not tried whose part is more than twice what may be lost yet."""
    for one in sorted(singles, key=lambda one: one.cost, reverse=True):
        rest = tuple(name for name in layers if name not in one.layers)
        if rest == layers or one.part > 2 * (max_loss - region.loss(layers)):
            continue
        if region.cycles(rest) < region.cycles(layers) and region.loss(rest) <= max_loss:
            layers = rest
    return layers


def _choice(region: Int16Region, layers: Layers) -> Choice:
    none = region.options.int16_layers
    return Choice(
        layers, region.loss(layers), region.loss(none), region.cycles(layers), region.cycles(none)
    )
