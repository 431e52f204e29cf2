"""NMPs as a kind of machine to generate code for: what `tvm_npu.codegen.backends` knows of them.

Planners, emitters and spaces are imported when they are asked for.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from tvm_npu.codegen.backend import Backend, Emitted, PlannedGraph, PlannerFactory
from tvm_npu.codegen.plan.limits import NO_LIMITS, TileLimits

if TYPE_CHECKING:
    from tvm_npu.codegen.graph import FixedGraph, FixedLayer, Shape
    from tvm_npu.codegen.graph_bound import GraphBound
    from tvm_npu.codegen.least import LeastNeeds
    from tvm_npu.codegen.nmp.plan.conv_plan import ConvPlan
    from tvm_npu.codegen.plan.faults import PlanFault
    from tvm_npu.codegen.plan.layers import LayerPlanner, PlannedLayer
    from tvm_npu.codegen.plan.loops.plan import Step
    from tvm_npu.codegen.plan.loops.questions import (
        LoopPlanner,
        LoopPlannerFactory,
        LoopQuestion,
    )
    from tvm_npu.codegen.plan.planner import Planner
    from tvm_npu.codegen.plan.problem import ConvProblem, Infeasible, Prediction
    from tvm_npu.codegen.tune.space import Space
    from tvm_npu.sim.machine_parts import Precision
    from tvm_npu.sim.nmp.machine import NmpMachine

WARM_PLANS = 4
"""Of the analytic model, with which a warm run of a tuner begins; `tso`'s plan follows."""


def _tso(name: str, limits: TileLimits) -> Planner:
    from tvm_npu.codegen.nmp.plan.tso import tso_planner

    return tso_planner(name, limits)


def _exact(name: str, limits: TileLimits) -> Planner:
    from tvm_npu.codegen.nmp.plan.exact import ExactPlanner

    return ExactPlanner(
        limits, name, uses_ring=name != "exact-dma", cascades=name != "exact-layers"
    )


def _traffic(name: str, limits: TileLimits) -> Planner:
    from tvm_npu.codegen.nmp.plan.least_traffic import TrafficPlanner

    return TrafficPlanner(limits, name)


_TSO: dict[str, PlannerFactory] = dict.fromkeys(
    (
        "tso", "tso-noburst", "fixed-ks", "fixed-ks-ofm", "fixed-ofm", "fixed-is", "fixed-os",
        "fixed-ws",
    ),
    _tso,
)  # fmt: skip
_EXACT = ("exact", "exact-dma", "exact-layers")
_PLANNERS: dict[str, PlannerFactory] = {
    **_TSO,
    **dict.fromkeys(_EXACT, _exact),
    "exact-traffic": _traffic,
}


def _loop_face(name: str, limits: TileLimits) -> LoopPlanner:
    from tvm_npu.codegen.nmp.plan.loop_face import LoopFace

    return LoopFace(name, partial(_tso, name, limits))


