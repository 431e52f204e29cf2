"""Regions on a simulated Snowflake machine: what a run cost, layer by layer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

import numpy as np

from studies.shared.counting import least_bytes
from studies.shared.networks import Region
from studies.snowflake.idle import Idle, idle_by_layer
from tvm_npu.codegen.backend import PlannedGraph
from tvm_npu.codegen.compile import Generated, plan_graph
from tvm_npu.codegen.graph_bound import parts_of, useful_macs
from tvm_npu.codegen.plan import NO_LIMITS, Planner
from tvm_npu.codegen.plan.layers import LayerPlanner
from tvm_npu.codegen.plan.problem import ConvProblem
from tvm_npu.codegen.program.format import LayerEntry
from tvm_npu.codegen.snowflake.emit.region import Passes, SnowflakeRegion
from tvm_npu.codegen.snowflake.plan.beside import runs_beside
from tvm_npu.codegen.snowflake.plan.exact import Proof, plan_with_proof
from tvm_npu.runtime.session import Session
from tvm_npu.sim.events import EventLog
from tvm_npu.sim.snowflake.isa import WORD_BYTES
from tvm_npu.sim.snowflake.machine import SnowflakeMachine
from tvm_npu.sim.snowflake.simulator import SnowflakeSimulator
from tvm_npu.sim.snowflake.statistics import TraceProfile
from tvm_npu.sim.statistics import LayerStatistics

ALL_PASSES = Passes()
LINEAR = "dense"
"""The kind of layer that the paper's times leave out."""


@dataclass(frozen=True)
class LayerCost:
    """One layer that was executed. ``macs`` are products that are none with padding, ``bound`` and
    ``least_bytes`` what every plan needs: cycles at the peaks of MACs and memory, bytes when every
    tensor moves once. ``mac_cycles`` is the time of the traces, mean over the clusters, and
    ``slowest_mac_cycles`` that of the one with most; ``memory_cycles`` the memory's. ``is_beside``:
    it runs between the steps of the layer before. ``idle`` is known where events were recorded."""

    name: str
    kind: str
    macs: int
    least_bytes: int
    bound_cycles: float
    cycles: float
    predicted_cycles: float | None
    moved_bytes: int
    mac_cycles: float
    slowest_mac_cycles: float
    memory_cycles: float
    is_beside: bool
    profile: TraceProfile
    idle: Idle | None


@dataclass(frozen=True)
class Proven:
    """Of ``convolutions`` (fully connected layers are some) those whose plan is ``proven`` to have
    the least predicted time; layers that were joined with maxima are none."""

    proven: int
    convolutions: int


@dataclass(frozen=True)
class Measured:
    """Regions that run one after another, each once. ``rest_cycles`` and ``rest_bytes`` belong to
    no layer; ``proven`` is known of plans that are to be."""

    bits_off: int
    hazards: int
    frequency_mhz: float
    macs_per_cycle: float
    layers: tuple[LayerCost, ...]
    rest_cycles: float
    rest_bytes: int
    proven: Proven | None = None

    def milliseconds(self, cycles: float) -> float:
        return cycles / self.frequency_mhz / 1000

    @property
    def counted(self) -> tuple[LayerCost, ...]:
        """Layers without linear ones; all where there is no other."""
        found = tuple(one for one in self.layers if one.kind != LINEAR)
        return found if any(one.macs for one in found) else self.layers

    @property
    def cycles(self) -> float:
        """Of the counted layers."""
        return self.rest_cycles + sum(one.cycles for one in self.counted)

    @property
    def simulated_ms(self) -> float:
        return self.milliseconds(self.cycles)

    @property
    def predicted_ms(self) -> float | None:
        """What the planner promised for the counted layers that it predicts."""
        promised = [one.predicted_cycles for one in self.counted]
        known = [cycles for cycles in promised if cycles is not None]
        return self.milliseconds(sum(known)) if known else None

    @property
    def expected_cycles(self) -> float:
        """At the peak of the MACs (equation 2)."""
        return sum(one.macs for one in self.counted) / self.macs_per_cycle

    @property
    def efficiency(self) -> float | None:
        """None where nothing multiplies."""
        return self.expected_cycles / self.cycles if self.expected_cycles else None

    @property
    def bound(self) -> float:
        """The efficiency of a machine that does every layer at the peak of its MACs or of its
        memory, whichever takes longer, and moves every tensor once a layer."""
        return self.expected_cycles / self.bound_cycles

    @property
    def bound_cycles(self) -> float:
        return sum(one.bound_cycles for one in self.counted)

    @property
    def moved_bytes(self) -> int:
        return self.rest_bytes + sum(one.moved_bytes for one in self.counted)

    def gb_per_s(self, cycles: float) -> float:
        """Of the bytes that move, in so many cycles."""
        return self.moved_bytes * self.frequency_mhz / cycles / 1000


