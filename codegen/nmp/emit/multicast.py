"""Convolutions whose tiles are shared: IN tiles by TLTs with the same rows and columns, W tiles by
those with the same filters, over the ring by TLEs.

The loops of a schedule walk steps: one tile of filters, one place of the OFM, one tile of
channels. With one buffer a step's transfers come in front of its MACs. With two, the transfers of
a step come in front of the MACs of the step before, which the variables ``last_...`` remember, and
the halves of the buffers take turns.
"""

from __future__ import annotations

from dataclasses import replace

from tvm_npu.codegen.errors import EmitError
from tvm_npu.codegen.fixed import FixedChain, FixedConv
from tvm_npu.codegen.nmp.emit.commands import (
    Affine,
    Assign,
    Compute,
    Nodes,
    Operand,
    Variable,
    loop,
    when,
)
from tvm_npu.codegen.nmp.emit.conventions import (
    MAC_DONE,
    W_ARRIVED,
    OnChip,
    out_registers,
    stored,
    stored_one_more,
    wait,
    wait_older_store,
    wait_store,
)
from tvm_npu.codegen.nmp.emit.layer import LayerCode, Operands, finish, require_fit
from tvm_npu.codegen.nmp.emit.step_loads import IN_HALF, W_HALF
from tvm_npu.codegen.nmp.emit.steps import OfmPlace, Step
from tvm_npu.codegen.nmp.emit.through_window import ThroughWindow
from tvm_npu.codegen.nmp.plan.conv_plan import ConvPlan
from tvm_npu.codegen.plan.problem import BIAS_BYTES, ConvProblem
from tvm_npu.sim.nmp.machine import NmpMachine
from tvm_npu.sim.nmp.xnmp import Initialise, MacRegister

HAS_LAST = Variable("has_last", 0, 1)
OUT_HALF = Variable("out_half", 0, 1)


