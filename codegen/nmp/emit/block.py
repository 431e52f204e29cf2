"""Blocks: a convolution or a cascade as `multicast` runs it, and at the end of each of its tiles
the rounds of the pointwise convolution behind it."""

from __future__ import annotations

from dataclasses import dataclass, replace

from tvm_npu.codegen.errors import EmitError
from tvm_npu.codegen.nmp.emit.block_layout import block_layout
from tvm_npu.codegen.nmp.emit.commands import Nodes, when
from tvm_npu.codegen.nmp.emit.conv_mac import ConvMac
from tvm_npu.codegen.nmp.emit.conv_tiles import conv_tiles
from tvm_npu.codegen.nmp.emit.conv_transfers import ConvTransfers, OfmBox
from tvm_npu.codegen.nmp.emit.conv_words import conv_parameters, conv_words
from tvm_npu.codegen.nmp.emit.conventions import (
    CORE,
    OTHER_SECOND_ARRIVED,
    POINT_FREE,
    POINT_GO,
    SECOND_ARRIVED,
    TLT,
    wait,
)
from tvm_npu.codegen.nmp.emit.expressions import Expression
from tvm_npu.codegen.nmp.emit.input_residual import InputResidual
from tvm_npu.codegen.nmp.emit.layer import LayerCode, Operands, finish
from tvm_npu.codegen.nmp.emit.mac import out_tile
from tvm_npu.codegen.nmp.emit.multicast import MulticastEmitter
from tvm_npu.codegen.nmp.emit.out_tiles import OutTiles
from tvm_npu.codegen.nmp.emit.parameters import LayerParameters
from tvm_npu.codegen.nmp.emit.shared_buffer import Semaphores, SharedBuffer
from tvm_npu.codegen.nmp.emit.shares import CoreShare
from tvm_npu.codegen.nmp.emit.sharing import ONE_FOR_ITSELF, place_masks, share_in, share_weights
from tvm_npu.codegen.nmp.emit.spread import Spread, with_own_steps
from tvm_npu.codegen.nmp.emit.step_loads import StepLoads
from tvm_npu.codegen.nmp.emit.steps import Step, Steps, turns_of, when_has_work
from tvm_npu.codegen.nmp.emit.table import finish_place
from tvm_npu.codegen.nmp.emit.through_point import Crew, ThroughPoint
from tvm_npu.codegen.nmp.emit.through_window import through_window
from tvm_npu.codegen.nmp.plan.block import (
    BlockPlan,
    BlockProblem,
    constants_come_late,
    crew_size,
    keeps_point_weights,
    most_point_filters,
    point_share,
)
from tvm_npu.codegen.nmp.plan.block_check import check_block
from tvm_npu.codegen.nmp.plan.input_residual import carried_rows, step_channel
from tvm_npu.codegen.ops import FixedBlock, FixedCascade
from tvm_npu.sim.machine_parts import BIAS_BYTES
from tvm_npu.sim.nmp.machine import NmpMachine
from tvm_npu.sim.nmp.xnmp import Level


def block(
    layer: FixedBlock,
    problem: BlockProblem,
    plan: BlockPlan,
    machine: NmpMachine,
    operands: Operands,
) -> LayerCode:
    """The command tree of a block. EmitError for a plan that the machine cannot run."""
    fault = check_block(problem, plan, machine)
    if fault is not None:
        raise EmitError(f"layer {layer.name!r}: {fault}")
    conv = layer.head.conv if isinstance(layer.head, FixedCascade) else layer.head
    tiles = conv_tiles(problem.head, plan.head, machine)
    parameters = conv_parameters(tiles)
    words = conv_words(conv.name, tiles, parameters, operands)
    transfers = ConvTransfers(tiles, words, conv.fill)
    steps = Steps(tiles, words, turns_of(tiles, words, parameters, plan.head.filter_slices > 1))
    chip, _ = block_layout(problem, plan, tiles, machine)
    loads = StepLoads(
        steps, transfers, chip,
        share_in(tiles, parameters, chip.halves.in_tiles),
        share_weights(tiles, parameters, chip.halves.w_tiles),
    )  # fmt: skip
    window = None
    if isinstance(layer.head, FixedCascade):
        assert problem.head.window is not None
        window = through_window(
            layer.head.window, problem.head.window, steps, transfers, chip, parameters, operands
        )
    mac = ConvMac(conv, tiles, finish_place(conv, machine, tiles.size))
    twin = None
    if layer.twin is not None:
        twin = ConvMac(layer.twin, tiles, finish_place(layer.twin, machine, tiles.size))
    outs = OutTiles(steps, transfers, mac, loads, chip, window, twin=twin)
    point = _through_point(layer, problem, plan, machine, operands, steps, parameters)
    if plan.residual_on_chip:
        on_chip = _input_residual(problem, plan, machine, steps, parameters, point.filters)
        point = replace(point, on_chip=on_chip)
    is_late = constants_come_late(plan)
    kernels: Nodes = ()
    if not is_late:
        kernels = (*(() if window is None else window.loads()), *point.constants())

    def emitter(spread: Spread | None) -> MulticastEmitter:
        both = BlockTiles(outs, replace(point, spread=spread), is_late)
        return MulticastEmitter(tiles, steps, transfers, loads, both, chip, kernels)

    nodes = with_own_steps(steps, parameters, lambda spread: emitter(spread).nodes())
    return finish(parameters, nodes, emitter(None).early())


