"""The commands of an execution plan, one after the other: each is possible where it stands, and at
the end nothing is missing."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from tvm_npu.codegen.plan.loops.plan import in_extent
from tvm_npu.codegen.plan.problem import ConvProblem
from tvm_npu.codegen.tiles.emit.actions import (
    Action,
    Clear,
    Finish,
    Held,
    Load,
    Multiply,
    Slide,
    Store,
    Tile,
    TileKind,
    slides,
)
from tvm_npu.codegen.tiles.ir.document import Ir, IrError, behind
from tvm_npu.codegen.tiles.ir.on_chip import OnChip, Sums
from tvm_npu.codegen.tiles.ir.parse import Command, Parsed, numbers


class Walk:
    """Goes through the commands once: what is on chip, what has been summed, finished, stored."""

    def __init__(self, parsed: Parsed, problem: ConvProblem, tiles: dict[str, Tile]) -> None:
        self.parsed, self.problem, self.tiles = parsed, problem, tiles
        self.sums: dict[str, Sums] = {}
        self.chip = OnChip(problem, parsed.memories, tiles, self.sums)
        self.stride: tuple[int, int] | None = None
        self.padding: tuple[int, int] | None = None
        if "STRIDE" in parsed.info:
            self.stride = (parsed.info["STRIDE"][0], parsed.info["STRIDE"][1])
        if "PADDING" in parsed.info:
            self.padding = (parsed.info["PADDING"][2], parsed.info["PADDING"][0])
        self.residual: bool | None = None
        self.clears: list[tuple[Tile, int]] = []
        self.covered = np.zeros((problem.filters, problem.rows, problem.columns), bool)
        self.stores: dict[str, list[tuple[int, str]]] = {}
        for number, command in enumerate(parsed.commands):
            if command.word == "STORE":
                self.stores.setdefault(command.arguments[0], []).append(
                    (number, command.arguments[1])
                )

    def ir(self) -> Ir:
        """The whole plan. Raises IrError with the line of the first command that cannot be."""
        actions: list[Action] = []
        for number, command in enumerate(self.parsed.commands):
            make = getattr(self, f"_{command.word.lower()}")
            actions.append(make(command, number))
        self._complete()
        return Ir(self._whole_problem(), tuple(self.chip.memories), tuple(actions))

    def _whole_problem(self) -> ConvProblem:
        problem = self.problem
        stride, (top, left) = self.stride or (1, 1), self.padding or (0, 0)
        needed = (
            (out - 1) * step + (taps - 1) * apart + 1 - before - size
            for out, step, taps, apart, before, size in zip(
                (problem.rows, problem.columns), stride, problem.kernel, problem.dilation,
                (top, left), (problem.in_rows, problem.in_columns), strict=True,
            )
        )  # fmt: skip
        bottom, right = needed
        if "PADDING" in self.parsed.info:
            _, right, _, bottom = self.parsed.info["PADDING"]
        return replace(
            problem, stride=stride, padding=(top, left, bottom, right),
            has_residual=bool(self.residual),
        )  # fmt: skip

    # Names

    def _tile(self, name: str, command: Command, *kinds: TileKind) -> Tile:
        tile = self.tiles.get(name)
        if tile is None:
            raise IrError(f"unknown tile {name}", command.line)
        if tile.kind not in kinds:
            wanted = " or ".join(kinds)
            raise IrError(f"{command.word}: {name} where a tile {wanted} is expected", command.line)
        return tile

    # Commands

    def _load(self, command: Command, number: int) -> Action:
        memory, name = command.arguments
        tile = self._tile(name, command, "INPUT", "WEIGHT", "OUTPUT", "RESIDUAL", "BIAS")
        index = self.chip.memory(memory, name, command)
        if tile.kind == "OUTPUT":
            sums = self.sums.get(name)
            if sums is None or not sums.is_away or sums.is_finished:
                raise IrError(
                    f"LOAD: {name} has no partial sums outside of the chip", command.line
                )
            sums.is_away = False
        self.chip.put(name, index, command)
        return Load(Held(tile, index))

    def _slide(self, command: Command, number: int) -> Action:
        memory, name, before_name = command.arguments
        tile = self._tile(name, command, "INPUT")
        before_tile = self._tile(before_name, command, "INPUT")
        before = self.chip.held(before_name, command)
        if not slides(before_tile, tile):
            raise IrError(
                f"SLIDE: {name} is not the channels and columns of {before_name} with some of its "
                "rows but not the first",
                command.line,
            )
        index = self.chip.memory(memory, name, command)
        self.chip.put(name, index, command)
        return Slide(Held(tile, index), before)

    def _out(self, name: str, command: Command, number: int) -> tuple[Held, Sums]:
        """The OUTPUT tile of a CONV or CLEAR, which may begin here."""
        self._tile(name, command, "OUTPUT")
        sums = self.sums.get(name)
        if sums is None:
            following = (memory for at, memory in self.stores.get(name, []) if at > number)
            target = next(following, None)
            if target is None:
                raise IrError(f"{command.word}: {name} is never stored", command.line)
            self.chip.put(name, self.chip.memory(target, name, command), command)
            sums = self.sums[name] = Sums()
        if sums.is_finished:
            raise IrError(f"{command.word}: {name} has been finished", command.line)
        return self.chip.held(name, command), sums

    def _conv(self, command: Command, number: int) -> Action:
        out_name, in_name, weight_name, stride_text, padding_text = command.arguments
        self._tile(in_name, command, "INPUT")
        self._tile(weight_name, command, "WEIGHT")
        in_, weight = self.chip.held(in_name, command), self.chip.held(weight_name, command)
        out, sums = self._out(out_name, command, number)
        stride = self._stride(stride_text, command)
        if not padding_text.startswith("(") or not padding_text.endswith(")"):
            raise IrError(f"CONV: padding {padding_text!r}; expected (left,right,top,bottom)",
                          command.line)  # fmt: skip
        padding = numbers(padding_text[1:-1], "CONV: padding", command.line)
        if len(padding) != 4:
            raise IrError(
                f"CONV: padding has {len(padding)} numbers, expected (left,right,top,bottom)",
                command.line,
            )
        left, right, top, bottom = padding
        if self.stride not in (None, stride):
            raise IrError(f"CONV: stride {stride}; before it was {self.stride}", command.line)
        self.stride = stride
        action = Multiply(out, in_, weight, not sums.channels and not sums.is_clear, (top, left))
        self._window(action, (bottom, right), (out_name, in_name), command)
        self._channels(action, sums, (out_name, in_name, weight_name), command)
        return action

    def _stride(self, text: str, command: Command) -> tuple[int, int]:
        found = numbers(text.strip("()"), "CONV: stride", command.line, least=1)
        if len(found) == 1:
            return found[0], found[0]
        if len(found) != 2 or not text.startswith("("):
            raise IrError(f"CONV: stride {text!r}; expected s or (rows,columns)", command.line)
        return found[0], found[1]

    def _window(
        self, action: Multiply, after: tuple[int, int], names: tuple[str, str], command: Command
    ) -> None:
        """The IN tile with its padding is what the windows of the OUT tile see."""
        out_name, in_name = names
        stride = self.stride or (1, 1)
        needed = behind(replace(self.problem, stride=stride), action)
        sizes = (self.problem.in_rows, self.problem.in_columns)
        begins = []
        for axis, what in enumerate(("rows", "columns")):
            ins = (action.in_.tile.rows, action.in_.tile.columns)[axis]
            outs = (action.out.tile.rows, action.out.tile.columns)[axis]
            before = action.padding[axis]
            if needed[axis] != after[axis]:
                total = needed[axis] + before + ins[1]
                raise IrError(
                    f"CONV: the windows of {out_name} need {total} {what}; {in_name} has {ins[1]} "
                    f"and {before} + {after[axis]} of padding",
                    command.line,
                )
            if (before and ins[0] > 0) or (after[axis] and sum(ins) < sizes[axis]):
                raise IrError(
                    f"CONV: padding beside {what} {ins[0]} to {sum(ins) - 1} of {in_name}, which "
                    f"lie inside of the input's {sizes[axis]}",
                    command.line,
                )
            begins.append(outs[0] * stride[axis] + before - ins[0])
        found = (begins[0], begins[1])
        if self.padding not in (None, found):
            raise IrError(
                f"CONV: {in_name} is not what lies under {out_name}: with it the layer's padding "
                f"would be {found} in front of rows and columns, with the CONVs before "
                f"{self.padding}",
                command.line,
            )
        self.padding = found

    def _channels(
        self, action: Multiply, sums: Sums, names: tuple[str, str, str], command: Command
    ) -> None:
        """Filters and channels of the three tiles belong together, and are summed once."""
        out_name, in_name, weight_name = names
        problem = self.problem
        depth, each = problem.channels // problem.groups, problem.filters // problem.groups
        filters, channels = action.weight.tile.first, action.weight.tile.rows
        outs, ins = action.out.tile.first, action.in_.tile.first
        if filters != outs:
            raise IrError(
                f"CONV: {weight_name} has filters {_span(filters)}, {out_name} channels "
                f"{_span(outs)}",
                command.line,
            )
        if outs[0] // each == (sum(outs) - 1) // each:
            wanted = (outs[0] // each * depth + channels[0], channels[1])
        else:
            groups = outs[1] // each
            if outs[0] % each or outs[1] % each or channels != (0, depth):
                raise IrError(
                    f"CONV: {out_name} has channels {_span(outs)} of several groups of {each}; "
                    f"then all of them and all {depth} channels of {weight_name} are needed",
                    command.line,
                )
            wanted = (outs[0] // each * depth, groups * depth)
        if ins != wanted:
            raise IrError(
                f"CONV: {in_name} has channels {_span(ins)}; {weight_name} needs {_span(wanted)}",
                command.line,
            )
        for begin, count in sums.channels:
            if begin < sum(channels) and channels[0] < begin + count:
                raise IrError(
                    f"CONV: channels {_span(channels)} of {weight_name} are summed into {out_name} "
                    f"a second time",
                    command.line,
                )
        sums.channels.append(channels)
        sums.summed += channels[1]

    def _clear(self, command: Command, number: int) -> Action:
        (name,) = command.arguments
        out, sums = self._out(name, command, number)
        if sums.channels:
            raise IrError(f"CLEAR: {name} holds sums", command.line)
        sums.is_clear = True
        self.clears.append((out.tile, command.line))
        return Clear(out)

    def _finish(self, command: Command, number: int) -> Action:
        out_name, bias_name, *residual_name = command.arguments
        tile = self._tile(out_name, command, "OUTPUT")
        bias_tile = self._tile(bias_name, command, "BIAS")
        out, bias = self.chip.held(out_name, command), self.chip.held(bias_name, command)
        sums = self.sums[out_name]
        if sums.is_finished:
            raise IrError(f"FINISH: {out_name} has been finished", command.line)
        depth = self.problem.channels // self.problem.groups
        if sums.summed != depth and not sums.is_clear:
            raise IrError(
                f"FINISH: {out_name} holds the sum of {sums.summed} of {depth} channels",
                command.line,
            )
        first = bias_tile.first
        if not first[0] <= tile.first[0] <= sum(tile.first) <= sum(first):
            raise IrError(
                f"FINISH: {bias_name} has channels {_span(first)}, {out_name} "
                f"{_span(tile.first)}",
                command.line,
            )
        residual = None
        if residual_name:
            found = self._tile(residual_name[0], command, "RESIDUAL")
            residual = self.chip.held(residual_name[0], command)
            if (found.first, found.rows, found.columns) != (tile.first, tile.rows, tile.columns):
                raise IrError(
                    f"FINISH: {residual_name[0]} is another box than {out_name}", command.line
                )
        if self.residual not in (None, residual is not None):
            raise IrError("FINISH: some tiles have a residual and some have none", command.line)
        self.residual = residual is not None
        sums.is_finished = True
        return Finish(out, bias, residual)

    def _store(self, command: Command, number: int) -> Action:
        name, memory = command.arguments
        tile = self._tile(name, command, "OUTPUT")
        index = self.chip.memory(memory, name, command)
        held = self.chip.held(name, command)
        if held.offset != index:
            raise IrError(
                f"STORE: {name} lies in {self.chip.memories[held.offset].name}, not in {memory}",
                command.line,
            )
        sums = self.sums[name]
        sums.is_away = True
        if sums.is_finished:
            self._cover(name, tile, command)
        self.chip.leave(name)
        return Store(held, partial=not sums.is_finished)

    def _cover(self, name: str, tile: Tile, command: Command) -> None:
        box = tuple(slice(begin, begin + count) for begin, count in
                    (tile.first, tile.rows, tile.columns))  # fmt: skip
        inside = self.covered[box]
        if inside.any():
            first = np.unravel_index(int(inside.argmax()), inside.shape)
            channel, row, column = (at + one.start for at, one in zip(first, box, strict=True))
            raise IrError(
                f"STORE: {name} overlaps results that are there: channel {channel}, row {row}, "
                f"column {column}",
                command.line,
            )
        self.covered[box] = True

    def _complete(self) -> None:
        """Nothing is missing at the end."""
        line = self.parsed.last_line
        if not self.covered.all():
            first = int(self.covered.argmin())
            channel, row, column = np.unravel_index(first, self.covered.shape)
            missing = self.covered.size - np.count_nonzero(self.covered)
            raise IrError(
                f"{missing} results are never stored, first channel "
                f"{channel}, row {row}, column {column}",
                line,
            )
        for name, sums in self.sums.items():
            if not sums.is_away or not sums.is_finished:
                raise IrError(f"{name} is left with sums that are not finished and stored", line)
        problem = self._whole_problem()
        for tile, at in self.clears:
            inside = in_extent(problem, *tile.rows, "R")[1] * in_extent(
                problem, *tile.columns, "C"
            )[1]  # fmt: skip
            if inside:
                raise IrError("CLEAR of a tile whose windows meet the input", at)


def _span(found: tuple[int, int]) -> str:
    return f"{found[0]} to {found[0] + found[1] - 1}"