class NmpBackend(Backend["NmpMachine", "ConvPlan"]):
    @property
    def layer_types(self) -> frozenset[type[FixedLayer]]:
        from tvm_npu.codegen import ops

        return frozenset(
            {
                ops.FixedConv, ops.FixedCascade, ops.FixedBlock, ops.FixedConvSum, ops.FixedPool,
                ops.FixedPad,
                ops.FixedElementwise, ops.FixedBroadcast, ops.FixedDifference, ops.FixedTable,
                ops.FixedMaximum,
                ops.FixedMaxFeatureMap, ops.FixedMove, ops.FixedReflectPad,
                ops.FixedTransposedConv, ops.FixedSoftmax,
            }
        )  # fmt: skip

    def made(self, machine: NmpMachine) -> frozenset[type]:
        """Tables, and slopes that differ by channel, lie in the bias buffer; wide accumulators have
        no products with slopes."""
        from tvm_npu.codegen import ops
        from tvm_npu.codegen.nmp.plan.tables import LEAST_BYTES_FOR_SLOPES, table_bytes
        from tvm_npu.codegen.passes.slopes import ChannelSlopes, OneSlope
        from tvm_npu.sim.nmp.xnmp import MOST_ACCUMULATOR_BITS

        buffer_bytes = machine.memories.bias_bytes
        made: set[type] = set(self.layer_types)
        if buffer_bytes < table_bytes(2):
            made -= {ops.FixedTable, ops.FixedSoftmax}
        if machine.mac.accumulator_bits <= MOST_ACCUMULATOR_BITS:
            made |= {OneSlope}
            if buffer_bytes >= LEAST_BYTES_FOR_SLOPES:
                made |= {ChannelSlopes}
        return frozenset(made)

    @property
    def mixes_precisions(self) -> bool:
        return True

    def common(self, machine: NmpMachine) -> tuple[int, ...]:
        """The tables of `exact` read cores and bursts."""
        cores = machine.cores
        return cores.tles, cores.tlts_per_tle, machine.ring is not None, machine.dram.burst_bytes

    def least_needs(self, machine: NmpMachine, precision: Precision) -> LeastNeeds:
        from tvm_npu.codegen.nmp.plan.least import NmpNeeds

        return NmpNeeds(machine, machine.stored_element_bytes(precision))

    def problem(
        self,
        layer: FixedLayer,
        shapes: Mapping[str, Shape],
        precision: Precision,
        machine: NmpMachine,
    ) -> Any:
        from tvm_npu.codegen.nmp.plan.planning import question

        return question(layer, shapes, machine.stored_element_bytes(precision))

    def plan(self, problem: Any, machine: NmpMachine, chosen: Planner, limits: TileLimits) -> Any:
        from tvm_npu.codegen.nmp.plan.planning import answer

        return answer(problem, machine, chosen, limits)

    def rewrite(
        self, fixed: FixedGraph, planner: LayerPlanner, machine: NmpMachine
    ) -> FixedGraph:
        from tvm_npu.codegen.nmp.plan.planning import rewritten

        return rewritten(fixed, planner, machine)

    def candidates(self, fixed: FixedGraph, machine: NmpMachine) -> Iterable[FixedLayer]:
        from tvm_npu.codegen.nmp.plan.planning import possible_cascades
        from tvm_npu.codegen.nmp.plan.tables import with_tables

        return possible_cascades(with_tables(fixed, machine), machine)

    def check(self, problem: Any, plan: Any, machine: NmpMachine) -> PlanFault | None:
        from tvm_npu.codegen.nmp.plan.block import BlockProblem
        from tvm_npu.codegen.nmp.plan.block_check import check_block
        from tvm_npu.codegen.nmp.plan.check import check_plan
        from tvm_npu.codegen.nmp.plan.conv_sum import SumProblem
        from tvm_npu.codegen.nmp.plan.sum_check import check_sum
        from tvm_npu.codegen.nmp.plan.tables import room_for

        if isinstance(problem, SumProblem):
            return check_sum(problem, plan, machine)
        if isinstance(problem, BlockProblem):
            return check_block(problem, plan, machine)
        return check_plan(problem, plan, room_for(problem, machine))

    def predict(self, problem: Any, plan: Any, machine: NmpMachine) -> Prediction:
        from tvm_npu.codegen.nmp.plan.block import BlockProblem
        from tvm_npu.codegen.nmp.plan.block_cost import predict_block
        from tvm_npu.codegen.nmp.plan.conv_sum import SumProblem
        from tvm_npu.codegen.nmp.plan.cost import predict
        from tvm_npu.codegen.nmp.plan.sum_cost import predict_sum

        if isinstance(problem, BlockProblem):
            return predict_block(problem, plan, machine)
        if isinstance(problem, SumProblem):
            return predict_sum(problem, plan, machine)
        return predict(problem, plan, machine)

    def predicted_cycles(
        self, layer: FixedLayer, problem: Any, plan: Any, machine: NmpMachine
    ) -> float | None:
        from tvm_npu.codegen.nmp.plan.planning import predicted_cycles

        return predicted_cycles(layer, problem, plan, machine)

    def in_sequence(
        self, layers: tuple[PlannedLayer, ...], machine: NmpMachine
    ) -> tuple[PlannedLayer, ...]:
        from tvm_npu.codegen.nmp.plan.sequence import in_sequence

        return in_sequence(layers, machine)

    def graph_bound(self, planned: PlannedGraph, machine: NmpMachine) -> GraphBound:
        from tvm_npu.codegen.nmp.plan.graph_bound import graph_bound

        return graph_bound(planned, machine)

    def planners(self) -> Mapping[str, PlannerFactory]:
        return _PLANNERS

    def loop_planners(self) -> Mapping[str, LoopPlannerFactory]:
        return dict.fromkeys(_TSO, _loop_face)

    def loop_questions(
        self, problem: ConvProblem, machine: NmpMachine, limits: TileLimits, splits_memory: bool
    ) -> Iterator[LoopQuestion[ConvPlan]]:
        from tvm_npu.codegen.nmp.plan.loop_shares import loop_questions

        return loop_questions(problem, machine)

    def otherwise(
        self, problem: ConvProblem, machine: NmpMachine, limits: TileLimits
    ) -> ConvPlan | Infeasible | None:
        """TSO's plan: biases or residual tiles may need another way to spread the layer."""
        found: ConvPlan | Infeasible = _tso("tso", limits).plan(problem, machine)
        return found

    def emit(self, planned: PlannedGraph, machine: NmpMachine) -> Emitted:
        from tvm_npu.codegen.nmp.emit.compiler import emit

        return emit(planned, machine)

    def steps(self, problem: ConvProblem, plan: ConvPlan, machine: NmpMachine) -> Iterator[Step]:
        from tvm_npu.codegen.nmp.emit.core_steps import core_steps

        return core_steps(problem, plan, machine)

    is_tunable = True

    def space(self, problem: ConvProblem, machine: NmpMachine) -> Space[ConvPlan]:
        from tvm_npu.codegen.nmp.plan.tables import room_for
        from tvm_npu.codegen.nmp.tune.conv_space import ConvSpace

        return ConvSpace(problem, room_for(problem, machine))

    def shortlist(
        self, problem: ConvProblem, machine: NmpMachine, count: int, limits: TileLimits = NO_LIMITS
    ) -> tuple[ConvPlan, ...] | Infeasible:
        from tvm_npu.codegen.nmp.plan.shortlist import shortlist
        from tvm_npu.codegen.nmp.plan.tables import room_for

        return shortlist(problem, room_for(problem, machine), count, limits)

    def warm_plans(self, problem: ConvProblem, machine: NmpMachine) -> Iterable[ConvPlan]:
        from tvm_npu.codegen.nmp.plan.tables import room_for
        from tvm_npu.codegen.plan.problem import Infeasible

        listed = self.shortlist(problem, machine, WARM_PLANS)
        if isinstance(listed, Infeasible):
            return ()
        room = room_for(problem, machine)
        tso = _tso("tso", NO_LIMITS).plan(problem, room) if problem.window is None else None
        return listed if tso is None or isinstance(tso, Infeasible) else (*listed, tso)


BACKEND = NmpBackend()
