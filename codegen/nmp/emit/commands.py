"""The readable level of NMP code: loops, transfers and MAC steps with symbolic operands.

Layers are first written as trees of these commands, the same tree for all cores; `lower` turns a
tree into instructions. Every operand is an :class:`Affine` expression over variables that live in
registers (loop indices, words of the core's parameter line), so that "does it change inside this
loop" and "can it be zero" are questions with exact answers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from math import gcd
from typing import Literal

from tvm_npu.sim.nmp.xnmp import DmaRegister, Level, MacRegister, Memory
from tvm_npu.sim.streams import Stream


@dataclass(frozen=True)
class Variable:
    """A register's content: its bounds over all cores that run the code, and a known divisor."""

    name: str
    low: int
    high: int
    multiple: int = 1


@dataclass(frozen=True)
class Affine:
    """``sum(coefficient * variable) + constant``; terms in the order of the variables' names."""

    terms: tuple[tuple[Variable, int], ...] = ()
    constant: int = 0

    @staticmethod
    def of(value: Operand) -> Affine:
        if isinstance(value, Affine):
            return value
        if isinstance(value, Variable):
            return Affine(((value, 1),))
        return Affine(constant=int(value))

    def __add__(self, other: Operand) -> Affine:
        right = Affine.of(other)
        merged = dict(self.terms)
        for variable, coefficient in right.terms:
            merged[variable] = merged.get(variable, 0) + coefficient
        kept = ((v, c) for v, c in merged.items() if c)
        return Affine(
            tuple(sorted(kept, key=lambda term: term[0].name)), self.constant + right.constant
        )

    def __mul__(self, factor: int) -> Affine:
        if factor == 0:
            return Affine()
        return Affine(tuple((v, c * factor) for v, c in self.terms), self.constant * factor)

    def __sub__(self, other: Operand) -> Affine:
        return self + Affine.of(other) * -1

    @property
    def is_constant(self) -> bool:
        return not self.terms

    @property
    def variables(self) -> frozenset[Variable]:
        return frozenset(variable for variable, _ in self.terms)

    @cached_property
    def low(self) -> int:
        return self.constant + sum(min(c * v.low, c * v.high) for v, c in self.terms)

    @cached_property
    def high(self) -> int:
        return self.constant + sum(max(c * v.low, c * v.high) for v, c in self.terms)

    @cached_property
    def multiple(self) -> int:
        """A number that divides every value (0: the value is zero)."""
        return gcd(self.constant, *(c * v.multiple for v, c in self.terms))

    def __str__(self) -> str:
        text = ""
        for variable, coefficient in self.terms:
            sign = "-" if coefficient < 0 else "+"
            factor = "" if abs(coefficient) == 1 else f"{abs(coefficient)}*"
            text += f" {sign} {factor}{variable.name}"
        if self.constant or not text:
            text += f" {'-' if self.constant < 0 else '+'} {abs(self.constant)}"
        text = text[1:]
        return text[2:] if text.startswith("+ ") else "-" + text[2:]


Operand = Affine | Variable | int
ONE = Affine(constant=1)


@dataclass(frozen=True)
class Transfer:
    """A DMA instruction and the port registers that it needs. ``address`` is in DRAM, or in MB0
    for a forward; ``offset`` in the own memory."""

    mnemonic: str
    stream: Stream
    memory: Memory
    address: Affine
    offset: Affine
    semaphore: int
    registers: tuple[tuple[DmaRegister, Affine], ...]

    @property
    def is_forward(self) -> bool:
        """From MB2 to MB0, not between DRAM and a memory."""
        return self.mnemonic.startswith("nmp_forward")


@dataclass(frozen=True)
class Compute:
    """A MAC instruction and the configuration registers that it needs."""

    mnemonic: str
    sub: int | None
    semaphore: int
    registers: tuple[tuple[MacRegister, Affine], ...]


