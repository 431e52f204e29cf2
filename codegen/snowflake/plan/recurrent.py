"""How an LSTM or GRU layer runs on a Snowflake machine, and whether it fits.

All CUs hold the same states: mode coop deals the sums to their vMACs and sends the results to all
MBufs, and every CU makes the same elementwise operations. Of each time step the weights come tile
by tile; or all of them stay in the WBufs from the first step on, where they have room.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from tvm_npu.codegen.plan.planner import Planner
from tvm_npu.codegen.plan.problem import ConvProblem, Infeasible, Prediction
from tvm_npu.codegen.snowflake.plan.tiling import line
from tvm_npu.sim.description import MachineDescription
from tvm_npu.sim.snowflake.isa import LANES, VMACS, WORD_BYTES
from tvm_npu.sim.snowflake.machine import SnowflakeMachine

SYNC_CYCLES = 30
"""What a stream waits for the one whose results it reads: latency, and the core's `sync`."""


@dataclass(frozen=True)
class SumShape:
    """``rows`` sums of products with the input's elements, the state's, or both, behind ``biases``
    biases."""

    rows: int
    takes_input: bool
    takes_state: bool
    biases: int = 1


@dataclass(frozen=True)
class PhaseShape:
    """Sums, then elementwise operations on ``streamed`` words, ``looked_up`` of them by table, in
    ``streams`` operations that hang on each other."""

    sums: tuple[SumShape, ...]
    streamed: int
    looked_up: int
    streams: int


@dataclass(frozen=True)
class RecurrentShape:
    """``steps`` time steps of ``inputs`` elements to ``hidden``; ``vectors`` words of MBuf are
    needed beside the input; ``tables`` are the words of each table."""

    steps: int
    inputs: int
    hidden: int
    phases: tuple[PhaseShape, ...]
    vectors: int
    tables: tuple[int, ...]

    def kernel_words(self, one: SumShape) -> int:
        """Of a sum in a WBuf: biases a line each, weights in whole lines."""
        weights = one.takes_input * line(self.inputs) + one.takes_state * line(self.hidden)
        return LANES * one.biases + weights


@dataclass(frozen=True)
class RecurrentPlan:
    """``keeps_weights``: they come once, not in every time step. ``tile_words`` is what a tile of
    weights takes at most in a WBuf."""

    keeps_weights: bool
    tile_words: int
    prediction: Prediction | None = None
    planner: str = ""


@dataclass(frozen=True)
class GroupRange:
    """Groups ``begin`` to ``begin`` + ``count`` of a phase's sums number ``of``: as many rows as
    there are vMACs make a group."""

    of: int
    begin: int
    count: int


Tile = tuple[GroupRange, ...]