class Multicast(ThroughWindow):
    """One tree for IS, OS and WS; with groups, the groups run one after another."""

    def __init__(
        self,
        layer: FixedConv | FixedChain,
        problem: ConvProblem,
        plan: ConvPlan,
        machine: NmpMachine,
        operands: Operands,
    ) -> None:
        conv = layer.conv if isinstance(layer, FixedChain) else layer
        super().__init__(conv, problem, plan, machine, operands)
        self.share_tiles()
        if isinstance(layer, FixedChain):
            self.take_window(layer.window, operands)
        self._lay_out()

    def _lay_out(self) -> None:
        """Offsets of the second halves, of the residual tile and of what a window needs."""
        plan, machine, name = self.plan, self.machine, self.layer.name
        in_bytes, w_bytes, middle_bytes = self.tile_bytes()
        filters, _, rows, columns = self.tile
        out_bytes = filters * rows * columns * self.size
        self.in_half_bytes, self.w_half_bytes = in_bytes, w_bytes
        self.out_half_elements = out_bytes // self.size
        mb0, mb1 = in_bytes * self.in_halves, w_bytes * self.w_halves
        self.second_offset = mb0 if plan.buffers == 2 or plan.keeps_in else 0
        second_bytes = out_bytes if self.problem.has_residual else 0
        self.middle_elements = 0
        biases = self.most.filters * BIAS_BYTES
        window = self.problem.window
        if window is not None:
            box = self.problem.middle_tile(rows, columns)
            second_bytes = max(second_bytes, filters * box[0] * box[1] * self.size)
            self.middle_elements = middle_bytes // self.size
            self.window_w_offset = mb1
            if window.has_weights:
                mb1 += self.most.filters * window.kernel[0] * window.kernel[1] * self.size
                biases *= 2
        mb0 = max(mb0, self.second_offset + second_bytes)
        twice = {1: "", 2: " (twice)"}
        require_fit(name, f"the IN tile{twice[self.in_halves]}", mb0, machine, "mb0")
        require_fit(name, f"the W tile{twice[self.w_halves]}", mb1, machine, "mb1")
        out = out_bytes * self.out_halves + self.middle_elements * self.size
        require_fit(name, f"the OUT tile{twice[self.out_halves]}", out, machine, "mb2")
        require_fit(name, "the biases of one TLT", biases, machine, "bias")
        if plan.buffers == 2 and machine.memories.ports < 2:
            raise EmitError(
                f"layer {name!r}: the plan has 2 buffers, which takes memories.ports = 2; machine "
                f"{machine.name!r} has {machine.memories.ports}"
            )
        if (plan.ring_in or plan.ring_weights) and machine.ring is None:
            raise EmitError(
                f"layer {name!r}: the plan uses the ring buses; machine {machine.name!r} has no "
                "[ring]"
            )
        if plan.keeps_in and (plan.schedule != "OS" or self.tile[1] < self.channels):
            raise EmitError(
                f"layer {name!r}: keeps_in needs schedule OS and tile_n = {self.channels}; the "
                f"plan has {plan.schedule} and {plan.tile_n}"
            )

    # The tree

    def code(self) -> LayerCode:
        halves = (
            (IN_HALF, self.in_halves), (W_HALF, self.w_halves), (OUT_HALF, self.out_halves),
        )  # fmt: skip
        nodes = (
            *(Assign(half, Affine(constant=1)) for half, count in halves if count == 2),
            *self.shared_in.open(),
            *self.shared_w.open(),
            *loop("group", self.problem.groups, 1, self._group),
            *self.shared_in.close(),
            *self.shared_w.close(),
        )
        return finish(self.parameters, nodes, self._early())

    def _early(self) -> Nodes:
        """Biases and the first W tile, in front of the barrier before this layer."""
        if not self.weights_come_early:
            return ()
        nothing = Affine()
        make, first = self.at(Step(*[nothing] * 8))
        biases = self.load_biases(self.bias_address, self.items)[:1]
        return (
            *when(self.items, ">", biases),
            *make,
            *self.own_weights(first, self._load_weights_part(first, W_ARRIVED)),
        )

    def _group(self, group: Affine, _: Affine) -> Nodes:
        """One group as a convolution of its own."""
        self.group = group
        bias = self.bias_address + group * (self.filters * BIAS_BYTES)
        biases = self.load_biases(bias, self.items)
        if self.weights_come_early:
            biases = biases[1:]
        biases = when(self.items, ">", (*biases, *self.window_loads()))
        if self.plan.buffers == 1:
            return (*biases, *self.steps(lambda step: (*self.load(step), *self._consume(step))))
        return (*biases, *self._pipeline())

    def _pipeline(self) -> Nodes:
        """Loads run one step ahead of the MACs."""
        remembered: list[tuple[Variable, Affine]] = []
        last: list[Step] = []

        def turn(step: Step) -> Nodes:
            place = replace(
                step,
                in_half=Affine.of(IN_HALF) if self.in_halves == 2 else Affine(),
                w_half=Affine.of(W_HALF) if self.w_halves == 2 else Affine(),
            )
            last.append(self._remember(place, remembered))
            make, now = self.at(place)
            return (
                *make,
                *self.load(now),
                *when(HAS_LAST, "!=", self._consume_at(last[0])),
                *(Assign(variable, value) for variable, value in remembered),
                Assign(HAS_LAST, Affine(constant=1)),
            )

        steps = self.steps(turn)
        begin = (Assign(variable, Affine(constant=variable.low)) for variable, _ in remembered)
        return (Assign(HAS_LAST, Affine()), *begin, *steps, *self._consume_at(last[0]))

    def _consume_at(self, place: Step) -> Nodes:
        make, step = self.at(place)
        return (*make, *self._consume(step))

    def _remember(self, place: Step, remembered: list[tuple[Variable, Affine]]) -> Step:
        """``place`` in variables of its own, as far as it varies inside the loops."""
        values = {}
        for name in ("m", "r", "c", "n", "in_half", "w_half"):
            value = getattr(place, name)
            if not value.is_constant:
                copy = Variable(f"last_{name}", value.low, value.high, value.multiple)
                remembered.append((copy, value))
                values[name] = Affine.of(copy)
        return replace(place, **values)

    # The MACs of a step, and the end of an OUT tile

    def _consume(self, step: Step) -> Nodes:
        make_place, at = self.under(step)
        offset = self._out_half * self.out_half_elements
        stored = (self.first_row + step.r, step.rows, self.first_column + step.c, step.columns)
        filter_ = self.group * self.filters + self.first_item + step.m
        if self.problem.window is None:
            out = out_registers(step.own, at.rows, at.columns, self.size, offset)
        else:
            out = out_registers(step.own, at.rows, at.columns, self.size)
            offset = offset + self.middle_elements
        w_waits = self.own_weights(step, self.shared_w.await_content(step.w_half))
        frees = (
            *self.last_of_in(step, self.shared_in.release(step.in_half)),
            *self.last_of_weights(step, self.shared_w.release(step.w_half)),
        )
        is_last = Affine.of(self.channels) - step.n - self.tile[1]
        work = (*make_place, *self._multiply_step(step, at, out))
        end: Nodes = self.requantize(out)
        second = Affine(constant=self.second_offset)
        early: Nodes = ()
        if self.problem.has_residual:
            load = self.out_transfer(True, filter_, step.own, *stored, OnChip(second))
            add = self.add_residual(out, second)
            if self.plan.buffers == 2:  # it has room of its own: under the last MACs
                early = self._has_work(step, when(is_last, ">", (), (load,)))
            else:
                add = (load, *add)
            work = (*work, *when(is_last, ">", (), add))
        if self.problem.window is not None:
            through = self.through_window(step, at, out, offset, second)
            work = (*work, *when(is_last, ">", (), (*end, *through)))
            end = ()
        store = self.out_transfer(False, filter_, step.own, *stored, OnChip(offset))
        end = (*end, store, *self._stored)
        in_waits = self.is_place(step, self.shared_in.await_content(step.in_half))
        return (
            *early,
            *self.loads_in(step, in_waits),
            *self.loads_weights(step, w_waits),
            *self._has_work(step, work),
            *frees,
            *self._has_work(step, when(is_last, ">", (), end)),
        )

    @property
    def _out_half(self) -> Affine:
        return Affine.of(OUT_HALF) if self.out_halves == 2 else Affine()

    @property
    def _stored(self) -> Nodes:
        return stored_one_more() if self.out_halves == 2 else stored()

    def _has_work(self, step: Step, nodes: Nodes) -> Nodes:
        return when(step.own, ">", self.is_place(step, nodes)) if nodes else ()

    def _multiply_step(
        self, step: Step, at: OfmPlace, out: dict[MacRegister, Operand]
    ) -> Nodes:
        """The products of one step, added to the OUT tile."""
        w_offset = step.w_half * self.w_half_bytes
        if self.plan.schedule == "WS":
            w_offset = w_offset + step.n * (self.taps * self.size)
            pitch = Affine.of(self.channels * self.taps)
        else:
            pitch = step.channels * self.taps

        def multiply(initialise: Initialise) -> Compute:
            return self.multiply(
                out, initialise, step.m, step.channels, w_offset, pitch, Affine.of(1), at.rows,
                at.columns, step.in_half * self.in_half_bytes,
            )  # fmt: skip

        begin: Nodes = wait_store()
        if self.out_halves == 2:
            begin = (Assign(OUT_HALF, Affine.of(OUT_HALF) * -1 + 1), *wait_older_store())
        return (
            *when(
                step.n, "==",
                (*begin, multiply(Initialise.BIAS)),
                (multiply(Initialise.KEEP),),
            ),
            wait(MAC_DONE),
        )  # fmt: skip
