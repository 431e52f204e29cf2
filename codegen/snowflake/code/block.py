"""From the nodes of a block to words: scheduling, delay slots, registers, encoding.

Blocks that differ in immediates only are worked out once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from tvm_npu.codegen.errors import EmitError
from tvm_npu.codegen.program.parts import Segment
from tvm_npu.codegen.snowflake.code.nodes import FIRST_VIRTUAL, ONE, Instr, Loop, Node, form
from tvm_npu.codegen.snowflake.code.registers import SPARE, OutOfRegisters, assigned
from tvm_npu.codegen.snowflake.code.schedule import scheduled
from tvm_npu.codegen.snowflake.pace.paces import Entry, Pace, Paces
from tvm_npu.sim.snowflake.isa import DELAY_SLOTS, Special

WINDOWS = ((3, 10), (2, 4), (1, 1))
"""How far ahead scalars are computed: as far as there are registers (`schedule.scheduled`)."""


@dataclass(frozen=True)
class CodePasses:
    """Passes over instructions, each of which can be left out."""

    avoid_raw: bool = True
    fill_slots: bool = True
    drop_dead: bool = True


@dataclass(frozen=True)
class Words:
    """A finished block. ``atoms`` are (begin, end) of parts that cannot be cut, loops; a relocation
    is (position, segment); ``pace`` is known where someone asks for it."""

    words: NDArray[np.uint32]
    streams: NDArray[np.int16]
    atoms: tuple[tuple[int, int], ...]
    relocations: tuple[tuple[int, Segment], ...]
    pace: Pace | None = None


@dataclass(frozen=True)
class _Template:
    """What a block becomes but for immediates: the words without them, and how each immediate goes
    into its word."""

    base: NDArray[np.uint32]
    origin: NDArray[np.int64]
    """Of the words that have an immediate or a stream: which instruction they come from."""
    at: NDArray[np.int64]
    """Where these words are."""
    shifts: NDArray[np.int64]
    least: NDArray[np.int64]
    most: NDArray[np.int64]
    bias: NDArray[np.int64]
    masks: NDArray[np.int64]
    atoms: tuple[tuple[int, int], ...]
    order: Sequence[Entry]


@dataclass
class _Line:
    """Instructions in a row, by index."""

    ops: list[Entry] = field(default_factory=list)
    loops: list[tuple[int, int]] = field(default_factory=list)


class BlockCompiler:
    """Makes words of blocks for a machine whose registers can be read ``raw_cycles`` + 1
    instructions after they are written; their ``paces`` if these are given."""

    def __init__(
        self, raw_cycles: int, passes: CodePasses = CodePasses(), paces: Paces | None = None
    ) -> None:
        self._raw_cycles, self._passes, self._paces = raw_cycles, passes, paces
        self._templates: dict[tuple[object, ...], _Template] = {}

    def words(self, nodes: Sequence[Node], specials: Mapping[Special, int] = {}) -> Words:
        """EmitError for an immediate that does not fit; OutOfRegisters. ``specials`` are what
        special registers hold."""
        ops: list[Instr] = []
        key: list[object] = []
        _flatten(nodes, ops, key)
        whole = tuple(key)
        template = self._templates.get(whole)
        if template is None:
            template = self._template(nodes, ops)
            self._templates[whole] = template
        pace = None if self._paces is None else self._paces.of(template.order, ops, specials)
        return _filled(template, ops, pace)

    def _template(self, nodes: Sequence[Node], ops: list[Instr]) -> _Template:
        number = {id(op): index for index, op in enumerate(ops)}
        if self._passes.drop_dead:
            nodes = _without_dead(nodes)
        if self._passes.avoid_raw:
            for windows in WINDOWS:
                try:
                    return self._placed(nodes, ops, number, windows)
                except OutOfRegisters:
                    continue
        return self._placed(nodes, ops, number, None)

    def _placed(
        self, nodes: Sequence[Node], ops: list[Instr], number: dict[int, int],
        windows: tuple[int, int] | None,
    ) -> _Template:
        line = _Line()
        self._line(nodes, -1, number, ops, line, windows)
        branches = {
            at: Instr("ble", form("ble").match, -1, (ONE, entry[0]), 0)
            for at, entry in enumerate(line.ops)
            if isinstance(entry, tuple)
        }
        listed = [
            branches.get(at) if isinstance(entry, tuple) else None if entry is None else ops[entry]
            for at, entry in enumerate(line.ops)
        ]
        places = assigned(listed, line.loops)
        base = np.zeros(len(listed), np.uint32)
        origin = np.full(len(listed), -1, np.int64)
        nop = form("movi")
        assert nop.dest is not None
        for at, (entry, op) in enumerate(zip(line.ops, listed, strict=True)):
            if op is None:
                base[at] = nop.match | nop.dest.encode(SPARE)
                continue
            shape, word = form(op.mnemonic), op.fixed
            if op.dest >= 0:
                assert shape.dest is not None
                word |= shape.dest.encode(_place(op.dest, places))
            for operand, register in zip(shape.sources, op.sources, strict=True):
                word |= operand.encode(_place(register, places))
            if isinstance(entry, tuple):
                assert shape.immediate is not None
                word |= shape.immediate.encode(4 * (entry[1] - at))
            else:
                assert entry is not None
                origin[at] = entry
            base[at] = word
        return _template(base, origin, ops, tuple(_outermost(line.loops)), line.ops)

    def _line(
        self, nodes: Sequence[Node], counter: int, number: dict[int, int], ops: list[Instr],
        line: _Line, windows: tuple[int, int] | None,
    ) -> None:  # fmt: skip
        """``counter`` is that of the loop whose body ``nodes`` are."""
        straight: list[int] = []

        def flush() -> None:
            if windows is not None:
                found = [ops[i] for i in straight]
                order = scheduled(found, self._raw_cycles, *windows, counter)
                line.ops.extend(straight[i] for i in order)
            else:
                line.ops.extend(straight)
            straight.clear()

        for node in nodes:
            if isinstance(node, Instr):
                straight.append(number[id(node)])
                continue
            flush()
            begin = len(line.ops)
            self._line(node.body, node.counter, number, ops, line, windows)
            slots = self._slots(line, begin, node.counter, ops)
            heads = self._heads(line, begin, DELAY_SLOTS - len(slots), ops)
            line.ops.append((node.counter, begin + len(heads)))
            line.ops.extend((*slots, *heads))
            line.ops.extend([None] * (DELAY_SLOTS - len(slots) - len(heads)))
            line.loops.append((begin, len(line.ops) - 1))
        flush()

    def _slots(self, line: _Line, begin: int, counter: int, ops: list[Instr]) -> list[int]:
        """Takes instructions that can stand behind the branch from the end of the line."""
        taken: list[int] = []
        floor = max([begin, *(last + 1 for _, last in line.loops)])
        while self._passes.fill_slots and len(taken) < DELAY_SLOTS and len(line.ops) > floor:
            entry = line.ops[-1]
            if not isinstance(entry, int) or ops[entry].dest == counter:
                break
            taken.insert(0, entry)
            line.ops.pop()
        return taken

    def _heads(self, line: _Line, begin: int, most: int, ops: list[Instr]) -> list[int]:
        """Up to ``most`` instructions from the begin of the loop: they can stand behind the branch
        for the next turn, which then begins behind them. Behind the last turn they do nothing,
        because nobody reads outside of a loop what it computes for itself."""
        inner = [first for first, _ in line.loops if first >= begin]
        end = min([len(line.ops), begin + most, *inner])
        found: list[int] = []
        for entry in line.ops[begin:end]:
            if not isinstance(entry, int) or ops[entry].dest < FIRST_VIRTUAL:
                break
            found.append(entry)
        return found if self._passes.fill_slots else []


def _flatten(nodes: Sequence[Node], ops: list[Instr], key: list[object]) -> None:
    for node in nodes:
        if isinstance(node, Instr):
            ops.append(node)
            key.append((node.fixed, node.dest, node.sources))
        else:
            key.append(node.counter)
            _flatten(node.body, ops, key)
            key.append(None)


def _outermost(loops: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """(begin, end) of loops that lie in no other."""
    found: list[tuple[int, int]] = []
    for first, last in sorted(loops, key=lambda one: (one[0], -one[1])):
        if not found or first >= found[-1][1]:
            found.append((first, last + 1))
    return found


def _place(register: int, places: dict[int, int]) -> int:
    if register < FIRST_VIRTUAL:
        return register
    if register not in places:
        raise EmitError(f"virtual register {register} is read and never written")
    return places[register]


def _template(
    base: NDArray[np.uint32], origin: NDArray[np.int64], ops: Sequence[Instr],
    atoms: tuple[tuple[int, int], ...], order: Sequence[Entry],
) -> _Template:  # fmt: skip
    at = np.flatnonzero(origin >= 0)
    origin = origin[at]
    columns: list[tuple[int, int, int, int, int]] = []
    for index in origin.tolist():
        operand = form(ops[index].mnemonic).immediate
        if operand is None:
            columns.append((0, 0, 0, 0, 0))
            continue
        ((high, low, shift),) = operand.pieces
        assert shift == 0
        mask = (1 << (high - low + 1)) - 1
        columns.append((low, operand.low, operand.high, operand.bias, mask))
    table = np.array(columns, np.int64).reshape(-1, 5).T
    shifts, least, most, bias, masks = table
    return _Template(base, origin, at, shifts, least, most, bias, masks, atoms, order)


def _filled(template: _Template, ops: Sequence[Instr], pace: Pace | None) -> Words:
    words = template.base.copy()
    chosen = [ops[index] for index in template.origin.tolist()]
    values = np.array([op.immediate for op in chosen], np.int64)
    wrong = (values < template.least) | (values > template.most)
    if wrong.any():
        raise EmitError(_range_fault(chosen[int(np.flatnonzero(wrong)[0])]))
    bits = ((values - template.bias) & template.masks) << template.shifts
    words[template.at] |= bits.astype(np.uint32)
    streams = np.zeros(len(words), np.int16)
    streams[template.at] = [op.stream for op in chosen]
    relocations = tuple(
        (at, op.segment)
        for at, op in zip(template.at.tolist(), chosen, strict=True)
        if op.segment is not None
    )
    return Words(words, streams, template.atoms, relocations, pace)


def _range_fault(op: Instr) -> str:
    operand = form(op.mnemonic).immediate
    assert operand is not None
    names = {int(one): one.name for one in Special}
    where = f" of {names[op.dest]}" if op.dest in names else ""
    return (
        f"{op.mnemonic}: {operand.name}{where} is {op.immediate}, outside of "
        f"{operand.low}..{operand.high}"
    )


def _without_dead(nodes: Sequence[Node]) -> list[Node]:
    """Without scalar instructions whose result nobody reads."""
    read: set[int] = set()
    _collect(nodes, read)
    kept: list[Node] = []
    changed = False
    for node in nodes:
        if isinstance(node, Loop):
            body = _kept(node.body, read)
            changed = changed or len(body) != len(node.body)
            kept.append(Loop(node.counter, body))
        elif node.dest < FIRST_VIRTUAL or node.dest in read:
            kept.append(node)
        else:
            changed = True
    return _without_dead(kept) if changed else kept


def _kept(nodes: Sequence[Node], read: set[int]) -> list[Node]:
    kept: list[Node] = []
    for node in nodes:
        if isinstance(node, Loop):
            kept.append(Loop(node.counter, _kept(node.body, read)))
        elif node.dest < FIRST_VIRTUAL or node.dest in read:
            kept.append(node)
    return kept


def _collect(nodes: Sequence[Node], read: set[int]) -> None:
    """Registers that something reads; what only moves a register on does not read it."""
    for node in nodes:
        if isinstance(node, Loop):
            read.add(node.counter)
            _collect(node.body, read)
        else:
            read.update(one for one in node.sources if one != node.dest)