@dataclass(frozen=True)
class Missing:
    """What could not be compiled, and why."""

    reason: str


def planned(
    regions: Sequence[Region], machine: SnowflakeMachine, planner: Planner
) -> tuple[PlannedGraph, ...]:
    """The plans of all regions, from which code can be made with any passes. Raises what
    `plan_graph` raises."""
    return tuple(
        plan_graph(
            region.fixed, LayerPlanner(region.fixed.precision, machine, planner, NO_LIMITS)
        )
        for region in regions
    )


def proven(plans: Sequence[PlannedGraph], machine: SnowflakeMachine) -> Proven:
    """How many plans meet the bound of `exact`'s proof."""
    asked = [
        (one.problem, one.plan) for plan in plans for one in plan.layers
        if isinstance(one.problem, ConvProblem)
    ]  # fmt: skip
    bounds = {
        problem: found.bound_cycles
        for problem in dict.fromkeys(problem for problem, _ in asked)
        if isinstance(found := plan_with_proof(problem, machine), Proof)
    }
    met = sum(plan.prediction.cycles <= bounds[problem] for problem, plan in asked)
    return Proven(met, len(asked))


def measure(
    regions: Sequence[Region], plans: Sequence[PlannedGraph], machine: SnowflakeMachine,
    passes: Passes = ALL_PASSES, *, with_idle: bool = False,
) -> Measured:  # fmt: skip
    """Makes code and simulates. Raises what emitting and `Session` raise."""
    found = [
        _region(region, plan, machine, passes, with_idle)
        for region, plan in zip(regions, plans, strict=True)
    ]
    return Measured(
        sum(one.bits_off for one in found), sum(one.hazards for one in found),
        machine.frequency_mhz, found[0].macs_per_cycle,
        tuple(layer for one in found for layer in one.layers),
        sum(one.rest_cycles for one in found), sum(one.rest_bytes for one in found),
    )  # fmt: skip


def _region(
    region: Region, plan: PlannedGraph, machine: SnowflakeMachine, passes: Passes, with_idle: bool
) -> Measured:
    program = Generated(plan, SnowflakeRegion(plan, machine, passes)).program()
    session = Session(program)
    log = EventLog()
    outputs = session.run_fixed(region.inputs, events=log if with_idle else None)
    run, device = session.statistics, session.devices[0]
    assert run is not None and isinstance(device, SnowflakeSimulator)
    ends = list(accumulate(layer.cycles for layer in run.layers))
    idle = idle_by_layer(log.runs[0], ends) if with_idle else [None] * len(ends)
    peak = machine.macs_per_cycle(WORD_BYTES) * machine.core_count
    shapes = plan.storage.shapes
    layers = []
    for number, one in enumerate(plan.layers):
        macs = useful_macs(one.layer, shapes)
        bytes_of = [(part, least_bytes(part, shapes)) for part in parts_of(one.layer)]
        least = sum(size for _, size in bytes_of)
        bound = sum(
            max(useful_macs(part, shapes) / peak, size / machine.memory_bytes_per_cycle)
            for part, size in bytes_of
        )
        layers.append(
            _layer(
                program.layers[number], run.layers[number], device.profile[number], idle[number],
                macs, least, bound, runs_beside(one.plan),
            )
        )  # fmt: skip
    return Measured(
        sum(int(np.count_nonzero(a != b)) for a, b in zip(outputs, region.expected, strict=True)),
        len(device.hazards), machine.frequency_mhz, peak, tuple(layers),
        run.cycles - ends[-1], run.moved_bytes - sum(layer.moved_bytes for layer in run.layers),
    )  # fmt: skip


def _layer(
    entry: LayerEntry, layer: LayerStatistics, profile: TraceProfile, idle: Idle | None,
    macs: int, least: int, bound_cycles: float, is_beside: bool,
) -> LayerCost:  # fmt: skip
    traces = [unit.busy_cycles for unit in layer.units if unit.name.split()[0] == "mac"]
    memory = sum(unit.busy_cycles for unit in layer.units if unit.name == "memory")
    return LayerCost(
        entry.name, entry.kind, macs, least, bound_cycles, layer.cycles,
        entry.predicted_cycles, layer.moved_bytes, sum(traces) / len(traces), max(traces),
        memory, is_beside, profile, idle,
    )  # fmt: skip
