"""Convolutions whose tiles are shared: IN tiles by TLTs with the same rows and columns, W tiles by
those with the same filters, over the ring by TLEs.

The loops of a schedule walk steps: one tile of filters, one place of the OFM, one tile of
channels. With one buffer a step's transfers come in front of its MACs. With two, the transfers of
a step come in front of the MACs of the step before, which the variables ``last_...`` remember, and
the halves of the buffers take turns.
"""

from __future__ import annotations

from collections.abc import Callable, Set
from dataclasses import dataclass, replace
from typing import Protocol

from tvm_npu.codegen.nmp.emit.chip_layout import ChipLayout, chip_layout, require_abilities
from tvm_npu.codegen.nmp.emit.commands import Assign, Nodes, loop, when
from tvm_npu.codegen.nmp.emit.conv_mac import ConvMac
from tvm_npu.codegen.nmp.emit.conv_tiles import ConvTiles, conv_tiles
from tvm_npu.codegen.nmp.emit.conv_transfers import ConvTransfers
from tvm_npu.codegen.nmp.emit.conv_words import conv_parameters, conv_words
from tvm_npu.codegen.nmp.emit.expressions import Expression, Variable
from tvm_npu.codegen.nmp.emit.layer import LayerCode, Operands, finish
from tvm_npu.codegen.nmp.emit.out_tiles import OUT_HALF, OutTiles
from tvm_npu.codegen.nmp.emit.sharing import share_in, share_weights
from tvm_npu.codegen.nmp.emit.spread import Spread, with_own_steps
from tvm_npu.codegen.nmp.emit.step_loads import IN_HALF, W_HALF, StepLoads
from tvm_npu.codegen.nmp.emit.steps import Step, Steps, turns_of
from tvm_npu.codegen.nmp.emit.table import finish_place, load_table
from tvm_npu.codegen.nmp.emit.through_window import ThroughWindow, require_ring, through_window
from tvm_npu.codegen.nmp.plan.conv_plan import ConvPlan
from tvm_npu.codegen.nmp.plan.tables import room_for
from tvm_npu.codegen.ops import FixedCascade, FixedConv
from tvm_npu.codegen.plan.problem import ConvProblem
from tvm_npu.sim.machine_parts import BIAS_BYTES
from tvm_npu.sim.nmp.machine import NmpMachine


def multicast(
    layer: FixedConv | FixedCascade,
    problem: ConvProblem,
    plan: ConvPlan,
    machine: NmpMachine,
    operands: Operands,
) -> LayerCode:
    """The command tree of a layer whose tiles are shared. EmitError for a plan that the machine
    cannot run."""
    conv = layer.conv if isinstance(layer, FixedCascade) else layer
    tiles = conv_tiles(problem, plan, machine)
    parameters = conv_parameters(tiles)
    words = conv_words(conv.name, tiles, parameters, operands)
    transfers = ConvTransfers(tiles, words, conv.fill)
    steps = Steps(tiles, words, turns_of(tiles, words, parameters))
    layout = chip_layout(conv.name, tiles, room_for(problem, machine))
    require_abilities(conv.name, tiles, machine)
    shared_in = share_in(tiles, parameters, layout.halves.in_tiles)
    shared_w = share_weights(tiles, parameters, layout.halves.w_tiles)
    window: ThroughWindow | None = None
    if isinstance(layer, FixedCascade):
        assert problem.window is not None
        require_ring(conv.name, machine)
        window = through_window(
            layer.window, problem.window, steps, transfers, layout, parameters, operands
        )
    loads = StepLoads(steps, transfers, layout, shared_in, shared_w)
    mac = ConvMac(conv, tiles, finish_place(conv, machine, tiles.size))
    kernels = () if window is None else window.loads()

    def emitter(spread: Spread | None) -> MulticastEmitter:
        outs = OutTiles(steps, transfers, mac, loads, layout, window, spread)
        return MulticastEmitter(tiles, steps, transfers, loads, outs, layout, kernels)

    table = load_table(operands.table, parameters, machine, tiles.size)
    nodes = with_own_steps(steps, parameters, lambda spread: emitter(spread).nodes())
    return finish(parameters, (*table, *nodes), emitter(None).early())


class Consumer(Protocol):
    """What a TLT does with the tiles of a step, once they are loaded, and in front of and behind
    the loops over steps, whose indices ``step`` names there."""

    def consume(self, step: Step) -> Nodes: ...

    def begin(self, step: Step) -> Nodes: ...

    def finish(self, step: Step) -> Nodes: ...

    def open(self, step: Step) -> Nodes: ...

    def close(self, step: Step) -> Nodes: ...


