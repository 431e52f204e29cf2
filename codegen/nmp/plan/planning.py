"""The questions that layers ask on an NMP, who answers them, and which layers run as one."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from math import prod

from tvm_npu.codegen.errors import EmitError
from tvm_npu.codegen.graph import FixedGraph, FixedLayer, Shape, chw
from tvm_npu.codegen.layers import cascade_problem, conv_problem
from tvm_npu.codegen.nmp.plan.block import BlockPlan, BlockProblem
from tvm_npu.codegen.nmp.plan.conv_plan import ConvPlan
from tvm_npu.codegen.nmp.plan.conv_sum import SumProblem
from tvm_npu.codegen.nmp.plan.move import MovePlan, MoveProblem, move_problem, plan_move
from tvm_npu.codegen.nmp.plan.rows_apart import may_read_rows_apart, with_rows_apart
from tvm_npu.codegen.nmp.plan.tables import (
    constant_bytes,
    constants_cycles,
    room_for,
    with_tables,
)
from tvm_npu.codegen.nmp.plan.window import (
    FlatPlan,
    FlatProblem,
    WindowPlan,
    WindowProblem,
    broadcast_problem,
    flat_problem,
    plan_flat,
    plan_window,
    window_problem,
)
from tvm_npu.codegen.ops import (
    FixedBlock,
    FixedBroadcast,
    FixedCascade,
    FixedConv,
    FixedConvSum,
    FixedElementwise,
    FixedMaxFeatureMap,
    FixedMaximum,
    FixedMove,
    FixedPad,
    FixedPool,
    FixedTable,
)
from tvm_npu.codegen.ops.operator import Placement
from tvm_npu.codegen.ops.registry import operator_of
from tvm_npu.codegen.passes.blocks import blocks_behind
from tvm_npu.codegen.passes.cascades import candidates
from tvm_npu.codegen.passes.dilation import rows_together
from tvm_npu.codegen.passes.joined import Joined, with_joined
from tvm_npu.codegen.passes.mirrors import with_moved_mirrors
from tvm_npu.codegen.passes.phases import with_phases
from tvm_npu.codegen.passes.pools_apart import apart, pooled_parts
from tvm_npu.codegen.passes.siblings import siblings, with_siblings
from tvm_npu.codegen.passes.softmax_steps import with_softmax_steps
from tvm_npu.codegen.passes.sums import possible_sums
from tvm_npu.codegen.passes.twins import TwinBlock, twin_blocks, with_twin_block
from tvm_npu.codegen.plan.layers import LayerPlanner
from tvm_npu.codegen.plan.limits import TileLimits
from tvm_npu.codegen.plan.planner import Planner, goal, plans_blocks, plans_sums, plans_windows
from tvm_npu.codegen.plan.problem import ConvProblem, Infeasible
from tvm_npu.sim.machine_parts import Precision
from tvm_npu.sim.nmp.machine import NmpMachine

Question = ConvProblem | BlockProblem | SumProblem | WindowProblem | FlatProblem | MoveProblem
Plan = ConvPlan | BlockPlan | WindowPlan | FlatPlan | MovePlan


def question(layer: FixedLayer, shapes: Mapping[str, Shape], element_bytes: int) -> Question:
    """What is asked about ``layer``."""
    if isinstance(layer, FixedBlock):
        head: Question = question(layer.head, shapes, element_bytes)
        assert isinstance(head, ConvProblem)
        head = replace(head, has_twin=layer.twin is not None)
        has_residual = len(layer.point.inputs) > 1
        adds_input = has_residual and layer.inputs[-1] == layer.inputs[0]
        return BlockProblem(head, len(layer.point.weight), has_residual, adds_input)
    if isinstance(layer, FixedConvSum):
        adds = replace(layer.second, inputs=layer.second.inputs[:1])
        first, second = (question(one, shapes, element_bytes) for one in (layer.first, adds))
        assert isinstance(first, ConvProblem) and isinstance(second, ConvProblem)
        return SumProblem(first, second)
    if isinstance(layer, FixedCascade):
        return cascade_problem(layer, shapes, element_bytes)
    in_shape, out_shape = shapes[layer.inputs[0]], shapes[layer.output]
    if isinstance(layer, FixedConv):
        problem = conv_problem(layer, in_shape, out_shape, element_bytes)
        if layer.reads_rows_apart:
            problem = with_rows_apart(problem)
        needed = constant_bytes(layer, element_bytes)
        return problem if needed is None else replace(problem, table_bytes=needed)
    if isinstance(layer, FixedPool | FixedPad):
        return window_problem(layer, in_shape, out_shape, element_bytes)
    if isinstance(layer, FixedBroadcast):
        return broadcast_problem(out_shape, element_bytes)
    if isinstance(layer, FixedElementwise | FixedMaximum | FixedMaxFeatureMap | FixedTable):
        return flat_problem(layer, out_shape, element_bytes)
    if isinstance(layer, FixedMove):
        return move_problem(layer, element_bytes)
    raise EmitError(f"layer {layer.name!r}: no code for {type(layer).__name__}")


def answer(
    asked: Question, machine: NmpMachine, chosen: Planner, limits: TileLimits
) -> Plan | Infeasible:
    """Of ``chosen`` for convolutions, else of the planner that there is."""
    if isinstance(asked, ConvProblem):
        room = room_for(asked, machine)
        found: Plan | Infeasible = chosen.plan(
            replace(asked, table_bytes=None, out_bytes=None), room
        )
        return found
    if isinstance(asked, BlockProblem | SumProblem):
        block: Plan | Infeasible = chosen.plan(asked, machine)  # type: ignore[arg-type]
        return block
    if isinstance(asked, WindowProblem):
        return plan_window(asked, machine, limits, plans_windows(chosen))
    if isinstance(asked, MoveProblem):
        return plan_move(asked, machine)
    return plan_flat(asked, machine)


def predicted_cycles(
    layer: FixedLayer, asked: Question, plan: Plan, machine: NmpMachine
) -> float | None:
    """Of the plan, and of the load of a table, slopes or scale words in front of it."""
    constants = constants_cycles(layer, asked.element_bytes, machine)
    if isinstance(plan, ConvPlan | BlockPlan):
        return None if plan.prediction is None else float(plan.prediction.cycles) + constants
    return float(plan.cycles) + constants


def possible_cascades(fixed: FixedGraph, machine: NmpMachine) -> list[FixedCascade]:
    """A window takes its input over the ring of its TLE: no cascades without one. A layer with a
    table or with slopes of channels is in none: the bias buffer has no room for them beside the
    biases of two. Nor is a window with a slope, or a layer with scale words."""
    if machine.ring is None:
        return []
    found = candidates(fixed)
    return [
        one
        for one in found
        if constant_bytes(one.conv, fixed.width_of(one.inputs[0])) is None
        and one.conv.out_bytes is None
        and one.window.table is None
        and one.window.slopes is None
        and one.conv.rescaling is None
        and one.window.rescaling is None
    ]


def possible_blocks(
    fixed: FixedGraph, cascades: Iterable[FixedCascade], machine: NmpMachine
) -> list[FixedBlock]:
    """Of ``cascades`` and of convolutions over all channels, with a pointwise convolution behind;
    none has a table, slopes of channels or scale words, and all elements have one width. Tiles are
    passed on over rings: no blocks without one."""
    if machine.ring is None:
        return []
    convolutions = [
        layer
        for layer in fixed.layers
        if isinstance(layer, FixedConv)
        and layer.groups == 1
        and not layer.is_dense
        and constant_bytes(layer, fixed.width_of(layer.inputs[0])) is None
        and layer.out_bytes is None
        and layer.rescaling is None
    ]
    return [
        one
        for one in blocks_behind(fixed, [*convolutions, *cascades])
        if one.head.out_bytes is None
        and one.point.table is None
        and one.point.slopes is None
        and one.point.rescaling is None
        and one.point.out_bytes is None
    ]


def _cost(
    planner: LayerPlanner,
    layer: FixedLayer,
    shapes: Mapping[str, Shape],
    precision: Precision | None,
) -> float:
    """What the graph pays for ``layer``: predicted time or, where the planner's goal is traffic,
    bytes to and from the DRAM; of layers without MACs each tensor once."""
    cycles = planner.cycles(layer, shapes, precision)
    if goal(planner.chosen) == "cycles" or cycles == float("inf"):
        return cycles
    problem, plan = planner.answer(layer, shapes, precision)
    if isinstance(plan, ConvPlan | BlockPlan):
        assert plan.prediction is not None
        return float(plan.prediction.moved_bytes)
    elements = sum(prod(shapes[name]) for name in (*layer.inputs, *layer.outputs))
    return float(elements * problem.element_bytes)


def possible_twin_blocks(fixed: FixedGraph, machine: NmpMachine) -> list[TwinBlock]:
    """Of the same kinds of layers as `possible_blocks`."""
    if machine.ring is None:
        return []

    def is_plain(layer: FixedConv | FixedPool) -> bool:
        return (
            constant_bytes(layer, fixed.width_of(layer.inputs[0])) is None
            and layer.out_bytes is None
            and layer.rescaling is None
        )

    found = []
    for one in twin_blocks(fixed):
        block = one.block
        assert block.twin is not None
        layers: list[FixedConv | FixedPool] = [block.twin]
        if isinstance(block.head, FixedCascade):
            layers += [block.head.conv, block.head.window]
        else:
            layers.append(block.head)
        last = [layer for layer in (*layers[2:], block.point) if layer.slopes is not None]
        point = replace(block.point, inputs=block.inputs)
        if all(map(is_plain, (*layers, point))) and not last:
            found.append(one)
    return found


def rewritten(fixed: FixedGraph, planner: LayerPlanner, machine: NmpMachine) -> FixedGraph:
    """The graph in layers that NMPs have code for: transposed convolutions by their phases,
    reflection paddings as moves, softmax by its steps; tables where there is room; dilated
    convolutions, where that is faster, of rows that lie together; pointwise ones with a stride
    that leave out rows, likewise; and with cascades."""
    made = with_moved_mirrors(with_phases(with_softmax_steps(fixed)))
    together = _with_rows_together(with_tables(made, machine), planner)
    return with_layers_joined(_with_rows_apart(together, planner), planner, machine)


def _with_rows_apart(fixed: FixedGraph, planner: LayerPlanner) -> FixedGraph:
    if not plans_windows(planner.chosen):
        return fixed
    layers: list[FixedLayer] = []
    for layer in fixed.layers:
        if isinstance(layer, FixedConv) and may_read_rows_apart(
            layer, fixed.shapes[layer.inputs[0]]
        ):
            precision = fixed.precision_of(layer)
            apart = replace(layer, reads_rows_apart=True)
            layer = min(
                (layer, apart), key=lambda one: _cost(planner, one, fixed.shapes, precision)
            )
        layers.append(layer)
    return replace(fixed, layers=tuple(layers))


def _with_rows_together(fixed: FixedGraph, planner: LayerPlanner) -> FixedGraph:
    layers: list[FixedLayer] = []
    shapes, scales = dict(fixed.shapes), dict(fixed.scales)
    for layer in fixed.layers:
        found = None
        if isinstance(layer, FixedConv):
            source, target = shapes[layer.inputs[0]], shapes[layer.output]
            found = rows_together(layer, chw(source), chw(target))
        if isinstance(layer, FixedConv) and found is not None:
            moved = {**shapes, **found.shapes}
            precision = fixed.precision_of(layer)
            direct = _cost(planner, layer, shapes, precision)
            may_choose = plans_windows(planner.chosen) or direct == float("inf")
            together = sum(_cost(planner, one, moved, precision) for one in found.layers)
            if may_choose and layer.out_bytes is None and together < direct:
                shapes = moved
                scales |= {one: scales[found.like(layer, one)] for one in found.shapes}
                layers += found.layers
                continue
        layers.append(layer)
    return replace(fixed, layers=tuple(layers), shapes=shapes, scales=scales)


def _members(layer: FixedConv | FixedCascade) -> tuple[str, ...]:
    """Outputs of the graph's layers that ``layer`` runs."""
    return (layer.conv.output, layer.output) if isinstance(layer, FixedCascade) else layer.outputs


