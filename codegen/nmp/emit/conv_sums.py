"""Sums of two pointwise convolutions (`plan.conv_sum`): what `multicast` emits for the whole, with
IN tiles of two tensors, and what happens between the channels of the first and of the second."""

from __future__ import annotations

from dataclasses import dataclass, replace

from tvm_npu.codegen.errors import EmitError
from tvm_npu.codegen.nmp.emit.chip_layout import chip_layout, require_abilities
from tvm_npu.codegen.nmp.emit.commands import Nodes, product, when
from tvm_npu.codegen.nmp.emit.conv_mac import ConvMac, WTile
from tvm_npu.codegen.nmp.emit.conv_tiles import conv_tiles
from tvm_npu.codegen.nmp.emit.conv_transfers import ConvTransfers, OfmBox
from tvm_npu.codegen.nmp.emit.conv_words import conv_parameters, conv_words
from tvm_npu.codegen.nmp.emit.conventions import MAC_DONE, SECOND_ARRIVED, wait
from tvm_npu.codegen.nmp.emit.expressions import Expression
from tvm_npu.codegen.nmp.emit.layer import LayerCode, Operands, finish
from tvm_npu.codegen.nmp.emit.mac import OutTile, first_bias
from tvm_npu.codegen.nmp.emit.multicast import MulticastEmitter
from tvm_npu.codegen.nmp.emit.out_tiles import OutTiles
from tvm_npu.codegen.nmp.emit.sharing import share_in, share_weights
from tvm_npu.codegen.nmp.emit.spread import Spread, with_own_steps
from tvm_npu.codegen.nmp.emit.step_loads import Behind, StepLoads
from tvm_npu.codegen.nmp.emit.steps import Step, Steps, turns_of
from tvm_npu.codegen.nmp.emit.transfers import OnChip, run_transfer
from tvm_npu.codegen.nmp.plan.conv_plan import ConvPlan
from tvm_npu.codegen.nmp.plan.conv_sum import SumProblem
from tvm_npu.codegen.nmp.plan.sum_check import check_sum
from tvm_npu.codegen.ops import FixedConvSum
from tvm_npu.sim.machine_parts import BIAS_BYTES
from tvm_npu.sim.nmp.machine import NmpMachine
from tvm_npu.sim.nmp.xnmp import Initialise, Memory
from tvm_npu.sim.streams import Stream


def conv_sum(
    layer: FixedConvSum,
    problem: SumProblem,
    plan: ConvPlan,
    machine: NmpMachine,
    operands: Operands,
) -> LayerCode:
    """The command tree of a sum. EmitError for a plan that the machine cannot run."""
    fault = check_sum(problem, plan, machine)
    if fault is not None:
        raise EmitError(f"layer {layer.name!r}: {fault}")
    if operands.point_bias is None:
        raise EmitError(f"layer {layer.name!r}: no biases")
    tiles = conv_tiles(problem.whole, plan, machine)
    parameters = conv_parameters(tiles)
    words = conv_words(layer.name, tiles, parameters, operands)
    other = replace(words, in_address=parameters.address("second_address", operands.inputs[1]))
    one, two = (replace(tiles, problem=part) for part in (problem.first, problem.second))
    transfers = ConvTransfers(one, words)
    steps = Steps(tiles, words, turns_of(tiles, words, parameters))
    layout = chip_layout(layer.name, tiles, machine, keeps_second=True)
    require_abilities(layer.name, tiles, machine)
    loads = StepLoads(
        steps, replace(transfers, tiles=tiles), layout,
        share_in(tiles, parameters, layout.halves.in_tiles),
        share_weights(tiles, parameters, layout.halves.w_tiles),
        (transfers, Behind(problem.first.channels, ConvTransfers(two, other))),
    )  # fmt: skip
    mac = ConvMac(layer.second, tiles, None)
    firsts = tiles.shares.values(lambda share: share.first_item)
    bias = operands.point_bias
    address = parameters.address("second_bias", [bias.plus(at * BIAS_BYTES) for at in firsts])
    behind = OnChip(Expression(constant=tiles.most.filters * BIAS_BYTES))
    biases = loads.transfers.load_biases(address, words.items, behind)

    def emitter(spread: Spread | None) -> MulticastEmitter:
        first = ConvMac(layer.first, one, None)
        outs = SumTiles(
            steps, loads.transfers, mac, loads, layout, None, spread, first=first
        )
        return MulticastEmitter(tiles, steps, loads.transfers, loads, outs, layout, biases)

    nodes = with_own_steps(steps, parameters, lambda spread: emitter(spread).nodes())
    return finish(parameters, nodes, emitter(None).early())


@dataclass(frozen=True)
class SumTiles(OutTiles):
    """``mac`` is of the second convolution, with the tiles of the whole; ``first`` of the first."""

    first: ConvMac | None = None

    def products(
        self, step: Step, at: OfmBox, out: OutTile, begin: Nodes, beside: Nodes = ()
    ) -> tuple[Nodes, Nodes]:
        """Between the channels of both the OUT tile comes to its end and goes to MB0."""
        first = self.first
        assert first is not None
        tiles = self.mac.tiles
        offset = step.w_half * self.layout.w_half_bytes
        pitch = step.channels * tiles.taps
        if tiles.plan.schedule == "WS":
            offset = offset + step.n * tiles.size
            pitch = Expression.of(tiles.channels)
        in_offset = step.in_half * self.layout.in_half_bytes

        def multiply(mac: ConvMac, bias: Expression, initialise: Initialise) -> Nodes:
            return (
                mac.multiply(
                    out, initialise, WTile(offset, pitch, bias), step.channels, Expression.of(1),
                    (at.rows, at.columns), in_offset,
                ),
            )  # fmt: skip

        def of(mac: ConvMac, bias: Expression) -> tuple[Nodes, Nodes]:
            starts = multiply(mac, bias, first_bias(mac.layer))
            return starts, multiply(mac, bias, Initialise.KEEP)

        from_first, more_of_first = of(first, step.m)
        from_second, more_of_second = of(self.mac, self._bias(step))
        turn = (*self._turn(step, at, out, first), *from_second)
        behind = step.n - first.tiles.channels
        later = when(behind, "==", turn, when(behind, ">", more_of_second, more_of_first))
        return when(step.n, "==", (*begin, *from_first), later), (*beside, wait(MAC_DONE))

    def _turn(self, step: Step, at: OfmBox, out: OutTile, first: ConvMac) -> Nodes:
        """The OUT tile of the first comes to its end and goes to MB0, where it waits."""
        size = self.mac.tiles.size
        end = first.requantize(out, step.m, self.first_filter(step))
        area, make_area = product("waiting_area", at.rows, at.columns * size)
        bytes_, make = product("waiting_bytes", step.own, area)
        place = OnChip(self._out_half * self.layout.out_half_elements)
        forward = run_transfer(
            "nmp_forward", Stream.OTHER, Memory.MB0, Expression(constant=self.layout.second_offset),
            SECOND_ARRIVED, bytes_, size, place,
        )  # fmt: skip
        return (*end, *make_area, *make, forward, wait(SECOND_ARRIVED))

    def before_the_end(self, step: Step, out: OutTile) -> Nodes:
        """What waits is added."""
        place = Expression(constant=self.layout.second_offset)
        return self.mac.add_residual(out, self._bias(step), place)[1:]

    def requantize(self, step: Step, at: OfmBox, out: OutTile) -> Nodes:
        return self.mac.requantize(out, self._bias(step), self.first_filter(step))

    def _bias(self, step: Step) -> Expression:
        """The index of the step's first bias of the second."""
        return step.m + self.mac.tiles.most.filters
