"""What a convolution does tile by tile: which tiles come, what is computed, which tiles go.

One level above `commands`: tiles are boxes of tensors, not bytes. A plan gives actions, the text IR
is actions written down, and `convolution` makes commands of both.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Literal

from tvm_npu.codegen.plan.loops.axes import shared_rows
from tvm_npu.codegen.plan.loops.plan import Range, Resident, Step, in_extent
from tvm_npu.codegen.plan.loops.room import Place
from tvm_npu.codegen.plan.problem import ConvProblem
from tvm_npu.codegen.tiles.emit.pipeline import TileStep

TileKind = Literal["INPUT", "WEIGHT", "OUTPUT", "RESIDUAL", "BIAS"]


@dataclass(frozen=True)
class Tile:
    """A box of a tensor. INPUT: channels, rows and columns of the IFM. WEIGHT: filters, channels
    of their group, (0, 1). OUTPUT and RESIDUAL: filters, rows and columns of the OFM. BIAS:
    filters, (0, 1), (0, 1)."""

    kind: TileKind
    first: Range
    rows: Range
    columns: Range

    @property
    def shape(self) -> tuple[int, int, int]:
        return self.first[1], self.rows[1], self.columns[1]

    @property
    def count(self) -> int:
        return self.first[1] * self.rows[1] * self.columns[1]


@dataclass(frozen=True)
class Held:
    """A tile on chip: ``offset`` are bytes from the begin of its memory."""

    tile: Tile
    offset: int


@dataclass(frozen=True)
class Load:
    """The tile comes; an OUTPUT tile as the partial sums that it left as."""

    held: Held


@dataclass(frozen=True)
class Slide:
    """The INPUT tile comes: its first rows are the last of the tile ``before``, with the same
    channels and columns, and move on chip; the others come from outside."""

    held: Held
    before: Held

    @property
    def kept(self) -> int:
        """Rows that move."""
        return shared_rows(self.before.tile.rows, self.held.tile.rows)


@dataclass(frozen=True)
class Multiply:
    """Convolves; ``starts``: the sums begin at zero. ``padding`` lies in front of the IN tile's
    rows and columns."""

    out: Held
    in_: Held
    weight: Held
    starts: bool
    padding: tuple[int, int]


@dataclass(frozen=True)
class Clear:
    """Sums of an OUT tile whose windows all lie in the padding: zero."""

    out: Held


@dataclass(frozen=True)
class Finish:
    """Sums become results: biases, the residual tile if there is one, requantization."""

    out: Held
    bias: Held
    residual: Held | None


@dataclass(frozen=True)
class Store:
    """The OUT tile goes: results, or ``partial`` sums that will come back."""

    held: Held
    partial: bool


Action = Load | Slide | Multiply | Clear | Finish | Store
_RESIDENT: dict[Resident, str] = {"IN": "in", "W": "weight"}
"""What their tiles are called here."""


@dataclass
class ActionSteps:
    """Walks steps and remembers which tile lies where. Newly loaded tiles take the places of their
    kind in turn, those of a resident tensor beside each other; ``biases_stay``: all biases come at
    once, before the first results are made; ``keeps_rows`` and ``resident`` as in `LoopPlan`."""

    problem: ConvProblem
    steps: Iterable[Step]
    places: tuple[Place, ...]
    biases_stay: bool
    keeps_rows: bool = False
    resident: Resident = ""
    _turn: dict[str, int] = field(init=False, default_factory=dict)
    _in: Held | None = field(init=False, default=None)
    _weight: Held | None = field(init=False, default=None)
    _out: Held | None = field(init=False, default=None)
    _bias: Held | None = field(init=False, default=None)
    _beside: dict[Range, Held] = field(init=False, default_factory=dict)
    """The resident tiles of ``_owner``, by their channels."""
    _owner: object = field(init=False, default=None)

    def __iter__(self) -> Iterator[TileStep[Action]]:
        for step in self.steps:
            yield self._step(step)

    def _next(self, kind: str) -> Place:
        turn = (self._turn.get(kind, -1) + 1) % len(self.places)
        self._turn[kind] = turn
        return self.places[turn]

    def _step(self, step: Step) -> TileStep[Action]:
        problem = self.problem
        filters = _over_groups(step.groups, step.filters, problem.filters // problem.groups)
        channels = _over_groups(step.groups, step.channels, problem.channels // problem.groups)
        rows = in_extent(problem, *step.rows, "R")
        columns = in_extent(problem, *step.columns, "C")
        in_tile = Tile("INPUT", channels, rows[:2], columns[:2])
        place = step.groups, step.rows, step.columns
        self._begin_place(filters if self.resident == "W" else place)
        loads: list[Action] = []
        if step.loads_in and in_tile.count:
            loads.append(self._arrival(in_tile, step.channels))
        elif self.resident == "IN":
            self._in = self._beside.get(step.channels, self._in)
        if step.loads_weights:
            weight = Tile("WEIGHT", filters, step.channels, (0, 1))
            self._weight = self._placed("weight", weight, step.channels)
            # A resident tile need not wait until the engine has done with the other's.
            loads.insert(0 if self.resident == "W" else len(loads), Load(self._weight))
        elif self.resident == "W":
            self._weight = self._beside[step.channels]
        if step.enters_out or self._out is None:
            out = Tile("OUTPUT", filters, step.rows, step.columns)
            self._out = Held(out, self._next("out").out_offset)
            if not step.first:
                loads.append(Load(self._out))
        residual = None
        if step.last and problem.has_residual:
            tile = Tile("RESIDUAL", filters, step.rows, step.columns)
            residual = Held(tile, self._next("residual").residual_offset)
            loads.append(Load(residual))

        work: list[Action] = []
        if in_tile.count:
            assert self._in is not None and self._weight is not None
            padding = (rows[2], columns[2])
            work.append(Multiply(self._out, self._in, self._weight, step.first, padding))
        elif step.first:
            work.append(Clear(self._out))
        stores: list[Action] = []
        if step.last:
            bias, comes = self._biases(filters)
            if comes:
                # There is one place for biases: those of one tile must not displace those of the
                # step before, which may not have finished.
                loads.append(Load(bias)) if self.biases_stay else work.insert(0, Load(bias))
            work.append(Finish(self._out, bias, residual))
            stores.append(Store(self._out, partial=False))
        elif step.leaves_out:
            stores.append(Store(self._out, partial=True))
        return TileStep(tuple(loads), tuple(work), tuple(stores))

    def _begin_place(self, owner: object) -> None:
        """Resident tiles of another ``owner`` lie in the next place, whether any come or all that
        they would see is padding."""
        if self.resident and owner != self._owner:
            self._owner, self._beside = owner, {}
            self._next(_RESIDENT[self.resident])

    def _placed(self, kind: str, tile: Tile, channels: Range) -> Held:
        """Where a tile lies that comes: in the next place, or beside others that are resident."""
        is_resident = kind == _RESIDENT.get(self.resident)
        place = self.places[self._turn[kind]] if is_resident else self._next(kind)
        number = len(self._beside) if is_resident else 0
        held = Held(tile, place.inputs(number) if kind == "in" else place.weights(number))
        if is_resident:
            self._beside[channels] = held
        return held

    def _arrival(self, tile: Tile, channels: Range) -> Action:
        """How an INPUT tile comes to its place."""
        before, held = self._in, self._placed("in", tile, channels)
        self._in = held
        if self.keeps_rows and before is not None and slides(before.tile, tile):
            return Slide(held, before)
        return Load(held)

    def _biases(self, filters: Range) -> tuple[Held, bool]:
        """The biases on chip that a tile needs, and whether they have to come."""
        wanted = (0, self.problem.filters) if self.biases_stay else filters
        if self._bias is not None and self._bias.tile.first == wanted:
            return self._bias, False
        self._bias = Held(Tile("BIAS", wanted, (0, 1), (0, 1)), 0)
        return self._bias, True


def slides(before: Tile, tile: Tile) -> bool:
    """Whether the INPUT ``tile`` can take rows from the one ``before``."""
    beside = before.first == tile.first and before.columns == tile.columns
    return beside and shared_rows(before.rows, tile.rows) > 0


def _over_groups(groups: Range, own: Range, each: int) -> Range:
    """A range of every group of ``groups`` as one range over all groups (``each`` items a group);
    where there are several groups, the range is all of each."""
    return groups[0] * each + own[0], groups[1] * own[1]