@dataclass(frozen=True)
class BlockTiles:
    """What a TLT does with the tiles of a step: the head's products and its end on chip, then the
    rounds of the pointwise convolution. ``constants_late``: each TLT loads biases and weights of
    what is behind the head's products under those of its first place."""

    head: OutTiles
    point: ThroughPoint
    constants_late: bool

    def open(self, step: Step) -> Nodes:
        return self.point.open(step)

    def close(self, step: Step) -> Nodes:
        return self.point.close(step)

    def consume(self, step: Step) -> Nodes:
        make_place, at = self.head.steps.under(step)
        first, rest = self._products(step, at)
        return (
            *self._in_front(step),
            *when_has_work(step, (*make_place, *first, *rest)),
            *self._behind(step),
        )

    def begin(self, step: Step) -> Nodes:
        """`consume` up to the start of the head's first products."""
        make_place, at = self.head.steps.under(step)
        first = self._products(step, at)[0]
        return (*self._in_front(step), *when_has_work(step, (*make_place, *first)))

    def finish(self, step: Step) -> Nodes:
        """The rest of `consume`."""
        make_place, at = self.head.steps.under(step)
        rest = self._products(step, at)[1]
        return (*when_has_work(step, (*make_place, *rest)), *self._behind(step))

    def _in_front(self, step: Step) -> Nodes:
        early = () if self.point.has_two_ports else self.point.begin(step)
        return (*when_has_work(step, early), *self.head.waits(step))

    def _behind(self, step: Step) -> Nodes:
        point, is_last = self.point, self.head.channels_behind(step)
        return (
            *when(is_last, ">", (), (*point.rounds(step), *point.end(step))),
            *self.head.releases(step),
        )

    def _products(self, step: Step, at: OfmBox) -> tuple[Nodes, Nodes]:
        """The start of the head's products, and the rest of what is to do on chip."""
        head, point = self.head, self.point
        middle = out_tile(step.own, at.rows, at.columns, head.mac.tiles.size)
        beside = (*self._constants(step), *(point.begin(step) if point.has_two_ports else ()))
        first, rest = head.products(step, at, middle, (), beside)
        if point.on_chip is not None:
            rest = (*rest, *point.on_chip.take(step, at))
        end = (*head.requantize(step, at, middle), *self._await_constants(step))
        if head.window is not None:
            behind, second = (
                Expression(constant=place)
                for place in (head.layout.middle_elements, head.layout.second_offset)
            )
            end += head.window.run(step, at, behind, second)
        return first, (*rest, *when(head.channels_behind(step), ">", (), end))

    def _constants(self, step: Step) -> Nodes:
        """Their loads, in the first place's first step or, where TLTs have one, their own."""
        if not self.constants_late:
            return ()
        window, spread = self.head.window, self.point.spread
        kernels = () if window is None else window.constants()
        nodes = (*kernels, *self.point.late_constants())
        first = when(step.n, "==", nodes) if spread is None else spread.in_own_step(step, nodes)
        return _in_first_place(step, first)

    def _await_constants(self, step: Step) -> Nodes:
        if not self.constants_late:
            return ()
        window = self.head.window
        kernels = 0 if window is None else len(window.constants())
        waits: Nodes = (wait(SECOND_ARRIVED, kernels),) if kernels else ()
        return _in_first_place(step, (*waits, *self.point.await_constants()))


def _in_first_place(step: Step, nodes: Nodes) -> Nodes:
    """``nodes`` with the first filters at the first place."""
    return when(step.m + step.r + step.c, "==", nodes)