def with_layers_joined(
    fixed: FixedGraph, planner: LayerPlanner, machine: NmpMachine
) -> FixedGraph:
    """The graph with the cascades and blocks in which it is predicted to be fastest. Two
    convolutions that are put together lead a block, pools of concatenated tensors are apart, and
    convolutions of one tensor run as one, where that is faster."""
    if not plans_windows(planner.chosen):
        return fixed

    def cost(found: FixedGraph) -> float:
        return sum(
            _cost(planner, layer, found.shapes, found.precision_of(layer))
            for layer in found.layers
            if operator_of(layer).placement is Placement.COMPUTED
        )

    best = _with_layers_joined(fixed, planner, machine)
    least = cost(best)
    for alternatives in _alternatives(fixed, planner, machine):
        before = fixed
        for change in alternatives:
            changed = change(before)
            other = _with_layers_joined(changed, planner, machine)
            total = cost(other)
            if total < least:
                fixed, best, least = changed, other, total
    return _with_siblings(best, planner, machine)


def _with_siblings(
    fixed: FixedGraph, planner: LayerPlanner, machine: NmpMachine
) -> FixedGraph:
    """Where nothing else runs behind them: each group of siblings as one, or not."""
    most_shift = machine.requantization(planner.precision).most_channel_shift
    for found in siblings(fixed, most_shift):
        precision = fixed.precision_of(found.members[0])
        other = with_siblings(fixed, found)
        separate = sum(_cost(planner, one, fixed.shapes, precision) for one in found.members)
        if _cost(planner, found.joined, other.shapes, precision) < separate:
            fixed = other
    return fixed