@dataclass(frozen=True)
class MulticastEmitter:
    """One tree for IS, OS and WS; with groups, the groups run one after another. ``kernels`` load
    what layers behind need for the whole layer."""

    tiles: ConvTiles
    steps: Steps
    transfers: ConvTransfers
    loads: StepLoads
    outs: Consumer
    layout: ChipLayout
    kernels: Nodes

    def nodes(self) -> Nodes:
        """The whole layer."""
        halves = self.layout.halves
        counts = (
            (IN_HALF, halves.in_tiles), (W_HALF, halves.w_tiles), (OUT_HALF, halves.out_tiles),
        )  # fmt: skip
        in_buffer, w_buffer = self.loads.shared_in.buffer, self.loads.shared_w.buffer
        return (
            *(Assign(half, Expression(constant=1)) for half, count in counts if count == 2),
            *in_buffer.open(),
            *w_buffer.open(),
            *loop("group", self.tiles.problem.groups, 1, self._group),
            *in_buffer.close(),
            *w_buffer.close(),
        )

    def early(self) -> Nodes:
        """Biases and the first W tile, in front of the barrier before this layer."""
        if not self.loads.weights_come_early:
            return ()
        words = self.transfers.words
        count = words.items * self.tiles.problem.planes
        biases = self.transfers.load_biases(words.bias_address, count)[:1]
        return (*self._where_work(biases), *self.loads.first_weights())

    def _group(self, group: Expression, _: Expression) -> Nodes:
        """One group as a convolution of its own."""
        words = self.transfers.words
        address = words.bias_address + group * (self.tiles.filters * BIAS_BYTES)
        biases = self.transfers.load_biases(address, words.items * self.tiles.problem.planes)
        if self.loads.weights_come_early:
            biases = biases[1:]
        biases = self._where_work((*biases, *self.kernels))
        if self.tiles.plan.buffers == 1:
            return (
                *biases,
                *self.steps.walk(
                    group, lambda step: (*self.loads.load(step), *self.outs.consume(step))
                ),
            )
        return (*biases, *self._loads_ahead(group))

    def _where_work(self, nodes: Nodes) -> Nodes:
        """``nodes`` for TLTs with rows, columns and filters of their own."""
        words = self.transfers.words
        own = when(words.columns, ">", nodes)
        return when(words.items, ">", when(words.rows, ">", own))

    def _loads_ahead(self, group: Expression) -> Nodes:
        """Loads run one step ahead of the MACs."""
        halves, plan = self.layout.halves, self.tiles.plan
        remembered: list[tuple[Variable, Expression]] = []
        last: list[Step] = []
        in_half = Expression.of(IN_HALF) if halves.in_tiles == 2 else Expression()
        w_half = Expression.of(W_HALF) if halves.w_tiles == 2 else Expression()
        # Halves that every step changes need not be remembered.
        changing: dict[str, Expression] = {}
        if halves.in_tiles == 2 and not plan.keeps_in:
            changing["in_half"] = in_half
        if halves.w_tiles == 2 and plan.schedule != "WS":
            changing["w_half"] = w_half

        def turn(step: Step) -> Nodes:
            place = replace(step, in_half=in_half, w_half=w_half)
            last.append(_remember(place, frozenset(changing), remembered))
            make, now = self.steps.at(place)
            before = replace(last[0], **{name: half * -1 + 1 for name, half in changing.items()})
            consume: Nodes = ()
            begin: Nodes = ()
            if remembered:
                flag = Expression.of(remembered[0][0]) + 1
                if plan.macs_first:
                    unchanged = replace(last[0], **changing)
                    begin = when(flag, ">", self._at(unchanged, self.outs.begin))
                    consume = when(flag, ">", self._at(before, self.outs.finish))
                else:
                    consume = when(flag, ">", self._at(before, self.outs.consume))
            return (
                *begin,
                *make,
                *self.loads.load(now),
                *consume,
                *(Assign(variable, value) for variable, value in remembered),
            )

        walk = self.steps.walk(group, turn)
        begin = (Assign(variable, Expression(constant=variable.low)) for variable, _ in remembered)
        behind = replace(last[0], **changing)
        return (
            *begin,
            *self.outs.open(behind),
            *walk,
            *self._at(behind, self.outs.consume),
            *self.outs.close(behind),
        )

    def _at(self, place: Step, work: Callable[[Step], Nodes]) -> Nodes:
        make, step = self.steps.at(place)
        return (*make, *work(step))


def _remember(
    place: Step, changing: Set[str], remembered: list[tuple[Variable, Expression]]
) -> Step:
    """``place`` in variables of its own, as far as it varies inside the loops; but for the halves
    that are ``changing`` in every step. The first variable is negative before there is a place."""
    values = {}
    for name in ("n", "m", "r", "c", "in_half", "w_half"):
        value = getattr(place, name)
        if not value.is_constant and name not in changing:
            low = value.low if remembered else -value.multiple
            copy = Variable(f"last_{name}", low, value.high, value.multiple)
            remembered.append((copy, value))
            values[name] = Expression.of(copy)
    return replace(place, **values)
