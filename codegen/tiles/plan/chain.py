"""Chains on tile machines: a convolution, with or without a depthwise one behind it, and a
pointwise convolution behind that, strip by strip of OFM rows; what lies between never leaves the
chip.

A strip's rows of the IFM come once (under a depthwise head, those of a round's channels). Rounds go
over the channels that the pointwise convolution reads: the head makes a round's, with the rows that
windows of this strip see (halos between strips are made twice), the depthwise convolution takes
them on, and the pointwise one adds its products to the OUT tile, which is finished and stored with
the last round. In the output memory lie the head's tile, the depthwise one's and the OUT tile.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from math import prod
from typing import Literal

from tvm_npu.codegen.plan.faults import PlanFault
from tvm_npu.codegen.plan.loops.axes import shared_rows
from tvm_npu.codegen.plan.loops.plan import Range, in_extent
from tvm_npu.codegen.plan.loops.room import aligned, part_bytes
from tvm_npu.codegen.plan.problem import ConvProblem
from tvm_npu.sim.lazy import cached_property
from tvm_npu.sim.machine_parts import BIAS_BYTES
from tvm_npu.sim.tiles.machine import SharedMemory, TileMachine


@dataclass(frozen=True)
class ChainProblem:
    """``head`` is a convolution over all channels, or a depthwise one with no ``middle`` behind it;
    ``middle`` is depthwise. ``adds_input``: the tensor that ``point`` adds is the chain's input."""

    head: ConvProblem
    middle: ConvProblem | None
    point: ConvProblem
    adds_input: bool = False

    def __hash__(self) -> int:
        return self._hash

    @cached_property
    def _hash(self) -> int:
        """Planners ask about the same chain many times."""
        return hash((self.head, self.middle, self.point, self.adds_input))

    @property
    def element_bytes(self) -> int:
        return self.head.element_bytes

    @property
    def is_depthwise(self) -> bool:
        """A round reads its own channels of the IFM only."""
        return self.head.groups > 1

    @cached_property
    def convolutions(self) -> tuple[ConvProblem, ...]:
        return tuple(one for one in (self.head, self.middle, self.point) if one is not None)


@dataclass(frozen=True)
class ChainPlan:
    """``tile_rows`` of the OFM in a strip, ``tile_channels`` of what the pointwise convolution
    reads in a round; with two ``buffers`` weights, IN and OUT tiles have two places that take
    turns, those of which there is more than one. ``keeps_rows``: rows of the IFM that the strip
    before has, too, move from its IN tile on chip."""

    tile_rows: int
    tile_channels: int
    buffers: Literal[1, 2]
    moved_bytes: int
    planner: str = ""
    keeps_rows: bool = False


@dataclass(frozen=True)
class Strip:
    """Rows of the OFM, of what the depthwise convolution reads, and of the IFM: (begin, count), and
    how many in front of the first are padding."""

    rows: Range
    middle: tuple[int, int, int]
    inputs: tuple[int, int, int]