@dataclass(frozen=True)
class Semaphore:
    """nmp_signal, nmp_wait or nmp_release by ``count``."""

    action: Literal["signal", "wait", "release"]
    level: Level
    number: int
    count: Affine = ONE


@dataclass(frozen=True)
class Assign:
    """variable = value."""

    variable: Variable
    value: Affine


@dataclass(frozen=True)
class Minimum:
    """variable = max(0, min(limit, value))."""

    variable: Variable
    limit: int
    value: Affine


@dataclass(frozen=True)
class Product:
    """variable = left * right, for products that are not affine."""

    variable: Variable
    left: Affine
    right: Affine


@dataclass(frozen=True)
class If:
    """Runs ``then`` where ``condition`` (relation) 0 holds, else ``otherwise``."""

    condition: Affine
    relation: Literal["==", "!=", ">"]
    then: tuple[Node, ...]
    otherwise: tuple[Node, ...] = ()


@dataclass(frozen=True)
class Loop:
    """index = 0, step, 2 * step ... below ``end`` (at least one turn); extent = min(step, end -
    index) when that is not the same in all turns."""

    index: Variable
    extent: Variable | None
    end: Affine
    step: int
    body: tuple[Node, ...]


Node = Transfer | Compute | Semaphore | Assign | Minimum | Product | If | Loop
Nodes = tuple[Node, ...]


def loop(name: str, end: Operand, step: int, body: Callable[[Affine, Affine], Nodes]) -> Nodes:
    """A loop in tiles of ``step``; ``body`` gets (index, extent). One turn needs no loop."""
    total = Affine.of(end)
    if total.low < 1:
        raise ValueError(f"loop {name}: may have no turn (end is {total})")
    if total.high <= step:
        return body(Affine(), total)
    index = Variable(name, 0, total.high - 1, step)
    if total.multiple % step == 0:
        return (Loop(index, None, total, step, body(Affine.of(index), Affine.of(step))),)
    extent = Variable(f"{name}_extent", 1, step)
    nodes = body(Affine.of(index), Affine.of(extent))
    is_used = names(nodes, Affine.of(extent))
    return (Loop(index, extent if is_used else None, total, step, nodes),)


def names(nodes: Nodes, value: Affine) -> bool:
    """Whether some operand of a tree has a variable of ``value``."""
    wanted = value.variables
    return any(wanted & found.variables for node in walk(nodes) for found in operands(node))


def when(
    condition: Operand, relation: Literal["==", "!=", ">"], then: Nodes, otherwise: Nodes = ()
) -> Nodes:
    """A branch, or just one side of it where the bounds of ``condition`` decide."""
    value = Affine.of(condition)
    if relation == ">":
        always, never = value.low > 0, value.high <= 0
    else:
        zero, nonzero = value.low == value.high == 0, value.low > 0 or value.high < 0
        always, never = (zero, nonzero) if relation == "==" else (nonzero, zero)
    if always:
        return then
    if never:
        return otherwise
    return (If(value, relation, then, otherwise),) if then or otherwise else ()


def product(name: str, left: Affine, right: Affine) -> tuple[Affine, Nodes]:
    """left * right as an operand, and the command that makes it where it is not affine."""
    if left.is_constant or right.is_constant:
        constant, other = (left, right) if left.is_constant else (right, left)
        return other * constant.constant, ()
    variable = Variable(name, min(0, left.low * right.high), left.high * right.high)
    return Affine.of(variable), (Product(variable, left, right),)


def clamped(name: str, limit: int, value: Affine) -> tuple[Affine, Nodes]:
    """max(0, min(limit, value)) as an operand, and the command that makes it where bounds do not
    decide."""
    if 0 <= value.low and value.high <= limit:
        return value, ()
    if value.high <= 0:
        return Affine(), ()
    if value.low >= limit:
        return Affine(constant=limit), ()
    variable = Variable(name, max(0, min(limit, value.low)), min(limit, value.high))
    return Affine.of(variable), (Minimum(variable, limit, value),)


