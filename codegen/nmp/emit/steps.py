"""The steps of a convolution whose tiles are shared: the loops, and what a step works on.

A step is one tile of filters, one place of the OFM and one tile of channels.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from operator import attrgetter

from tvm_npu.codegen.nmp.emit.commands import (
    Assign,
    Minimum,
    Nodes,
    clamped,
    loop,
    names,
    when,
)
from tvm_npu.codegen.nmp.emit.conv_tiles import ConvTiles
from tvm_npu.codegen.nmp.emit.conv_transfers import OfmBox
from tvm_npu.codegen.nmp.emit.conv_words import ConvWords
from tvm_npu.codegen.nmp.emit.expressions import Expression, Variable
from tvm_npu.codegen.nmp.emit.parameters import LayerParameters
from tvm_npu.codegen.nmp.plan.kept_rows import shared_rows

ZERO = Expression()


@dataclass(frozen=True)
class Step:
    """One tile of each loop, in one group: where it begins and how much of it this TLT has (0:
    nothing, but it may have to load for others); and the halves of the buffers that hold IN and
    W."""

    m: Expression
    own: Expression
    r: Expression
    rows: Expression
    c: Expression
    columns: Expression
    n: Expression
    channels: Expression
    group: Expression = ZERO
    in_half: Expression = ZERO
    w_half: Expression = ZERO


FIRST = Step(*[ZERO] * 8)


@dataclass(frozen=True)
class Turns:
    """OUT rows, columns and filters that the loops walk: those of the TLT that has most among all
    that keep in step."""

    rows: Expression
    columns: Expression
    items: Expression


def turns_of(
    tiles: ConvTiles, words: ConvWords, parameters: LayerParameters, in_step: bool = False
) -> Turns:
    """Adds the words that it needs to ``parameters``; ``in_step``: all TLEs keep in step, whether
    they share tiles or not."""
    everywhere = in_step or tiles.plan.ring_in or tiles.plan.ring_weights

    def most(name: str, own: Expression) -> Expression:
        of = attrgetter(name)
        values = tiles.shares.most(of, everywhere)
        if values == tiles.shares.values(of):
            return own
        return parameters.number(f"most_{name}", values)

    return Turns(
        rows=most("rows", words.rows),
        columns=most("columns", words.columns),
        items=most("items", words.items),
    )


@dataclass(frozen=True)
class Steps:
    """The loops of every schedule."""

    tiles: ConvTiles
    words: ConvWords
    turns: Turns

    def walk(self, group: Expression, body: Callable[[Step], Nodes]) -> Nodes:
        """The loops of the schedule around ``body``, for one group."""
        tiles, words, turns = self.tiles, self.words, self.turns
        filters, channels, rows, columns = tiles.largest

        def over_filters(inner: Callable[[Expression, Expression], Nodes]) -> Nodes:
            return _axis("filter", words.items, turns.items, filters, inner)

        def over_rows(inner: Callable[[Expression, Expression], Nodes]) -> Nodes:
            return _axis("row", words.rows, turns.rows, rows, inner)

        def over_columns(inner: Callable[[Expression, Expression], Nodes]) -> Nodes:
            return _axis("column", words.columns, turns.columns, columns, inner)

        def over_places(inner: Callable[..., Nodes]) -> Nodes:
            return over_rows(
                lambda r, own_rows: over_columns(
                    lambda c, own_columns: inner(r, own_rows, c, own_columns)
                )
            )

        def over_channels(*tile: Expression) -> Nodes:
            m, own, r, own_rows, c, own_columns = tile
            return loop(
                "channel", tiles.channels, channels,
                lambda n, extent: body(
                    Step(m, own, r, own_rows, c, own_columns, n, extent, group)
                ),
            )  # fmt: skip

        if tiles.plan.keeps_rows:
            return over_filters(lambda m, own: over_columns(
                lambda c, own_columns: over_rows(
                    lambda r, own_rows: over_channels(m, own, r, own_rows, c, own_columns)
                )
            ))  # fmt: skip
        if tiles.plan.schedule == "WS":
            return over_filters(
                lambda m, own: over_places(lambda *place: over_channels(m, own, *place))
            )
        return over_places(
            lambda *place: over_filters(lambda m, own: over_channels(m, own, *place))
        )

    def at(self, place: Step, moment: str = "now") -> tuple[Nodes, Step]:
        """The step at the indices of ``place``, its extents computed from them alone, in variables
        named for the ``moment``."""
        words, turns = self.words, self.turns
        filters, channels, rows, columns = self.tiles.largest
        all_channels = Expression.of(self.tiles.channels)
        nodes: Nodes = ()
        extents = []
        for name, index, own, most, tile in (
            ("filters", place.m, words.items, turns.items, filters),
            ("rows", place.r, words.rows, turns.rows, rows),
            ("columns", place.c, words.columns, turns.columns, columns),
            ("channels", place.n, all_channels, all_channels, channels),
        ):
            extent, make = _extent(f"{name}_{moment}", index, own, tile, own == most)
            extents.append(extent)
            nodes += make
        own, own_rows, own_columns, own_channels = extents
        return nodes, replace(
            place, own=own, rows=own_rows, columns=own_columns, channels=own_channels
        )

    def out_box(self, step: Step) -> OfmBox:
        """The rows and columns of the step's OUT tile in the tensor that is stored."""
        words = self.words
        return OfmBox(
            words.first_row + step.r, step.rows, words.first_column + step.c, step.columns
        )

    def under(self, step: Step) -> tuple[Nodes, OfmBox]:
        """What of the convolution's OFM the step's OUT tile takes: the same, or, under a window,
        what lies in the OFM of the tile's windows and is not kept from the tile above."""
        problem, out = self.tiles.problem, self.out_box(step)
        window = problem.window
        if window is None:
            return (), out
        nodes: Nodes = ()
        kept = Expression()
        if self.tiles.plan.keeps_rows:
            shared = shared_rows(problem)
            count = Variable("kept_rows", 0, shared)
            is_first = Assign(count, Expression())
            nodes = when(step.r, "==", (is_first,), (Assign(count, Expression.of(shared)),))
            kept = Expression.of(count)
        spans: list[tuple[Expression, Expression]] = []
        for axis, (name, first, extent, total) in enumerate(
            (
                ("row", out.row, out.rows, problem.rows),
                ("column", out.column, out.columns, problem.columns),
            )
        ):
            low = first * window.stride[axis] - window.padding[axis]
            high = low + (extent - 1) * window.stride[axis] + window.kernel[axis]
            if axis == 0:
                low = low + kept  # where rows are kept, all windows begin inside of the OFM
            begin, make_begin = clamped(f"middle_{name}", total, low)
            end, make_end = clamped(f"middle_{name}_end", total, high)
            nodes += (*make_begin, *make_end)
            spans.append((begin, end - begin))
        return nodes, OfmBox(*spans[0], *spans[1], kept)

    # Which steps load, and which are a content's last

    def when_in_is_new(self, step: Step, nodes: Nodes) -> Nodes:
        """``nodes`` in steps that bring a new IN tile."""
        return when(step.m, "==", nodes) if self.tiles.plan.keeps_in else nodes

    def when_weights_are_new(self, step: Step, nodes: Nodes) -> Nodes:
        """``nodes`` in steps that bring a new W tile."""
        if self.tiles.plan.schedule != "WS":
            return nodes
        return when(step.r + step.c + step.n, "==", nodes)

    def when_in_is_done(self, step: Step, nodes: Nodes) -> Nodes:
        """``nodes`` in the last step that needs the IN tile."""
        if not self.tiles.plan.keeps_in:
            return nodes
        return when(self.turns.items - step.m - self.tiles.largest[0], ">", (), nodes)

    def when_weights_are_done(self, step: Step, nodes: Nodes) -> Nodes:
        """``nodes`` in the last step that needs the W tile."""
        if self.tiles.plan.schedule != "WS":
            return nodes
        _, channels, rows, columns = self.tiles.largest
        if not nodes:
            return ()
        for rest in (
            Expression.of(self.tiles.channels) - step.n - channels,
            self.turns.columns - step.c - columns,
            self.turns.rows - step.r - rows,
        ):
            nodes = when(rest, ">", (), nodes)
        return nodes