@dataclass(frozen=True)
class ChainTiles:
    """What ``tile_rows`` and ``tile_channels`` cut a chain into. In a run (`plan.run`) ``held``
    means that the IFM lies on chip, whole, when the chain begins, and ``kept`` that the OFM stays
    there: nothing loads the one, nothing stores the other."""

    problem: ChainProblem
    tile_rows: int
    tile_channels: int
    keeps_rows: bool = False
    held: bool = False
    kept: bool = False

    @cached_property
    def strips(self) -> tuple[Strip, ...]:
        total = self.problem.point.rows
        begins = range(0, total, self.tile_rows)
        return tuple(self._strip(at, min(self.tile_rows, total - at)) for at in begins)

    def _strip(self, begin: int, count: int) -> Strip:
        problem, middle = self.problem, (begin, count, 0)
        if problem.middle is not None:
            middle = in_extent(problem.middle, begin, count, "R")
        return Strip((begin, count), middle, in_extent(problem.head, *middle[:2], "R"))

    @cached_property
    def rounds(self) -> tuple[Range, ...]:
        total, each = self.problem.point.channels, self.tile_channels
        return tuple((at, min(each, total - at)) for at in range(0, total, each))

    @property
    def weights_stay(self) -> bool:
        """All weights are loaded once."""
        return len(self.rounds) == 1

    @property
    def input_stays(self) -> bool:
        """The whole IFM lies in the one IN tile, which can be the residual tile, too."""
        return self.held or (len(self.strips) == 1 and not self.problem.is_depthwise)

    @property
    def loads_residual(self) -> bool:
        problem = self.problem
        return problem.point.has_residual and not (problem.adds_input and self.input_stays)

    @cached_property
    def in_bytes(self) -> int:
        """Of the largest IN tile."""
        head = self.problem.head
        if self.held:
            return head.channels * head.in_rows * head.in_columns * head.element_bytes
        channels = self.tile_channels if self.problem.is_depthwise else head.channels
        rows = max(strip.inputs[1] for strip in self.strips)
        return channels * rows * head.in_columns * head.element_bytes

    @property
    def residual_bytes(self) -> int:
        point = self.problem.point
        if not self.loads_residual:
            return 0
        return point.filters * self.tile_rows * point.columns * point.element_bytes

    @cached_property
    def weight_bytes(self) -> tuple[int, ...]:
        """Of a round's weights of each convolution."""
        size, channels, point = self.problem.element_bytes, self.tile_channels, self.problem.point
        front = [
            channels * (one.channels // one.groups) * prod(one.kernel) * size
            for one in self.problem.convolutions[:-1]
        ]
        return (*front, point.filters * channels * size)

    @cached_property
    def out_bytes(self) -> tuple[int, ...]:
        """Of the tiles in the output memory, sums each: the head's, the depthwise one's, OUT."""
        head, middle, point = self.problem.head, self.problem.middle, self.problem.point
        width, channels = point.accumulator_bytes, self.tile_channels
        rows = max(strip.middle[1] for strip in self.strips)
        tiles = [channels * rows * head.columns * width]
        if middle is not None:
            tiles.append(channels * self.tile_rows * middle.columns * width)
        return (*tiles, point.filters * self.tile_rows * point.columns * width)

    @property
    def map_bytes(self) -> int:
        """Of the OFM as elements."""
        point = self.problem.point
        return point.filters * point.rows * point.columns * point.element_bytes

    @property
    def bias_bytes(self) -> int:
        """Of all convolutions."""
        return BIAS_BYTES * sum(one.filters for one in self.problem.convolutions)

    def moved_bytes(self) -> int:
        """All loads and stores."""
        problem, size, head = self.problem, self.problem.element_bytes, self.problem.head
        rows = 0 if self.held else sum(strip.inputs[1] for strip in self.strips)
        if self.keeps_rows:
            pairs = zip(self.strips, self.strips[1:], strict=False)
            rows -= sum(shared_rows(one.inputs[:2], other.inputs[:2]) for one, other in pairs)
        weights = sum(
            one.filters * (one.channels // one.groups) * prod(one.kernel) * size
            for one in problem.convolutions
        )
        moved = head.channels * rows * head.in_columns * size + self.bias_bytes
        moved += weights * (1 if self.weights_stay else len(self.strips))
        return moved + self.map_bytes * (self.loads_residual + (not self.kept))


@dataclass(frozen=True)
class ChainPlaces:
    """Bytes from the begin of their memories. By turn: the IN tile, the residual tile, weights of
    each convolution, the OUT tile; ``between``: the tiles of the head and of the depthwise
    convolution, which only the engine touches; ``biases``: those of the first convolution, before
    those of the others. An OFM that is kept lies at the begin of the input memory."""

    inputs: tuple[int, ...]
    residuals: tuple[int, ...]
    weights: tuple[tuple[int, ...], ...]
    between: tuple[int, ...]
    outputs: tuple[int, ...]
    biases: int = 0


@dataclass(frozen=True)
class Seat:
    """A chain's place in a run. Weights come in turns that go on from chain to chain: ``turn`` of
    them came before; ``biases``: bytes of those of the chains before."""

    turn: int
    biases: int


Need = tuple[str, int, int]
"""What takes room, how many bytes, and how many there are."""


def chain_needs(
    tiles: ChainTiles, buffers: int, machine: TileMachine, seat: Seat | None = None
) -> Iterator[Need]:
    """All that must fit: each memory of its own. An OFM that is kept comes over the IN tile, which
    nobody reads any more then, but in front of those of several strips."""
    memories = machine.memories
    assert not isinstance(memories, SharedMemory)
    before = 0 if seat is None else seat.biases
    yield "biases", before + tiles.bias_bytes, memories.bias_bytes
    if tiles.kept:
        yield "the OFM that stays in the input memory", tiles.map_bytes, memories.input_bytes
    room = part_bytes(memories.weight_bytes, _weight_parts(tiles, buffers, seat))
    yield "weights", _in_a_row(tiles.weight_bytes)[1], room
    yield "sums", _in_a_row(_sums(tiles, buffers))[1], memories.output_bytes
    in_room = part_bytes(memories.input_bytes - _in_begin(tiles), _in_parts(tiles, buffers))
    needed = aligned(tiles.in_bytes) + aligned(tiles.residual_bytes)
    yield "IN and residual tile", needed, in_room


def fits(tiles: ChainTiles, buffers: int, machine: TileMachine, seat: Seat | None = None) -> bool:
    """Whether there is room for all; never where all tiles share one memory."""
    if isinstance(machine.memories, SharedMemory):
        return False
    needs = chain_needs(tiles, buffers, machine, seat)
    return all(needed <= room for _, needed, room in needs)


def room_fault(needs: Iterable[Need]) -> PlanFault | None:
    """What first lacks room."""
    for what, needed, room in needs:
        if needed > room:
            return PlanFault(f"bytes of {what}", needed, f"at most {room}")
    return None


def least_need(tries: Iterable[ChainTiles], machine: TileMachine, seat: Seat | None = None) -> Need:
    """Of tiles none of which fit, the one with which least is lacking, with one buffer: what lacks
    most room there."""

    def lacking(need: Need) -> int:
        return need[1] - need[2]

    worst = (max(chain_needs(tiles, 1, machine, seat), key=lacking) for tiles in tries)
    return min(worst, key=lacking)


def _in_begin(tiles: ChainTiles) -> int:
    """Where IN tiles begin."""
    return aligned(tiles.map_bytes) if tiles.kept and len(tiles.strips) > 1 else 0


def _in_parts(tiles: ChainTiles, buffers: int) -> int:
    return 1 if tiles.input_stays else buffers


def _weight_parts(tiles: ChainTiles, buffers: int, seat: Seat | None) -> int:
    return 1 if tiles.weights_stay and seat is None else buffers


def _sums(tiles: ChainTiles, buffers: int) -> tuple[int, ...]:
    """Sizes of the tiles in the output memory; the engine alone touches those of a kept OFM."""
    *between, out = tiles.out_bytes
    return (*between, *(out,) * (1 if len(tiles.strips) == 1 or tiles.kept else buffers))


def chain_places(
    tiles: ChainTiles, buffers: int, machine: TileMachine, seat: Seat | None = None
) -> ChainPlaces | None:
    """None where the tiles do not fit: a memory of their own each for inputs, weights, outputs."""
    memories = machine.memories
    if isinstance(memories, SharedMemory) or not fits(tiles, buffers, machine, seat):
        return None
    begin, in_parts = _in_begin(tiles), _in_parts(tiles, buffers)
    in_room = part_bytes(memories.input_bytes - begin, in_parts)
    inputs = tuple(begin + turn * in_room for turn in range(in_parts))
    weight_parts = _weight_parts(tiles, buffers, seat)
    weight_room = part_bytes(memories.weight_bytes, weight_parts)
    own, _ = _in_a_row(tiles.weight_bytes)
    first, turns = (0 if seat is None else seat.turn), 1 if tiles.weights_stay else weight_parts
    offsets, _ = _in_a_row(_sums(tiles, buffers))
    between = len(tiles.out_bytes) - 1
    return ChainPlaces(
        inputs,
        tuple(at + aligned(tiles.in_bytes) for at in inputs),
        tuple(
            tuple((first + turn) % weight_parts * weight_room + at for at in own)
            for turn in range(turns)
        ),
        offsets[:between],
        offsets[between:],
        0 if seat is None else seat.biases,
    )


def _in_a_row(sizes: tuple[int, ...]) -> tuple[tuple[int, ...], int]:
    """Offsets of tiles of these bytes, one behind the other, and where the last one ends."""
    offsets, at = [], 0
    for size in sizes:
        offsets.append(at)
        at += aligned(size)
    return tuple(offsets), at


def can_keep_rows(problem: ChainProblem, tile_channels: int) -> bool:
    """IN tiles follow each other down the rows: none of other channels comes between."""
    return not problem.is_depthwise or tile_channels == problem.point.channels


def plan_fault(problem: ChainProblem, plan: ChainPlan) -> PlanFault | None:
    """The first number of ``plan`` that no machine takes."""
    for name, size, most in (
        ("tile_rows", plan.tile_rows, problem.point.rows),
        ("tile_channels", plan.tile_channels, problem.point.channels),
        ("buffers", plan.buffers, 2),
    ):
        if isinstance(size, bool) or not isinstance(size, int) or not 1 <= size <= most:
            return PlanFault(name, size, f"an integer from 1 to {most}")
    if plan.keeps_rows and not can_keep_rows(problem, plan.tile_channels):
        return PlanFault("keeps_rows with IN tiles of a round's channels", True, False)
    return None


def chain_fault(problem: ChainProblem, plan: ChainPlan, machine: TileMachine) -> PlanFault | None:
    """The first fault of ``plan``. Strips cut all rows and rounds all channels, so that together
    they make everything once; what can be wrong is what a plan says and how much room it takes."""
    fault = plan_fault(problem, plan)
    if fault is not None:
        return fault
    if isinstance(machine.memories, SharedMemory):
        return shared_fault(machine)
    tiles = ChainTiles(problem, plan.tile_rows, plan.tile_channels, plan.keeps_rows)
    return room_fault(chain_needs(tiles, plan.buffers, machine))


def shared_fault(machine: TileMachine) -> PlanFault:
    name = f"a memory each for inputs, weights and outputs, which {machine.name} lacks"
    return PlanFault("memory", "shared", name)


@dataclass(frozen=True)
class ChainStep:
    """A round of a strip; ``number`` counts all."""

    number: int
    strip: Strip
    strip_number: int
    channels: Range
    first: bool
    last: bool
    """Round of its strip."""


def chain_steps(tiles: ChainTiles) -> Iterator[ChainStep]:
    number = 0
    for strip_number, strip in enumerate(tiles.strips):
        for at, channels in enumerate(tiles.rounds):
            last = at == len(tiles.rounds) - 1
            yield ChainStep(number, strip, strip_number, channels, at == 0, last)
            number += 1
