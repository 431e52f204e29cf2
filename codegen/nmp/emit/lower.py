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

from tvm_npu.codegen.nmp.emit.arithmetic import Arithmetic
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
from tvm_npu.codegen.nmp.emit.liveness import most_live, most_used, with_needed
from tvm_npu.codegen.nmp.emit.origins import Origins, Scope
from tvm_npu.codegen.nmp.emit.registers import (
    CORE_REGISTER,
    EXIT,
    EXIT_CALL,
    EXIT_CODE,
    LINE,
    ZERO,
    RegisterFile,
)
from tvm_npu.sim.isa.builder import WORD_BYTES, CodeBuilder
from tvm_npu.sim.nmp.rv32im import OPPOSITE
from tvm_npu.sim.nmp.xnmp import NMP_ISA, DmaRegister
from tvm_npu.sim.streams import Stream

RECEIVERS = (DmaRegister.RECEIVER_TLTS, DmaRegister.RECEIVER_TLES)

UNLESS = {"==": "bne", "!=": "beq"}
"""The branch around commands that run where this is so of a value and 0."""

TEMPORARIES = 7
"""Registers that a command may need for the values of its operands."""


@dataclass(frozen=True)
class Lowered:
    """Words and, for each, (layer index or -1, stream, index into ``scopes``)."""

    words: NDArray[np.uint32]
    debug: tuple[tuple[int, Stream, int], ...]
    scopes: tuple[Scope, ...]