@dataclass(frozen=True)
class RecurrentGeometry:
    """The words and tiles that follow from shape, plan and machine."""

    shape: RecurrentShape
    plan: RecurrentPlan
    cus: int
    wbuf_words: int

    @property
    def together(self) -> int:
        return VMACS * self.cus

    @property
    def tables_at(self) -> tuple[int, ...]:
        """Words of the WBufs where the tables lie, behind all weights."""
        found, at = [], self.wbuf_words
        for words in self.shape.tables:
            at -= line(words)
            found.append(at)
        return tuple(found)

    @property
    def weights_room(self) -> int:
        return min(self.tables_at, default=self.wbuf_words)

    def groups(self, one: SumShape) -> int:
        return -(-one.rows // self.together)

    def phase_words(self, phase: PhaseShape) -> int:
        """Weights of a phase in a WBuf."""
        return sum(self.groups(one) * self.shape.kernel_words(one) for one in phase.sums)

    def tiles(self, phase: PhaseShape) -> tuple[Tile, ...]:
        """Groups in order, as many in a tile as even shares take."""
        total = self.phase_words(phase)
        even = -(-total // -(-total // self.plan.tile_words))
        found: list[Tile] = []
        ranges: list[GroupRange] = []
        used = 0
        for number, one in enumerate(phase.sums):
            words = self.shape.kernel_words(one)
            for group in range(self.groups(one)):
                if used and (used >= even or used + words > self.plan.tile_words):
                    found.append(tuple(ranges))
                    ranges, used = [], 0
                used += words
                if ranges and ranges[-1].of == number:
                    ranges[-1] = replace(ranges[-1], count=ranges[-1].count + 1)
                else:
                    ranges.append(GroupRange(number, group, 1))
        return (*found, tuple(ranges))

    @property
    def places(self) -> tuple[int, ...]:
        """Where tiles of weights lie, in turn."""
        count = len(self.shape.phases) if self.plan.keeps_weights else 2
        size = self.plan.tile_words
        return tuple(range(0, count * size, size)) if count * size <= self.weights_room else (0,)

    @property
    def fits(self) -> bool:
        if self.plan.keeps_weights:
            return len(self.shape.phases) * self.plan.tile_words <= self.weights_room
        return self.plan.tile_words <= self.weights_room


def recurrent_geometry(
    shape: RecurrentShape, plan: RecurrentPlan, machine: SnowflakeMachine
) -> RecurrentGeometry:
    return RecurrentGeometry(shape, plan, machine.clusters.cus, machine.wbuf_words)


@dataclass(frozen=True)
class WeightsChosen:
    """``planner``, but whether weights of recurrent layers stay on the chip (``keeps_weights``) is
    the caller's choice."""

    planner: Planner
    keeps_weights: bool

    @property
    def name(self) -> str:
        return self.planner.name

    def plan(self, problem: ConvProblem, machine: MachineDescription) -> Any:
        return self.planner.plan(problem, machine)


def recurrent_plan(
    shape: RecurrentShape, machine: SnowflakeMachine, keeps_weights: bool | None = None
) -> RecurrentPlan | Infeasible:
    """The faster one by predicted time; ``keeps_weights`` leaves no choice. Infeasible where a
    group of sums, the states or (if they have to stay) the weights do not fit."""
    needed = 2 * line(shape.inputs) + shape.vectors
    if needed > machine.mbuf_words:
        return Infeasible(
            "MBuf", WORD_BYTES * needed, machine.clusters.mbuf_bytes,
            "two inputs and the states with their gates do not fit",
            "use a machine with larger buffers",
        )  # fmt: skip
    choices = (False, True) if keeps_weights is None else (keeps_weights,)
    found = [
        replace(plan, prediction=_prediction(shape, plan, machine))
        for choice in choices
        for plan in _plans(shape, machine, choice)
    ]
    if found:
        return min(found, key=lambda one: one.prediction.cycles if one.prediction else 0.0)
    least = max(shape.kernel_words(one) for phase in shape.phases for one in phase.sums)
    if keeps_weights:
        whole = recurrent_geometry(shape, RecurrentPlan(True, least), machine)
        least = max(whole.phase_words(phase) for phase in shape.phases) * len(shape.phases)
    least += sum(map(line, shape.tables))
    return Infeasible(
        "WBuf", WORD_BYTES * least, machine.clusters.wbuf_bytes,
        "all weights and tables do not fit" if keeps_weights
        else "the weights of one sum and the tables do not fit",
        "use a machine with larger buffers",
    )  # fmt: skip


def _plans(
    shape: RecurrentShape, machine: SnowflakeMachine, keeps_weights: bool
) -> Iterator[RecurrentPlan]:
    """The one with the largest tiles."""
    probe = recurrent_geometry(shape, RecurrentPlan(keeps_weights, LANES), machine)
    largest = max(probe.phase_words(phase) for phase in shape.phases)
    group = max(shape.kernel_words(one) for phase in shape.phases for one in phase.sums)
    half = probe.weights_room // 2 // LANES * LANES
    if keeps_weights:
        sizes = [largest]
    else:
        sizes = [min(largest, half)] if group <= half else [probe.weights_room]
    for size in sizes:
        plan = RecurrentPlan(keeps_weights, size)
        if size >= group and recurrent_geometry(shape, plan, machine).fits:
            yield plan


def _prediction(
    shape: RecurrentShape, plan: RecurrentPlan, machine: SnowflakeMachine
) -> Prediction:
    """Loads of a step's weights, or what is computed from them: whichever takes longer."""
    found = recurrent_geometry(shape, plan, machine)
    weights = WORD_BYTES * found.together * sum(map(found.phase_words, shape.phases))
    sums = sum(
        found.groups(one) * shape.kernel_words(one) // LANES
        for phase in shape.phases
        for one in phase.sums
    )
    rate = machine.vector.table_words_per_cycle
    streams = sum(
        (phase.streamed - phase.looked_up) / LANES + phase.looked_up / rate
        + SYNC_CYCLES * phase.streams
        for phase in shape.phases
    )  # fmt: skip
    times = 1 if plan.keeps_weights else shape.steps
    in_bytes = WORD_BYTES * shape.steps * shape.inputs
    out_bytes = WORD_BYTES * shape.steps * shape.hidden
    load = (in_bytes + times * weights) / machine.memory_bytes_per_cycle
    store = out_bytes / machine.memory_bytes_per_cycle
    computed = shape.steps * (sums + streams)
    cycles = max(load + store, computed)
    if plan.keeps_weights:
        cycles = weights / machine.memory_bytes_per_cycle + computed
    return Prediction(
        cycles, float(sums * shape.steps), load, store, in_bytes, times * weights, out_bytes,
        bound="dram" if cycles > computed and not plan.keeps_weights else "mac",
    )  # fmt: skip