def _through_point(
    layer: FixedBlock,
    problem: BlockProblem,
    plan: BlockPlan,
    machine: NmpMachine,
    operands: Operands,
    steps: Steps,
    parameters: LayerParameters,
) -> ThroughPoint:
    """Adds the words that the pointwise convolution needs to ``parameters``."""
    if operands.point_weight is None or operands.point_bias is None:
        raise EmitError(f"layer {layer.name!r}: no weights")
    tiles = replace(steps.tiles, problem=problem.point)
    shares, address = tiles.shares, parameters.address
    words = steps.words
    if problem.has_residual and not plan.residual_on_chip:
        words = replace(words, residual_address=address("residual_address", operands.inputs[-1]))
    runs = crew_size(plan, machine) // plan.head.filter_slices
    most = most_point_filters(problem, plan, machine)
    member_bytes = problem.point.channels * most * tiles.size

    def own(one: CoreShare) -> tuple[int, int]:
        return point_share(problem.filters, plan, machine, one.tle_run, one.run)

    def member(one: CoreShare) -> int:
        return one.tle_run * runs + one.run

    firsts = shares.values(lambda one: own(one)[0])
    weight, bias = operands.point_weight, operands.point_bias
    offsets = shares.values(lambda one: member(one) * member_bytes)
    return ThroughPoint(
        ConvMac(layer.point, tiles, None),
        ConvTransfers(tiles, words),
        steps,
        block_layout(problem, plan, steps.tiles, machine)[1],
        _crew(plan, machine, steps, parameters, shares.values(member)),
        first_filter=parameters.number("point_first", firsts),
        filters=parameters.number("point_filters", shares.values(lambda one: own(one)[1])),
        most_filters=most,
        weight=address("point_weight", [weight.plus(offset) for offset in offsets]),
        bias=address("point_bias", [bias.plus(first * BIAS_BYTES) for first in firsts]),
        keeps_weights=keeps_point_weights(problem, plan, machine),
        has_two_ports=machine.memories.ports == 2,
        spread=None,
        on_chip=None,
    )


def _input_residual(
    problem: BlockProblem,
    plan: BlockPlan,
    machine: NmpMachine,
    steps: Steps,
    parameters: LayerParameters,
    filters: Expression,
) -> InputResidual:
    """Of TLTs with ``filters`` of the pointwise convolution. Adds words to ``parameters``."""
    chip, layout = block_layout(problem, plan, steps.tiles, machine)
    shares = steps.tiles.shares

    def begins(one: CoreShare) -> tuple[int, int]:
        """Of the TLT's own filters: the first one, and the channel of the step that has them."""
        if not one.rows:  # it has none, and does not ask
            return 0, 0
        own = point_share(problem.filters, plan, machine, one.tle_run, one.run)
        channel = step_channel(*own, plan)
        assert channel is not None
        return own[0], channel

    channels = shares.values(lambda one: begins(one)[1])
    firsts = shares.values(lambda one: begins(one)[0] - begins(one)[1])
    return InputResidual(
        steps,
        step_channel=parameters.number("residual_step", channels),
        first=parameters.number("residual_channel", firsts),
        filters=filters,
        element=layout.residual_element,
        offset=layout.residual_offset,
        half_bytes=chip.in_half_bytes,
        carried=carried_rows(problem, plan),
        border=0 if problem.head.window is None else problem.head.window.padding[0],
        waits=machine.memories.ports == 1,
    )


def _crew(
    plan: BlockPlan,
    machine: NmpMachine,
    steps: Steps,
    parameters: LayerParameters,
    members: list[int],
) -> Crew:
    tiles = steps.tiles
    size = crew_size(plan, machine)
    level, leader, scope = None, TLT, 1
    if plan.head.filter_slices > 1:
        level, leader, scope = Level.GLOBAL, CORE, machine.core_count
    elif size > 1:
        level, leader, scope = Level.TLE, TLT, machine.cores.tlts_per_tle
    semaphores = Semaphores(
        POINT_FREE, POINT_GO, (SECOND_ARRIVED, OTHER_SECOND_ARRIVED)
    )
    buffer = SharedBuffer(level, leader, scope, scope, ONE_FOR_ITSELF, semaphores, plan.slots, size)
    tlts, tles = place_masks(tiles.shares)
    slots = [member * plan.passed * tiles.size for member in members]
    return Crew(
        size,
        plan.passed,
        tiles.largest[0],
        tiles.problem.planes,
        parameters.number("crew_tlts", tlts),
        parameters.number("crew_tles", tles) if plan.head.filter_slices > 1 else Expression(),
        parameters.number("crew_slot", slots),
        buffer,
    )
