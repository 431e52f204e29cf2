"""From command trees to RV32IM + Xnmp words.

Variables get registers, affine operands become a few scalar instructions, loops become real
loops. A configuration register is written only where its value changes: a value that is the same
everywhere in a loop is set in front of it, and what a register is known to hold is not set again.
"""

from __future__ import annotations

from collections.abc import Iterator, Set
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tvm_npu.codegen.errors import EmitError
from tvm_npu.codegen.nmp.emit.commands import (
    Assign,
    Compute,
    Demand,
    If,
    Loop,
    Minimum,
    Node,
    Nodes,
    Product,
    Semaphore,
    Transfer,
    assigned,
    demands,
    walk,
)
from tvm_npu.codegen.nmp.emit.expressions import Expression, Variable
from tvm_npu.codegen.nmp.emit.liveness import in_sequence, most_live, most_used
from tvm_npu.sim.isa.builder import REGISTERS, WORD_BYTES, CodeBuilder
from tvm_npu.sim.nmp.xnmp import NMP_ISA, DmaRegister
from tvm_npu.sim.streams import Stream

ZERO = REGISTERS["zero"]
CORE = REGISTERS["a0"]
LINE = REGISTERS["a1"]
"""The core's parameter line; moves from layer to layer."""
EXIT_CODE, EXIT_CALL, EXIT = REGISTERS["a0"], REGISTERS["a7"], 93
FREE = tuple(
    REGISTERS[name]
    for name in (
        *(f"s{number}" for number in range(12)), *(f"a{number}" for number in range(2, 8)),
        "ra", "gp", "tp", "sp", *(f"t{number}" for number in range(7)),
    )
)  # fmt: skip
"""Registers for variables (from the front) and temporary values (from the back)."""

RECEIVERS = (DmaRegister.RECEIVER_TLTS, DmaRegister.RECEIVER_TLES)

TEMPORARIES = 7
"""Registers that a command may need for the values of its operands."""

Scope = tuple[tuple[str, int], ...]
"""(loop variable, register) of the tile that an instruction works on."""


@dataclass(frozen=True)
class Lowered:
    """Words and, for each, (layer index or -1, stream, index into ``scopes``)."""

    words: NDArray[np.uint32]
    debug: tuple[tuple[int, Stream, int], ...]
    scopes: tuple[Scope, ...]