def registers(values: dict[MacRegister, Operand]) -> tuple[tuple[MacRegister, Affine], ...]:
    return tuple((register, Affine.of(value)) for register, value in values.items())


def dma_registers(values: dict[DmaRegister, Operand]) -> tuple[tuple[DmaRegister, Affine], ...]:
    return tuple((register, Affine.of(value)) for register, value in values.items())


Demand = tuple[Literal["mac", "dma"], int]
"""One configuration register: its unit and number."""


def demands(node: Transfer | Compute) -> Iterator[tuple[Demand, Affine]]:
    """The configuration registers that a command needs, and their values."""
    for register, value in node.registers:
        yield ("mac" if isinstance(node, Compute) else "dma", int(register)), value


def walk(nodes: Nodes) -> Iterator[Node]:
    """All commands of a tree, outer ones first."""
    for node in nodes:
        yield node
        if isinstance(node, Loop):
            yield from walk(node.body)
        elif isinstance(node, If):
            yield from walk(node.then)
            yield from walk(node.otherwise)


def operands(node: Node) -> Iterator[Affine]:
    """The expressions that a command itself (not its body) reads."""
    if isinstance(node, Transfer | Compute):
        yield from (value for _, value in node.registers)
        if isinstance(node, Transfer):
            yield node.address
            yield node.offset
    elif isinstance(node, Semaphore):
        yield node.count
    elif isinstance(node, Assign | Minimum):
        yield node.value
    elif isinstance(node, Product):
        yield node.left
        yield node.right
    elif isinstance(node, If):
        yield node.condition
    else:
        yield node.end


def assigned(nodes: Nodes) -> frozenset[Variable]:
    """The variables that a tree changes."""
    found: set[Variable] = set()
    for node in walk(nodes):
        if isinstance(node, Assign | Minimum | Product):
            found.add(node.variable)
        elif isinstance(node, Loop):
            found.add(node.index)
            if node.extent is not None:
                found.add(node.extent)
    return frozenset(found)


def listing(nodes: Nodes, indent: str = "") -> str:
    """The tree as text, one command a line."""
    return "".join(_lines(node, indent) for node in nodes)


def _lines(node: Node, indent: str) -> str:
    deeper = indent + "  "
    if isinstance(node, Loop):
        extent = f" ({node.extent.name} = min({node.step}, rest))" if node.extent else ""
        head = f"{indent}for {node.index.name} in 0 .. {node.end} step {node.step}{extent}:\n"
        return head + listing(node.body, deeper)
    if isinstance(node, If):
        text = f"{indent}if {node.condition} {node.relation} 0:\n" + listing(node.then, deeper)
        if node.otherwise:
            text += f"{indent}else:\n" + listing(node.otherwise, deeper)
        return text
    if isinstance(node, Assign):
        return f"{indent}{node.variable.name} = {node.value}\n"
    if isinstance(node, Minimum):
        floor = "max(0, " if node.value.low < 0 else ""
        end = ")" if floor else ""
        return f"{indent}{node.variable.name} = {floor}min({node.limit}, {node.value}){end}\n"
    if isinstance(node, Product):
        return f"{indent}{node.variable.name} = ({node.left}) * ({node.right})\n"
    if isinstance(node, Semaphore):
        return f"{indent}{node.action} {node.level.name} {node.number} by {node.count}\n"
    operands = ", ".join(f"{r.name.lower()}={v}" for r, v in node.registers)
    done = f" -> {node.semaphore}" if node.semaphore else ""
    if isinstance(node, Compute):
        sub = "" if node.sub is None else f".{node.sub}"
        return f"{indent}{node.mnemonic}{sub} {operands}{done}\n"
    where = f"[{node.address}] {node.memory.name}+{node.offset}"
    return f"{indent}{node.mnemonic} {node.stream.name} {where} {operands}{done}\n"
