"""Code of a block before it has registers: instructions on virtual registers, and counted loops.

A `Writer` writes it. Addresses are `Value`s, a register and a constant, so that code that is
written straight, without a loop, has constants where a loop has registers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

from tvm_npu.codegen.program.parts import Segment
from tvm_npu.sim.isa.table import Field
from tvm_npu.sim.snowflake.isa import (
    SCALARS,
    SNOWFLAKE_ISA,
    Finish,
    Layout,
    MacMode,
    Preload,
    SnowflakeStream,
    Special,
    Wait,
)

FIRST_VIRTUAL = 64
"""Registers from here on are virtual; below are the scalars and the special ones."""
ONE = SCALARS - 1
"""A scalar register that holds 1 all the time: loops compare with it."""
ADDRESS_UNIT_BITS = 10
"""Addresses in memory are written as a number of units and a rest, so that a relocation can add a
segment's address to the instruction that holds the units: `movi`'s value begins at this bit."""

_REGISTERS = frozenset({"dest", "rs1", "rs2", "a", "b", "memory", "place", "words"})
_IMMEDIATES = frozenset({"shift", "value", "length", "imm", "pending"})


@dataclass(frozen=True)
class Form:
    """Where an instruction's operands lie, from the ISA's table."""

    match: int
    dest: Field | None
    sources: tuple[Field, ...]
    immediate: Field | None
    others: dict[str, Field]


@cache
def form(mnemonic: str) -> Form:
    """The form of an instruction."""
    instruction = SNOWFLAKE_ISA.by_mnemonic[mnemonic]
    fields = {field.name: field for field in instruction.fields}
    sources = tuple(
        field for name, field in fields.items() if name in _REGISTERS and name != "dest"
    )
    immediates = [field for name, field in fields.items() if name in _IMMEDIATES]
    others = {
        name: field
        for name, field in fields.items()
        if name not in _REGISTERS and name not in _IMMEDIATES
    }
    return Form(
        instruction.match, fields.get("dest"), sources, immediates[0] if immediates else None,
        others,
    )  # fmt: skip


class Instr:
    """One instruction: ``fixed`` are its word's bits without registers and immediate; ``dest`` is
    -1 where it writes none. ``segment`` says whose address is added when the program is loaded."""

    __slots__ = ("dest", "fixed", "immediate", "mnemonic", "segment", "sources", "stream")

    def __init__(
        self,
        mnemonic: str,
        fixed: int,
        dest: int,
        sources: tuple[int, ...],
        immediate: int,
        stream: int = 0,
        segment: Segment | None = None,
    ) -> None:
        self.mnemonic, self.fixed, self.dest = mnemonic, fixed, dest
        self.sources, self.immediate = sources, immediate
        self.stream, self.segment = stream, segment


@dataclass
class Loop:
    """``body`` runs until ``counter``, which the body counts down, is 0."""

    counter: int
    body: list[Instr | Loop]


Node = Instr | Loop


class Value(NamedTuple):
    """Register ``base`` (None: 0) plus ``constant``."""

    base: int | None
    constant: int

    def plus(self, constant: int) -> Value:
        return Value(self.base, self.constant + constant)


@cache
def _fixed(mnemonic: str, others: tuple[tuple[str, int], ...]) -> int:
    shape = form(mnemonic)
    word = shape.match
    for name, value in others:
        word |= shape.others[name].encode(value)
    return word


class Writer:
    """Writes the nodes of one block."""

    def __init__(self) -> None:
        self.nodes: list[Node] = []
        self._into = self.nodes
        self._next = FIRST_VIRTUAL

    def register(self) -> int:
        """A new virtual register."""
        self._next += 1
        return self._next - 1

    def op(
        self, mnemonic: str, dest: int = -1, sources: tuple[int, ...] = (), immediate: int = 0,
        segment: Segment | None = None, **others: int,
    ) -> None:  # fmt: skip
        fixed = _fixed(mnemonic, tuple(others.items()))
        stream = others.get("stream", 0)
        self._into.append(Instr(mnemonic, fixed, dest, sources, immediate, stream, segment))

    # --- values --------------------------------------------------------------------------------

    def put(self, dest: int, value: Value) -> None:
        """``dest`` = value."""
        low, high = form("addi").immediate.low, form("addi").immediate.high  # type: ignore[union-attr]
        if value.base is None:
            self._constant(dest, value.constant)
        elif low <= value.constant <= high:
            self.op("addi", dest, (value.base,), value.constant)
        else:
            constant = self.register()
            self._constant(constant, value.constant)
            self.op("add", dest, (value.base, constant))

    def _constant(self, dest: int, constant: int) -> None:
        field = form("movi").immediate
        assert field is not None
        if field.low <= constant <= field.high:
            self.op("movi", dest, (), constant)
            return
        bits = ADDRESS_UNIT_BITS
        units, shifted = self.register(), self.register()
        self.op("movi", units, (), constant >> bits)
        self.op("mov", shifted, (units,), bits)
        self.op("addi", dest, (shifted,), constant & ((1 << bits) - 1))

    def held(self, value: Value) -> int:
        """A register that holds ``value``; it must not be written."""
        if value.base is not None and value.constant == 0:
            return value.base
        register = self.register()
        self.put(register, value)
        return register

    def copied(self, value: Value) -> int:
        """A register of its own that holds ``value``."""
        register = self.register()
        self.put(register, value)
        return register

    def address(self, segment: Segment, offset: int, base_address: int) -> int:
        """A register with the address of byte ``offset`` of ``segment``, counted from
        ``base_address``, where the device's memory begins."""
        bits = ADDRESS_UNIT_BITS
        field = form("movi").immediate
        assert field is not None
        span = field.high - field.low + 1
        units = ((offset >> bits) - (base_address >> bits) - field.low) % span + field.low
        first, shifted = self.register(), self.register()
        self.op("movi", first, (), units, segment)
        self.op("mov", shifted, (first,), bits)
        rest = offset & ((1 << bits) - 1)
        return shifted if rest == 0 else self.held(Value(shifted, rest))

    # --- control -------------------------------------------------------------------------------

    def loop(
        self, count: int, values: Sequence[Value], steps: Sequence[int],
        body: Callable[[list[Value]], None], straight: bool = False,
    ) -> None:  # fmt: skip
        """``body`` ``count`` times; each turn ``values`` have moved on by ``steps``. A loop, or
        (``straight``, and for one turn) the body again and again."""
        if straight or count <= 1:
            for turn in range(count):
                body([v.plus(turn * s) for v, s in zip(values, steps, strict=True)])
            return
        moving = [
            Value(self.copied(value), 0) if step else value
            for value, step in zip(values, steps, strict=True)
        ]
        counter = self.register()
        self.op("movi", counter, (), count)
        node = Loop(counter, [])
        outside, self._into = self._into, node.body
        self.op("addi", counter, (counter,), -1)
        body(moving)
        for value, step in zip(moving, steps, strict=True):
            if step:
                assert value.base is not None
                self.put(value.base, Value(value.base, step))
        self._into = outside
        outside.append(node)

    # --- the machine's instructions ------------------------------------------------------------

    def set(self, special: Special, value: Value | int) -> None:
        self.put(int(special), Value(None, value) if isinstance(value, int) else value)

    def mac(self, mode: MacMode, finish: Finish, maps: int, weights: int, length: int) -> None:
        self.op("mac", -1, (maps, weights), length, mode=mode, finish=finish)

    def max(self, a: int, b: int, length: int) -> None:
        self.op("max", -1, (a, b), length)

    def vmov(self, what: Preload, layout: Layout, place: int) -> None:
        self.op("vmov", -1, (place,), 0, what=what, layout=layout)

    def sync(self, what: Wait, pending: int = 0) -> None:
        self.op("sync", -1, (), pending, what=what)

    def ld(
        self, buffer: int, memory: int, place: int, words: int, cus: int, vmac: int,
        shared: int, stream: SnowflakeStream,
    ) -> None:  # fmt: skip
        self.op(
            "ld", -1, (memory, place, words), 0, buffer=buffer, shared=shared, vmac=vmac, cus=cus,
            stream=stream,
        )  # fmt: skip

    def tmov(self, memory: int, place: int, words: int, cu: int, stream: SnowflakeStream) -> None:
        self.op("tmov", -1, (memory, place, words), 0, cu=cu, stream=stream)