class Lowering:
    """Emits trees one after another into one code image."""

    def __init__(self) -> None:
        self.builder = CodeBuilder(NMP_ISA)
        self._debug: list[tuple[int, Stream, int]] = []
        self._scopes: dict[Scope, int] = {(): 0}
        self._scope: Scope = ()
        self._layer = -1
        self._stream = Stream.OTHER
        self._registers: dict[Variable, int] = {}
        self._free = list(FREE)
        self._known: dict[Demand, Expression] = {
            ("dma", int(register)): Expression()
            for register in RECEIVERS  # after a reset
        }
        self._labels = 0
        self._one: int | None = None
        self._taken: list[int] = []
        self._in_line: dict[Variable, int] = {}

    # What the program's frame uses

    def begin_layer(self, index: int) -> None:
        self._note()
        self._layer = index

    def bind(self, variable: Variable, register: int | None = None) -> int:
        """Gives ``variable`` a register (a named one, or any) until `release`."""
        if register is None:
            register = self._take()
        self._registers[variable] = register
        return register

    def release(self, *variables: Variable) -> None:
        for variable in variables:
            register = self._registers.pop(variable)
            if register in FREE:
                self._give(register)
        gone = set(variables)
        self._known = {k: v for k, v in self._known.items() if not (v.variables & gone)}

    def keep_one(self) -> None:
        """Reserves a register that holds 1 from here on."""
        self._one = self._take()
        self.builder.li(self._one, 1)

    def find_line(self, words: int) -> None:
        """Moves from the start of the parameter table to the core's line of ``words`` words."""
        with self._temporaries():
            scaled = self._scale(CORE, WORD_BYTES * words, self._temporary())
            self.builder.emit("add", rd=LINE, rs1=LINE, rs2=scaled)

    def load_parameter(self, variable: Variable, index: int) -> None:
        """variable = word ``index`` of the core's line."""
        register = self.bind(variable)
        self.builder.emit("lw", rd=register, rs1=LINE, imm=WORD_BYTES * index)

    def advance_line(self, words: int) -> None:
        if words:
            self.builder.emit("addi", rd=LINE, rs1=LINE, imm=WORD_BYTES * words)

    def exit(self) -> None:
        self.builder.li(EXIT_CALL, EXIT)
        self.builder.li(EXIT_CODE, 0)
        self.builder.emit("ecall")

    def finish(self) -> Lowered:
        self._note()
        return Lowered(self.builder.finish(0), tuple(self._debug), tuple(self._scopes))

    # Trees

    def run(self, nodes: Nodes, later: Set[Variable] = frozenset()) -> None:
        """Emits a tree; variables that it makes keep their registers as long as something in it
        or behind it (``later``) names them."""
        before = set(self._registers)
        for node, needed, ended in in_sequence(nodes, later):
            self._node(node, needed)
            gone = [v for v in ended if v in self._registers and v not in before]
            self.release(*sorted(gone, key=lambda v: v.name))

    def run_layer(self, parameters: tuple[Variable, ...], nodes: Nodes) -> None:
        """Emits a layer: loads its words of the core's line, runs its tree, frees its registers.

        Words for which there are too few registers are loaded anew where they are used."""
        before = set(self._registers)
        room = len(self._free) - TEMPORARIES - most_live(nodes, before | set(parameters))
        kept = most_used(parameters, nodes, room)
        for index, variable in enumerate(parameters):
            if variable in kept:
                self.load_parameter(variable, index)
            else:
                self._in_line[variable] = index - len(parameters)
        self.advance_line(len(parameters))
        self.run(nodes)
        self._in_line.clear()
        self.release(*sorted(set(self._registers) - before, key=lambda v: v.name))

    def run_early(self, parameters: tuple[Variable, ...], nodes: Nodes) -> None:
        """Emits what the next layer, of these words, does in front of the barrier."""
        self._in_line = {variable: index for index, variable in enumerate(parameters)}
        self.run(nodes)
        self._in_line = {}

    def _node(self, node: Node, later: Set[Variable]) -> None:
        if isinstance(node, Loop):
            self._loop(node, later)
        elif isinstance(node, If):
            self._if(node, later)
        elif isinstance(node, Assign):
            with self._temporaries():
                target = self._target(node.variable)
                self._evaluate_into(target, node.value)
        elif isinstance(node, Minimum):
            self._minimum(node)
        elif isinstance(node, Product):
            with self._temporaries():
                left, right = self._evaluate(node.left), self._evaluate(node.right)
                target = self._target(node.variable)
                self.builder.emit("mul", rd=target, rs1=left, rs2=right)
        elif isinstance(node, Semaphore):
            with self._temporaries():
                self.builder.emit(
                    f"nmp_{node.action}",
                    level=int(node.level),
                    sem=node.number,
                    rs1=self._evaluate(node.count),
                )
        else:
            for register, value in demands(node):
                self._configure(register, value)
            self._command(node)

    def _command(self, node: Transfer | Compute) -> None:
        if isinstance(node, Compute):
            sub = {} if node.sub is None else {"sub": node.sub}
            self.builder.emit(node.mnemonic, sem=node.semaphore, **sub)
            return
        with self._temporaries():
            address = self._evaluate(node.address)
            offset = self._evaluate(node.offset)
            self._note()
            self._stream = node.stream
            memory = {} if node.is_forward else {"mem": int(node.memory)}
            self.builder.emit(node.mnemonic, sem=node.semaphore, **memory, rs1=address, rs2=offset)
            self._note()
            self._stream = Stream.OTHER

    def _loop(self, node: Loop, later: Set[Variable]) -> None:
        own = [node.index] if node.extent is None else [node.index, node.extent]
        changing = assigned((node,))
        values: dict[Demand, set[Expression]] = {}
        for inner in walk(node.body):
            if isinstance(inner, Transfer | Compute):
                for register, value in demands(inner):
                    values.setdefault(register, set()).add(value)
        for register, found in values.items():
            value = min(found, key=str)
            if len(found) == 1 and not value.variables & changing:
                self._configure(register, value)
            else:
                self._known.pop(register, None)

        index = self.bind(node.index)
        self._evaluate_into(index, Expression())
        if node.extent is not None:
            self.bind(node.extent)
        outer = self._scope
        self._enter(outer + tuple((variable.name, self._registers[variable]) for variable in own))
        top = self._label("loop")
        self.builder.label(top)
        if node.extent is not None:
            self._minimum(Minimum(node.extent, node.step, node.end - node.index))
        self.run(node.body, later | node.end.variables | set(own))
        with self._temporaries():
            self._add(index, index, node.step)
            end = self._evaluate(node.end)
            self.builder.emit("blt", rs1=index, rs2=end, imm=top)
        self._enter(outer)
        self.release(*own)
        for register, found in values.items():  # the last turn's value is not worth tracking
            if len(found) > 1 or min(found, key=str).variables & changing:
                self._known.pop(register, None)

    def _if(self, node: If, later: Set[Variable]) -> None:
        skip = self._label("else")
        opposite = {"==": "bne", "!=": "beq"}
        with self._temporaries():
            value = self._evaluate(node.condition)
            if node.relation == ">":
                self.builder.emit("bge", rs1=ZERO, rs2=value, imm=skip)
            else:
                self.builder.emit(opposite[node.relation], rs1=value, rs2=ZERO, imm=skip)
        before = dict(self._known)
        self.run(node.then, later)
        after = self._known
        self._known = before
        if node.otherwise:
            end = self._label("end")
            self.builder.j(end)
            self.builder.label(skip)
            self.run(node.otherwise, later)
            self.builder.label(end)
        else:
            self.builder.label(skip)
        self._known = {k: v for k, v in self._known.items() if after.get(k) == v}

    def _minimum(self, node: Minimum) -> None:
        fits = self._label("fits")
        with self._temporaries():
            target = self._target(node.variable)
            self._evaluate_into(target, node.value)
            limit = self._evaluate(Expression.of(node.limit))
            self.builder.emit("bge", rs1=limit, rs2=target, imm=fits)
            self.builder.mv(target, limit)
            self.builder.label(fits)
            if node.value.low < 0 and node.variable.low < 1:
                floor = self._label("floor")
                self.builder.emit("bge", rs1=target, rs2=ZERO, imm=floor)
                self.builder.mv(target, ZERO)
                self.builder.label(floor)

    def _configure(self, register: Demand, value: Expression) -> None:
        if self._known.get(register) == value:
            return
        unit, number = register
        name = "nmp_mcfg" if unit == "mac" else "nmp_dcfg"
        if value.is_constant and -2048 <= value.constant <= 2047:
            self.builder.emit(name + "i", creg=number, imm=value.constant)
        else:
            with self._temporaries():
                self.builder.emit(name, creg=number, rs1=self._evaluate(value))
        self._known[register] = value

    # Scalar arithmetic

    def _evaluate(self, value: Expression) -> int:
        """A register that holds ``value``; a temporary one unless the value lies in one."""
        if value.is_constant and value.constant == 0:
            return ZERO
        if value.is_constant and value.constant == 1 and self._one is not None:
            return self._one
        if len(value.terms) == 1 and value.constant == 0 and value.terms[0][1] == 1:
            return self._register(value.terms[0][0])
        target = self._temporary()
        self._evaluate_into(target, value)
        return target

    def _evaluate_into(self, target: int, value: Expression) -> None:
        """target = value; ``target`` is none of the value's registers, or its only one."""
        if value.is_constant:
            self.builder.li(target, value.constant)
            return
        terms = sorted(value.terms, key=lambda term: (term[1] < 0, abs(term[1]) == 1))
        total: int | None = None
        for variable, coefficient in terms:
            if total is None:
                source = self._register(variable)
                total = self._scale(source, abs(coefficient), target)
                if coefficient < 0:
                    self.builder.emit("sub", rd=target, rs1=ZERO, rs2=total)
                    total = target
                continue
            with self._temporaries():
                scaled = self._scale(self._register(variable), abs(coefficient), None)
                operation = "sub" if coefficient < 0 else "add"
                self.builder.emit(operation, rd=target, rs1=total, rs2=scaled)
                total = target
        assert total is not None
        if value.constant or total != target:
            self._add(target, total, value.constant)

    def _scale(self, source: int, factor: int, target: int | None) -> int:
        """A register with source * factor: ``source`` itself, ``target`` or a temporary one."""
        if factor == 1:
            return source
        if target is None:
            target = self._temporary()
        if factor & (factor - 1) == 0:
            self.builder.emit("slli", rd=target, rs1=source, shamt=factor.bit_length() - 1)
        else:
            with self._temporaries():
                constant = self._temporary()
                self.builder.li(constant, factor)
                self.builder.emit("mul", rd=target, rs1=source, rs2=constant)
        return target

    def _add(self, target: int, source: int, constant: int) -> None:
        if -2048 <= constant <= 2047:
            self.builder.emit("addi", rd=target, rs1=source, imm=constant)
        else:
            number = self._temporary()
            self.builder.li(number, constant)
            self.builder.emit("add", rd=target, rs1=source, rs2=number)

    # Registers, labels, debug records

    def _register(self, variable: Variable) -> int:
        register = self._registers.get(variable)
        if register is None and variable in self._in_line:
            register = self._temporary()
            self.builder.emit("lw", rd=register, rs1=LINE, imm=WORD_BYTES * self._in_line[variable])
        if register is None:
            raise EmitError(f"variable {variable.name!r} is read before it has a value")
        return register

    def _target(self, variable: Variable) -> int:
        """The register to write; what configuration registers hold of the old value is gone."""
        if variable not in self._registers:
            self.bind(variable)
        changed = {variable}
        self._known = {k: v for k, v in self._known.items() if not (v.variables & changed)}
        return self._registers[variable]

    def _take(self) -> int:
        if not self._free:
            raise EmitError(f"layer {self._layer}: more than {len(FREE)} live values")
        return self._free.pop(0)

    def _give(self, register: int) -> None:
        self._free.append(register)
        self._free.sort(key=FREE.index)

    def _temporary(self) -> int:
        if not self._free:
            raise EmitError(f"layer {self._layer}: more than {len(FREE)} live values")
        register = self._free.pop()
        self._taken.append(register)
        return register

    @contextmanager
    def _temporaries(self) -> Iterator[None]:
        """Frees, at its end, the temporary registers taken inside."""
        outer, self._taken = self._taken, []
        try:
            yield
        finally:
            for register in self._taken:
                self._give(register)
            self._taken = outer

    def _label(self, kind: str) -> str:
        self._labels += 1
        return f"{kind}{self._labels}"

    def _enter(self, scope: Scope) -> None:
        self._note()
        self._scope = scope
        self._scopes.setdefault(scope, len(self._scopes))

    def _note(self) -> None:
        """Records who the instructions since the last call belong to."""
        record = (self._layer, self._stream, self._scopes[self._scope])
        missing = self.builder.position // WORD_BYTES - len(self._debug)
        self._debug.extend([record] * missing)
