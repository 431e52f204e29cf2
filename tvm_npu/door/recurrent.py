"""Recurrent layers that a frontend has unrolled over time: which calls are one LSTM or GRU.

TVM's ONNX frontend cuts a sequence into its steps and writes the cell once a step:

before: x_0, x_1 = split(X); h_1, c_1 = cell(x_0, h_0, c_0); h_2, c_2 = cell(x_1, h_1, c_1);
        Y = stack(h_1, h_2)
after:  Y, h_2, c_2 = lstm(X, h_0, c_0)

Found are chains of cells of one kind with the same constants that take all parts of one split in
order, of one image (X is [T, 1, N]); nothing outside of the chain reads what is inside, except Y
and the last h and c. Views in front of initial states and behind results belong to it. A chain that
is not found stays what it is: calls that each have a layer of their own.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from tvm_npu.door.cells import Cell, gru_cell, lstm_cell, same_constants
from tvm_npu.door.dataflow import Constant, Dataflow, OpCall, Result, TensorShape, Value
from tvm_npu.sim.lazy import cached_property

VIEWS = frozenset({"expand_dims", "reshape", "squeeze"})
ZEROS = frozenset({"zeros", "zeros_like"})


@dataclass(frozen=True, eq=False)
class RecurrentChain:
    """One layer. ``initial`` are the values that the states begin with, h and then c (None: zeros);
    ``views`` are all values that are Y, the last h, or the last c, by their position there."""

    cells: tuple[Cell, ...]
    sequence: Value
    initial: tuple[Value | None, ...]
    views: Mapping[Value, int]
    calls: frozenset[OpCall]

    @property
    def kind(self) -> str:
        """lstm or gru."""
        return self.cells[0].kind

    @cached_property
    def input_shapes(self) -> Mapping[Value, TensorShape]:
        """The batch-free shapes of what is read at run time: (T, N) and (H,)."""
        shape = self.sequence.shape
        found: dict[Value, TensorShape] = {self.sequence: (shape[0], shape[2])}
        hidden = self.cells[0].hidden
        found.update((value, (hidden,)) for value in self.initial if value is not None)
        return found

    @property
    def sequences(self) -> tuple[Value, ...]:
        """What is Y: tensors with their steps where an image has the batch."""
        return tuple(value for value, position in self.views.items() if position == 0)


def recurrent_chains(flow: Dataflow) -> tuple[RecurrentChain, ...]:
    """All of a dataflow, by the number of their first calls; none has a call of another."""
    return tuple(_Search(flow).chains())


class _Search:
    """Makers and readers inside of one dataflow."""

    def __init__(self, flow: Dataflow) -> None:
        self._flow = flow
        self._outputs = frozenset(flow.outputs)
        self._readers: dict[Value, list[OpCall]] = {}
        for reader, value in flow.uses():
            if reader is not None:
                self._readers.setdefault(value, []).append(reader)

    def maker(self, value: Value) -> OpCall | None:
        """The call that makes ``value``; None for what comes from outside."""
        is_inside = isinstance(value, Result) and value not in self._flow.inputs
        return value.call if is_inside and isinstance(value, Result) else None

    def chains(self) -> Iterator[RecurrentChain]:
        cells = self._cells()
        by_state = {cell.before[0]: cell for cell in cells}
        states = {cell.after[0] for cell in cells}
        taken: set[OpCall] = set()
        for first in cells:
            if first.before[0] in states:
                continue
            found = self._chain(self._followed(first, by_state))
            if found is not None and taken.isdisjoint(found.calls):
                taken |= found.calls
                yield found

    def _cells(self) -> list[Cell]:
        """In the order of the calls; each call is asked once for each kind."""
        found = (
            match(call, self.maker) for call in self._flow.calls for match in (lstm_cell, gru_cell)
        )
        return [cell for cell in found if cell is not None]

    def _followed(self, first: Cell, by_state: Mapping[Value, Cell]) -> tuple[Cell, ...]:
        chain = [first]
        while (following := by_state.get(chain[-1].after[0])) is not None:
            if following.before != chain[-1].after or not same_constants(following, first):
                break
            chain.append(following)
        return tuple(chain)

    def _chain(self, cells: tuple[Cell, ...]) -> RecurrentChain | None:
        steps = self._steps(cells)
        if steps is None:
            return None
        calls = {call for cell in cells for call in cell.calls} | {steps}
        for cell in cells:
            calls.update(self._views_in_front(cell.input, calls)[1])
        initial: tuple[Value, ...] = ()
        known = 0
        while known < len(calls):  # h and c may begin as views of the same zeros
            known = len(calls)
            initial = ()
            for value in cells[0].before:
                origin, between = self._views_in_front(value, calls, through_splits=True)
                initial += (origin,)
                calls.update(between)
        given = tuple(None if self._is_zero(value) else value for value in initial)
        if any(isinstance(value, Constant) for value in given):
            return None
        views = self._results(cells, calls)
        chain = RecurrentChain(cells, steps.operands[0], given, views, frozenset(calls))
        return chain if self._is_closed(chain) else None

    def _steps(self, cells: Sequence[Cell]) -> OpCall | None:
        """The split of [T, 1, N] whose parts the cells take in order, all of them."""
        parts = [self._views_in_front(cell.input, cell.calls)[0] for cell in cells]
        split = self.maker(parts[0])
        if split is None or split.name != "split" or split.attributes["axis"] != 0:
            return None
        shape = split.operands[0].type.static_shape
        if shape is None or len(shape) != 3 or shape[0] != len(cells) or shape[1] != 1:
            return None
        wanted = [split.result(step) for step in range(len(split.types))]
        return split if parts == wanted else None

    def _views_in_front(
        self, value: Value, inside: Collection[OpCall], through_splits: bool = False
    ) -> tuple[Value, list[OpCall]]:
        """(what a value is a view of, the calls that lead to it), as far as only calls ``inside``
        read them. A split into one part can be a view, too; zeros are a view of nothing, but what
        they have the shape of belongs to the calls."""
        calls: list[OpCall] = []
        zeros: Value | None = None
        while (maker := self.maker(value)) is not None:
            is_part = through_splits and maker.name == "split" and len(maker.types) == 1
            is_view = is_part or maker.name in VIEWS or maker.name in ZEROS
            if not is_view or not self._read_by(maker) <= {*inside, *calls}:
                break
            calls.append(maker)
            if maker.name in ZEROS:
                zeros = value if zeros is None else zeros
            if not maker.operands:
                break
            value = maker.operands[0]
        return value if zeros is None else zeros, calls

    def _read_by(self, call: OpCall) -> set[OpCall]:
        """All readers of a call's results."""
        return {reader for value in _results_of(call) for reader in self._readers.get(value, ())}

    def _is_zero(self, value: Value) -> bool:
        if isinstance(value, Constant):
            return not np.any(value.array)
        maker = self.maker(value)
        while maker is not None and maker.name in (*VIEWS, "split"):
            maker = self.maker(maker.operands[0])
        return maker is not None and maker.name in ZEROS

    def _results(self, cells: Sequence[Cell], calls: set[OpCall]) -> dict[Value, int]:
        """Y, the last h and c, and their views, by position; adds the views' calls."""
        views: dict[Value, int] = {}
        stack = self._stack(cells)
        if stack is not None:
            calls.add(stack)
            views[stack.result()] = 0
        for position, value in enumerate(cells[-1].after, 1):
            views[value] = position
        for value in list(views):
            self._add_views_behind(value, views, calls)
        return views

    def _stack(self, cells: Sequence[Cell]) -> OpCall | None:
        """The call that puts all h behind one another as [T, 1, H]."""
        hidden = tuple(cell.after[0] for cell in cells)
        for reader in self._readers.get(hidden[0], ()):
            if reader.name == "stack" and reader.attributes["axis"] == 0:
                if reader.operands == hidden:
                    return reader
        return None

    def _add_views_behind(
        self, value: Value, views: dict[Value, int], calls: set[OpCall]
    ) -> None:
        """Those of rank 3, and of rank 4 on the way there: others would be read as images."""
        ranks = (3, 4) if views[value] == 0 else (3,)
        for reader in self._readers.get(value, ()):
            if reader.name not in VIEWS or reader in calls:
                continue
            shape = reader.types[0].static_shape
            if shape is None or len(shape) not in ranks:
                continue
            views[reader.result()] = views[value]
            calls.add(reader)
            self._add_views_behind(reader.result(), views, calls)

    def _is_closed(self, chain: RecurrentChain) -> bool:
        """Does nobody outside read what is inside, but for the chain's results?"""
        for value in (value for call in chain.calls for value in _results_of(call)):
            if value in chain.views:
                continue
            if value in self._outputs or not chain.calls.issuperset(self._readers.get(value, ())):
                return False
        return True


def _results_of(call: OpCall) -> list[Result]:
    """All values that a call makes, its tuple in one piece included."""
    parts = range(len(call.types)) if call.returns_tuple else ()
    return [call.result(), *(call.result(position) for position in parts)]