def when_has_place(step: Step, nodes: Nodes) -> Nodes:
    """``nodes`` where this TLT has rows and columns."""
    return when(step.rows, ">", when(step.columns, ">", nodes))


def when_has_work(step: Step, nodes: Nodes) -> Nodes:
    """``nodes`` where this TLT has filters, rows and columns."""
    return when(step.own, ">", when_has_place(step, nodes)) if nodes else ()


def _axis(
    name: str,
    own: Expression,
    turns: Expression,
    tile: int,
    inner: Callable[[Expression, Expression], Nodes],
) -> Nodes:
    """A loop that ends with the TLT that has most; ``inner`` gets (index, own extent)."""
    if own == turns:
        return loop(name, own, tile, inner)

    def turn(index: Expression, _: Expression) -> Nodes:
        extent, make = clamped(f"own_{name}", tile, own - index)
        nodes = inner(index, extent)
        return (*make, *nodes) if names(nodes, extent) else nodes

    return loop(name, turns, tile, turn)


def _extent(
    name: str, index: Expression, own: Expression, tile: int, is_never_empty: bool
) -> tuple[Expression, Nodes]:
    if index.is_constant or not is_never_empty:
        return clamped(name, tile, own - index)
    if own.multiple % tile == 0:
        return Expression(constant=tile), ()
    extent = Variable(name, 1, tile)
    return Expression.of(extent), (Minimum(extent, tile, own - index),)