def _alternatives(
    fixed: FixedGraph, planner: LayerPlanner, machine: NmpMachine
) -> Iterator[list[Callable[[FixedGraph], FixedGraph]]]:
    """By concatenation, what may become of it and the layers around it, in its order in the
    graph: of one at most one."""
    found: dict[str, list[Callable[[FixedGraph], FixedGraph]]] = {}
    for pools in pooled_parts(fixed):
        found.setdefault(pools.parts.output, []).append(partial(apart, found=pools))
    if plans_blocks(planner.chosen):
        for twins in possible_twin_blocks(fixed, machine):
            change = partial(with_twin_block, found=twins)
            found.setdefault(twins.together, []).append(change)
    for layer in fixed.layers:
        if layer.outputs[0] in found:
            yield found[layer.outputs[0]]


def _with_layers_joined(
    fixed: FixedGraph, planner: LayerPlanner, machine: NmpMachine
) -> FixedGraph:
    cascades = possible_cascades(fixed, machine)
    joinable = [Joined(one, _members(one)) for one in cascades]
    if plans_blocks(planner.chosen):
        joinable += [
            Joined(one, (*_members(one.head), one.output))
            for one in possible_blocks(fixed, cascades, machine)
        ]

    if plans_sums(planner.chosen) and machine.ring is not None:
        inner = {tensor for one in joinable for tensor in one.members[1:]}
        joinable += [
            Joined(one, (one.first.output, one.output))
            for one in possible_sums(fixed)
            if one.output not in inner  # each layer lies on one path
        ]

    def cost(layer: FixedLayer) -> float:
        return _cost(planner, layer, fixed.shapes, fixed.precision_of(layer))

    return with_joined(fixed, joinable, cost)
