"""Convolutions whose tiles are shared: IN tiles by TLTs with the same rows and columns, W tiles by
those with the same filters, over the ring by TLEs.

The loops of a schedule walk steps: one tile of filters, one place of the OFM, one tile of
channels. With one buffer a step's transfers come in front of its MACs. With two, the transfers of
a step come in front of the MACs of the step before, which the variables ``last_...`` remember, and
the halves of the buffers take turns.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, replace

from tvm_npu.codegen.errors import EmitError
from tvm_npu.codegen.fixed import FixedConv
from tvm_npu.codegen.nmp.commands import (
    Affine,
    Assign,
    Compute,
    Nodes,
    Transfer,
    Variable,
    clamped,
    loop,
    product,
    when,
)
from tvm_npu.codegen.nmp.conv_tiles import BIAS_BYTES, ConvolutionTiles
from tvm_npu.codegen.nmp.conventions import (
    CORE,
    IN_ARRIVED,
    IN_FREE,
    IN_GO,
    MAC_DONE,
    TLT,
    W_ARRIVED,
    W_FREE,
    W_GO,
    OnChip,
    out_registers,
    run_transfer,
    stored,
    stored_one_more,
    wait,
    wait_older_store,
    wait_store,
)
from tvm_npu.codegen.nmp.layer import LayerCode, Operands, finish, require_fit
from tvm_npu.codegen.nmp.shared_buffer import SharedBuffer
from tvm_npu.codegen.nmp.weights import group_bytes, is_tiled
from tvm_npu.codegen.plan.problem import ConvPlan, ConvProblem
from tvm_npu.sim.isa.xnmp import Initialise, Level, Memory
from tvm_npu.sim.machine import Machine
from tvm_npu.sim.streams import Stream

HAS_LAST = Variable("has_last", 0, 1)
IN_HALF, W_HALF, OUT_HALF = (Variable(f"{name}_half", 0, 1) for name in ("in", "w", "out"))


@dataclass(frozen=True)
class Step:
    """One tile of each loop: where it begins and how much of it this TLT has (0: nothing, but it
    may have to load for others); and the halves of the buffers that hold IN and W."""

    m: Affine
    own: Affine
    r: Affine
    rows: Affine
    c: Affine
    columns: Affine
    n: Affine
    channels: Affine
    in_half: Affine = Affine()
    w_half: Affine = Affine()


class Multicast(ConvolutionTiles):
    """One tree for IS, OS and WS; with groups, the groups run one after another."""

    def __init__(
        self,
        layer: FixedConv,
        problem: ConvProblem,
        plan: ConvPlan,
        machine: Machine,
        operands: Operands,
    ) -> None:
        super().__init__(layer, problem, plan, machine, operands)
        self.group = Affine()
        self._deal_turns()
        self._share_in()
        self._share_weights()
        self._lay_out()

    # Who turns how often, who loads for whom, what lies where

    def _deal_turns(self) -> None:
        """Loops turn as often as the TLT that has most of those that keep in step."""
        plan, number = self.plan, self.parameters.number
        everywhere = plan.ring_in or plan.ring_weights
        self.turns_rows, self.turns_columns, self.turns_items = (
            number(f"most_{name}", most) if most != own else value
            for name, value, own, most in (
                (
                    name,
                    value,
                    self.shares.values(lambda one, name=name: getattr(one, name)),  # type: ignore[misc]
                    self.shares.most(lambda one, name=name: getattr(one, name), everywhere),  # type: ignore[misc]
                )
                for name, value in (
                    ("rows", self.rows), ("columns", self.columns), ("items", self.items),
                )
            )
        )  # fmt: skip
        filters, channels, rows, columns = self.tile
        turns = [
            -(-most // tile)
            for most, tile in (
                (self.most.filters, filters), (self.channels, channels),
                (self.most.rows, rows), (self.most.columns, columns),
            )
        ]  # fmt: skip
        places = turns[2] * turns[3]
        in_loads = places * turns[1] * (1 if plan.keeps_in else turns[0])
        w_loads = turns[0] * (1 if plan.schedule == "WS" else places * turns[1])
        self.in_halves, self.w_halves, self.out_halves = (
            min(plan.buffers, uses) for uses in (in_loads, w_loads, places * turns[0])
        )

    def _share_in(self) -> None:
        plan, shares, number = self.plan, self.shares, self.parameters.number
        places = plan.tlt_rows * plan.tlt_columns
        runs = shares.tlts // places
        self.in_parts = plan.filter_slices if plan.ring_in else 1
        cores = range(len(shares.cores))
        tlts = [shares.mask(core, lambda one: one.place, of_tles=False) for core in cores]
        self.in_mnemonic = "nmp_mload" if runs > 1 or plan.ring_in else "nmp_load"
        self.in_tlts = Affine()
        if places > 1:
            self.in_tlts = number("in_tlts", tlts)
        self.in_tles = Affine()
        if plan.ring_in:
            tles = [shares.mask(core, lambda one: one.tle_place, of_tles=True) for core in cores]
            self.in_tles = number("in_tles", tles)
        self.in_part_channels = -(-self.tile[1] // self.in_parts)
        self.in_part = number(
            "in_part", shares.values(lambda one: one.tle_run * self.in_part_channels)
        ) if plan.ring_in else Affine()
        level = Level.GLOBAL if plan.ring_in else Level.TLE if runs > 1 else None
        loads = shares.values(lambda one: int(one.run == 0))
        self.shared_in = self._buffer(level, loads, "loads_in", IN_FREE, IN_GO, self.in_halves)

    def _share_weights(self) -> None:
        plan, shares, number = self.plan, self.shares, self.parameters.number
        places = plan.tlt_rows * plan.tlt_columns
        sharing = plan.row_slices * plan.column_slices if plan.ring_weights else 1
        cores = range(len(shares.cores))
        self.w_mnemonic = "nmp_load" if places == 1 else "nmp_mload"
        self.w_tlts = Affine()
        if places > 1:
            tlts = [shares.mask(core, lambda one: one.run, of_tles=False) for core in cores]
            self.w_tlts = number("w_tlts", tlts)
        self.w_tles = Affine()
        if plan.ring_weights:
            tles = [shares.mask(core, lambda one: one.tle_run, of_tles=True) for core in cores]
            self.w_tles = number("w_tles", tles)
        self.w_parts = sharing
        self.w_part_filters = -(-self.tile[0] // sharing)
        self.w_part = number(
            "w_part",
            shares.values(
                lambda one: (one.tle_place + one.run) % sharing * self.w_part_filters
            ),
        ) if sharing > 1 else Affine()
        level = Level.GLOBAL if plan.ring_weights else Level.TLE if places > 1 else None
        loads = shares.values(lambda one: int(one.place == 0))
        self.shared_w = self._buffer(level, loads, "loads_weights", W_FREE, W_GO, self.w_halves)

    def _buffer(
        self,
        level: Level | None,
        loads: list[int],
        name: str,
        free: tuple[int, int],
        go: int,
        halves: int,
    ) -> SharedBuffer:
        active = self.shares.active
        if level is None:
            return SharedBuffer(None, TLT, 1, 1, Affine(constant=1), free, go, halves)
        scope = len(active) if level == Level.GLOBAL else self.shares.tlts
        first = active.index(True) // scope * scope
        members = sum(active[first : first + scope])
        loaders = sum(loads[first : first + scope])
        flag = Affine()
        if loaders > 1:
            flag = self.parameters.number(name, loads)
        leader = CORE if level == Level.GLOBAL else TLT
        return SharedBuffer(level, leader, members, loaders, flag, free, go, halves)

    def _lay_out(self) -> None:
        """Offsets of the second halves, and of the residual tile."""
        plan, machine, name = self.plan, self.machine, self.layer.name
        in_bytes, w_bytes, out_bytes = self.tile_bytes()
        self.in_half_bytes, self.w_half_bytes = in_bytes, w_bytes
        self.out_half_elements = out_bytes // self.size
        mb0, mb1 = in_bytes * self.in_halves, w_bytes * self.w_halves
        self.residual_offset = 0
        if self.problem.has_residual and (plan.buffers == 2 or plan.keeps_in):
            self.residual_offset = mb0
            mb0 += out_bytes
        biases = self.most.filters * BIAS_BYTES
        twice = {1: "", 2: " (twice)"}
        require_fit(name, f"the IN tile{twice[self.in_halves]}", mb0, machine, "mb0")
        require_fit(name, f"the W tile{twice[self.w_halves]}", mb1, machine, "mb1")
        out = out_bytes * self.out_halves
        require_fit(name, f"the OUT tile{twice[self.out_halves]}", out, machine, "mb2")
        require_fit(name, "the biases of one TLT", biases, machine, "bias")
        if self.problem.has_residual:
            require_fit(name, "the residual tile", out_bytes, machine, "mb0")
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
        return finish(
            self.parameters,
            (
                *(Assign(half, Affine(constant=1)) for half, count in halves if count == 2),
                *self.shared_in.open(),
                *self.shared_w.open(),
                *loop("group", self.problem.groups, 1, self._group),
                *self.shared_in.close(),
                *self.shared_w.close(),
            ),
        )

    def _group(self, group: Affine, _: Affine) -> Nodes:
        """One group as a convolution of its own."""
        self.group = group
        bias = self.bias_address + group * (self.filters * BIAS_BYTES)
        biases = when(self.items, ">", self.load_biases(bias, self.items))
        if self.plan.buffers == 1:
            return (*biases, *self._steps(lambda step: (*self._load(step), *self._consume(step))))
        return (*biases, *self._pipeline())

    def _pipeline(self) -> Nodes:
        """Loads run one step ahead of the MACs."""
        remembered: list[tuple[Variable, Affine]] = []
        last: list[Step] = []

        def turn(step: Step) -> Nodes:
            step = replace(
                step,
                in_half=Affine.of(IN_HALF) if self.in_halves == 2 else Affine(),
                w_half=Affine.of(W_HALF) if self.w_halves == 2 else Affine(),
            )
            last.append(self._remember(step, remembered))
            return (
                *self._load(step),
                *when(HAS_LAST, "!=", self._consume(last[0])),
                *(Assign(variable, value) for variable, value in remembered),
                Assign(HAS_LAST, Affine(constant=1)),
            )

        steps = self._steps(turn)
        return (Assign(HAS_LAST, Affine()), *steps, *self._consume(last[0]))

    def _remember(self, step: Step, remembered: list[tuple[Variable, Affine]]) -> Step:
        """``step`` in variables of its own, as far as it varies inside the loops."""
        fixed = {*self.parameters.variables, *self.group.variables}
        copies: dict[Affine, Affine] = {}
        values = {}
        for field in fields(step):
            value = getattr(step, field.name)
            if not value.variables <= fixed:
                if value not in copies:
                    copy = Variable(f"last_{field.name}", value.low, value.high, value.multiple)
                    copies[value] = Affine.of(copy)
                    remembered.append((copy, value))
                value = copies[value]
            values[field.name] = value
        return Step(**values)

    def _steps(self, body: Callable[[Step], Nodes]) -> Nodes:
        """The loops of the schedule around ``body``."""
        filters, channels, rows, columns = self.tile

        def over_filters(inner: Callable[[Affine, Affine], Nodes]) -> Nodes:
            return self._axis("filter", self.items, self.turns_items, filters, inner)

        def over_places(inner: Callable[[Affine, Affine, Affine, Affine], Nodes]) -> Nodes:
            return self._axis(
                "row", self.rows, self.turns_rows, rows,
                lambda r, own_rows: self._axis(
                    "column", self.columns, self.turns_columns, columns,
                    lambda c, own_columns: inner(r, own_rows, c, own_columns),
                ),
            )  # fmt: skip

        def over_channels(*tile: Affine) -> Nodes:
            return loop(
                "channel", self.channels, channels, lambda n, extent: body(Step(*tile, n, extent))
            )

        if self.plan.schedule == "WS":
            return over_filters(
                lambda m, own: over_places(lambda *place: over_channels(m, own, *place))
            )
        return over_places(
            lambda *place: over_filters(lambda m, own: over_channels(m, own, *place))
        )

    @staticmethod
    def _axis(
        name: str, own: Affine, turns: Affine, tile: int, inner: Callable[[Affine, Affine], Nodes]
    ) -> Nodes:
        """A loop that ends with the TLT that has most; ``inner`` gets (index, own extent)."""
        if own == turns:
            return loop(name, own, tile, inner)

        def turn(index: Affine, _: Affine) -> Nodes:
            extent, make = clamped(f"own_{name}", tile, own - index)
            return (*make, *inner(index, extent))

        return loop(name, turns, tile, turn)

    # Which steps load, and which are a content's last

    def _loads_in(self, step: Step, nodes: Nodes) -> Nodes:
        """``nodes`` in steps that bring a new IN tile."""
        return when(step.m, "==", nodes) if self.plan.keeps_in else nodes

    def _loads_weights(self, step: Step, nodes: Nodes) -> Nodes:
        if self.plan.schedule != "WS":
            return nodes
        return when(step.r + step.c + step.n, "==", nodes)

    def _last_of_in(self, step: Step, nodes: Nodes) -> Nodes:
        """``nodes`` in the last step that needs the IN tile."""
        if not self.plan.keeps_in:
            return nodes
        return when(self.turns_items - step.m - self.tile[0], ">", (), nodes)

    def _last_of_weights(self, step: Step, nodes: Nodes) -> Nodes:
        if self.plan.schedule != "WS":
            return nodes
        _, channels, rows, columns = self.tile
        if not nodes:
            return ()
        for rest in (
            Affine.of(self.channels) - step.n - channels,
            self.turns_columns - step.c - columns,
            self.turns_rows - step.r - rows,
        ):
            nodes = when(rest, ">", (), nodes)
        return nodes

    def _is_place(self, step: Step, nodes: Nodes) -> Nodes:
        """``nodes`` where this TLT has rows and columns."""
        return when(step.rows, ">", when(step.columns, ">", nodes))

    # The transfers of a step

    def _load(self, step: Step) -> Nodes:
        flip_in: Nodes = ()
        flip_w: Nodes = ()
        if self.in_halves == 2:
            flip_in = (Assign(IN_HALF, Affine.of(IN_HALF) * -1 + 1),)
        if self.w_halves == 2:
            flip_w = (Assign(W_HALF, Affine.of(W_HALF) * -1 + 1),)
        load_in = self._is_place(step, self._load_in_part(step))
        load_w = when(step.own, ">", self._load_weights_part(step))
        if self.shared_w.level is None:
            load_w = load_w if self.plan.schedule == "WS" else self._is_place(step, load_w)
        return (
            *self._loads_in(step, (*flip_in, *self.shared_in.acquire(step.in_half, load_in))),
            *self._loads_weights(step, (*flip_w, *self.shared_w.acquire(step.w_half, load_w))),
        )

    def _load_in_part(self, step: Step) -> Nodes:
        """The IN tile, or this TLE's part of it where TLEs share it over the ring."""
        half = step.in_half * self.in_half_bytes
        place = (self.first_row + step.r, step.rows, self.first_column + step.c, step.columns)
        first = self.group * self.channels + step.n

        def load(channel: Affine, channels: Affine, offset: Affine) -> Transfer:
            on_chip = OnChip(half + offset, self.in_tlts, self.in_tles)
            return self.load_in(self.in_mnemonic, channel, channels, *place, on_chip)

        if self.in_parts == 1:
            return (load(first, step.channels, Affine()),)
        count, make_count = clamped(
            "in_channels", self.in_part_channels, step.channels - self.in_part
        )
        area, make_area = product(
            "in_area", self.in_extent(0, step.rows), self.in_extent(1, step.columns)
        )
        offset, make_offset = product("in_offset", self.in_part, area * self.size)
        part = (*make_area, *make_offset, load(first + self.in_part, count, offset))
        return (*make_count, *when(count, ">", part, (self._no_load("mb0"),)))

    def _load_weights_part(self, step: Step) -> Nodes:
        """The W tile, or this TLE's part of it."""
        plan, size = self.plan, self.size
        channels = Affine.of(self.channels) if plan.schedule == "WS" else step.channels
        n = Affine() if plan.schedule == "WS" else step.n
        half = step.w_half * self.w_half_bytes
        address = self.w_address + self.group * group_bytes(plan, self.problem, self.shares)
        address = address + step.m * self.filter_bytes
        tiled = is_tiled(plan, self.problem)
        address = address + n * (self.taps * size * (self.tile[0] if tiled else 1))

        def load(address: Affine, filters: Affine, offset: Affine) -> Nodes:
            on_chip = OnChip(half + offset, self.w_tlts, self.w_tles)
            if not tiled:
                return (self.load_weights(self.w_mnemonic, address, filters, channels, on_chip),)
            bytes_, make = product("w_bytes", filters, channels * (self.taps * size))
            run = run_transfer(
                self.w_mnemonic, Stream.WEIGHT, Memory.MB1, address, W_ARRIVED, bytes_, size,
                on_chip,
            )  # fmt: skip
            return (*make, run)

        if self.w_parts == 1:
            return load(address, step.own, Affine())
        count, make_count = clamped("w_filters", self.w_part_filters, step.own - self.w_part)
        offset, make_offset = product("w_offset", self.w_part, channels * (self.taps * size))
        begin = address + (offset if tiled else self.w_part * self.filter_bytes)
        part = (*make_offset, *load(begin, count, offset))
        return (*make_count, *when(count, ">", part, (self._no_load("mb1"),)))

    def _no_load(self, memory: str) -> Transfer:
        """A transfer of nothing, so that all receivers count as many arrivals in every step."""
        is_in = memory == "mb0"
        return run_transfer(
            self.in_mnemonic if is_in else self.w_mnemonic,
            Stream.IN if is_in else Stream.WEIGHT,
            Memory.MB0 if is_in else Memory.MB1,
            self.in_address if is_in else self.w_address,
            IN_ARRIVED if is_in else W_ARRIVED,
            0, self.size,
            OnChip(
                Affine(),
                self.in_tlts if is_in else self.w_tlts,
                self.in_tles if is_in else self.w_tles,
            ),
        )  # fmt: skip

    # The MACs of a step, and the end of an OUT tile

    def _consume(self, step: Step) -> Nodes:
        problem = self.problem
        out = out_registers(
            step.own, step.rows, step.columns, self.size, self._out_half * self.out_half_elements
        )
        w_waits = when(step.own, ">", (wait(W_ARRIVED, self.w_parts),))
        if self.shared_w.level is None and self.plan.schedule != "WS":
            w_waits = self._is_place(step, w_waits)
        frees = (
            *self._last_of_in(step, self.shared_in.release(step.in_half)),
            *self._last_of_weights(step, self.shared_w.release(step.w_half)),
        )
        is_last = Affine.of(self.channels) - step.n - self.tile[1]
        work = self._multiply_step(step, out)
        filter_ = self.group * self.filters + self.first_item + step.m
        place = (self.first_row + step.r, step.rows, self.first_column + step.c, step.columns)
        offset = self._out_half * self.out_half_elements
        store = self.out_transfer(False, filter_, step.own, *place, OnChip(offset))
        end: Nodes = (*self.requantize(out), store, *self._stored)
        if not problem.has_residual:
            return (
                *self._loads_in(step, self._is_place(step, (wait(IN_ARRIVED, self.in_parts),))),
                *self._loads_weights(step, w_waits),
                *self._has_work(step, work),
                *frees,
                *self._has_work(step, when(is_last, ">", (), end)),
            )
        residual = Affine(constant=self.residual_offset)
        load = self.out_transfer(True, filter_, step.own, *place, OnChip(residual))
        add = self.add_residual(out, load, residual)
        return (
            *self._loads_in(step, self._is_place(step, (wait(IN_ARRIVED, self.in_parts),))),
            *self._loads_weights(step, w_waits),
            *self._has_work(step, (*work, *when(is_last, ">", (), add))),
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
        return when(step.own, ">", self._is_place(step, nodes)) if nodes else ()

    def _multiply_step(self, step: Step, out: dict) -> Nodes:  # type: ignore[type-arg]
        """The products of one step, added to the OUT tile."""
        w_offset = step.w_half * self.w_half_bytes
        if self.plan.schedule == "WS":
            w_offset = w_offset + step.n * (self.taps * self.size)
            pitch = Affine.of(self.channels * self.taps)
        else:
            pitch = step.channels * self.taps

        def multiply(initialise: Initialise) -> Compute:
            return self.multiply(
                out, initialise, step.m, step.channels, w_offset, pitch, Affine.of(1), step.rows,
                step.columns, step.in_half * self.in_half_bytes,
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