class Lowering:
    """Emits trees one after another into one code image. ``far``: the labels that are out of reach
    of branches, of another lowering of the same trees (`OutOfReachError`)."""

    def __init__(self, far: Set[str] = frozenset()) -> None:
        self.builder = CodeBuilder(NMP_ISA)
        self.registers = RegisterFile(self.builder)
        self._arithmetic = Arithmetic(self.builder, self.registers)
        self._origins = Origins(self.builder)
        self._known: dict[Demand, Expression] = {
            ("dma", int(register)): Expression() for register in RECEIVERS
        }
        self._labels = 0
        self._far = far

    # What the program's frame uses

    def begin_layer(self, index: int) -> None:
        self._origins.begin_layer(index)
        self.registers.begin_layer(index)

    def keep_one(self) -> None:
        """Reserves a register that holds 1 from here on."""
        self._arithmetic.keep_one()

    def find_line(self, words: int) -> None:
        """Moves from the start of the parameter table to the core's line of ``words`` words."""
        with self.registers.temporaries():
            target = self.registers.temporary()
            scaled = self._arithmetic.scale(CORE_REGISTER, WORD_BYTES * words, target)
            self.builder.emit("add", rd=LINE, rs1=LINE, rs2=scaled)

    def exit(self) -> None:
        self.builder.li(EXIT_CALL, EXIT)
        self.builder.li(EXIT_CODE, 0)
        self.builder.emit("ecall")

    def finish(self) -> Lowered:
        records = self._origins.records()
        return Lowered(self.builder.finish(0), records, self._origins.scopes)

    # Trees

    def run(self, nodes: Nodes, later: Set[Variable] = frozenset()) -> None:
        """Emits a tree; variables that it makes keep their registers as long as something in it
        or behind it (``later``) reads their values."""
        before = self.registers.bound
        for node, needed, ended in with_needed(nodes, later):
            self._node(node, needed)
            gone = [v for v in ended if v in self.registers.bound and v not in before]
            self._release(*sorted(gone, key=lambda v: v.name))

    def run_layer(self, parameters: tuple[Variable, ...], nodes: Nodes) -> None:
        """Emits a layer: loads its words of the core's line, runs its tree, frees its registers.

        Words for which there are too few registers are loaded anew where they are used.
        RegisterPressureError where that is not enough."""
        before = self.registers.bound
        room = self.registers.free_count - TEMPORARIES - most_live(nodes, before | set(parameters))
        kept = most_used(parameters, nodes, room)
        in_line = {}
        for index, variable in enumerate(parameters):
            if variable in kept:
                self._load_parameter(variable, index)
            else:
                in_line[variable] = index - len(parameters)
        self._advance_line(len(parameters))
        self.registers.keep_in_line(in_line)
        self.run(nodes)
        self.registers.keep_in_line({})
        self._release(*sorted(self.registers.bound - before, key=lambda v: v.name))

    def run_early(self, parameters: tuple[Variable, ...], nodes: Nodes) -> None:
        """Emits what the next layer, of these words, does in front of the barrier."""
        self.registers.keep_in_line({v: index for index, v in enumerate(parameters)})
        self.run(nodes)
        self.registers.keep_in_line({})

    def _load_parameter(self, variable: Variable, index: int) -> None:
        """variable = word ``index`` of the core's line."""
        register = self.registers.bind(variable)
        self.builder.emit("lw", rd=register, rs1=LINE, imm=WORD_BYTES * index)

    def _advance_line(self, words: int) -> None:
        if words:
            self.builder.emit("addi", rd=LINE, rs1=LINE, imm=WORD_BYTES * words)

    def _node(self, node: Node, later: Set[Variable]) -> None:
        if isinstance(node, Loop):
            self._loop(node, later)
        elif isinstance(node, If):
            self._if(node, later)
        elif isinstance(node, Assign):
            with self._written(node.variable) as target:
                self._arithmetic.evaluate_into(target, node.value)
        elif isinstance(node, Minimum):
            self._minimum(node)
        elif isinstance(node, Product):
            with self.registers.temporaries():
                left, right = (
                    self._arithmetic.evaluate(node.left),
                    self._arithmetic.evaluate(node.right),
                )
                with self._written(node.variable) as target:
                    self.builder.emit("mul", rd=target, rs1=left, rs2=right)
        elif isinstance(node, Semaphore):
            with self.registers.temporaries():
                self.builder.emit(
                    f"nmp_{node.action}",
                    level=int(node.level),
                    sem=node.number,
                    rs1=self._arithmetic.evaluate(node.count),
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
        with self.registers.temporaries():
            address = self._arithmetic.evaluate(node.address)
            offset = self._arithmetic.evaluate(node.offset)
            memory = {} if node.is_forward else {"mem": int(node.memory)}
            with self._origins.stream(node.stream):
                self.builder.emit(
                    node.mnemonic, sem=node.semaphore, **memory, rs1=address, rs2=offset
                )

    def _loop(self, node: Loop, later: Set[Variable]) -> None:
        own = (node.index,) if node.extent is None else (node.index, node.extent)
        changing = self._set_in_front(node)
        index = self.registers.bind(node.index)
        self._arithmetic.evaluate_into(index, Expression())
        if node.extent is not None:
            self.registers.bind(node.extent)
        with self._origins.inside(tuple((v.name, self.registers.of(v)) for v in own)):
            top = self._label("loop")
            self.builder.label(top)
            if node.extent is not None:
                self._minimum(Minimum(node.extent, node.step, node.end - node.index))
            self.run(node.body, later | node.end.variables | set(own))
            with self.registers.temporaries():
                self._arithmetic.add(index, index, node.step)
                end = self._arithmetic.evaluate(node.end)
                self._branch("blt", index, end, top)
        self._release(*own)
        for register in changing:  # the last turn's value is not worth tracking
            self._known.pop(register, None)

    def _set_in_front(self, node: Loop) -> set[Demand]:
        """Sets the configuration registers that have one value in the whole loop; the others."""
        variables = assigned((node,))
        values: dict[Demand, set[Expression]] = {}
        for inner in walk(node.body):
            if isinstance(inner, Transfer | Compute):
                for register, value in demands(inner):
                    values.setdefault(register, set()).add(value)
        changing = set()
        for register, found in values.items():
            value = min(found, key=str)
            if len(found) == 1 and not value.variables & variables:
                self._configure(register, value)
            else:
                self._known.pop(register, None)
                changing.add(register)
        return changing

    def _if(self, node: If, later: Set[Variable]) -> None:
        skip = self._label("else")
        with self.registers.temporaries():
            value = self._arithmetic.evaluate(node.condition)
            if node.relation == ">":
                self._branch("bge", ZERO, value, skip)
            else:
                self._branch(UNLESS[node.relation], value, ZERO, skip)
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
        with self._written(node.variable) as target:
            self._arithmetic.evaluate_into(target, node.value)
            limit = self._arithmetic.evaluate(Expression.of(node.limit))
            self._branch("bge", limit, target, fits)
            self.builder.mv(target, limit)
            self.builder.label(fits)
            if node.value.low < 0 and node.variable.low < 1:
                floor = self._label("floor")
                self._branch("bge", target, ZERO, floor)
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
            with self.registers.temporaries():
                self.builder.emit(name, creg=number, rs1=self._arithmetic.evaluate(value))
        self._known[register] = value

    @contextmanager
    def _written(self, variable: Variable) -> Iterator[int]:
        """The register to write; what configuration registers hold of the old value is gone."""
        with self.registers.temporaries():
            register = self.registers.to_write(variable)
            self._forget({variable})
            yield register
            self.registers.written(variable, register)

    def _release(self, *variables: Variable) -> None:
        for variable in variables:
            self.registers.release(variable)
        self._forget(set(variables))

    def _forget(self, variables: Set[Variable]) -> None:
        """Configuration registers with values of ``variables`` must be set again."""
        self._known = {k: v for k, v in self._known.items() if not (v.variables & variables)}

    def _branch(self, name: str, left: int, right: int, label: str) -> None:
        """To ``label`` where ``name`` says so of the two registers. A jump reaches 256 times as far
        as a branch, which then goes around it."""
        if label in self._far:
            self.builder.emit(OPPOSITE[name], rs1=left, rs2=right, imm=2 * WORD_BYTES)
            self.builder.j(label)
        else:
            self.builder.emit(name, rs1=left, rs2=right, imm=label)

    def _label(self, kind: str) -> str:
        self._labels += 1
        return f"{kind}{self._labels}"
