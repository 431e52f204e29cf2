"""The readable level of NMP code: loops, transfers and MAC steps with symbolic operands.

Layers are first written as trees of these commands, the same tree for all cores; `lower` turns a
tree into instructions. Every operand is an `Expression`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal

from tvm_npu.codegen.nmp.emit.expressions import ONE, Expression, Operand, Variable
from tvm_npu.sim.nmp.xnmp import DmaRegister, Level, MacRegister, Memory
from tvm_npu.sim.streams import Stream


@dataclass(frozen=True)
class Transfer:
    """A DMA instruction and the port registers that it needs. ``address`` is in DRAM, or in MB0
    for a forward; ``offset`` in the own memory."""

    mnemonic: str
    stream: Stream
    memory: Memory
    address: Expression
    offset: Expression
    semaphore: int
    registers: tuple[tuple[DmaRegister, Expression], ...]

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
    registers: tuple[tuple[MacRegister, Expression], ...]


@dataclass(frozen=True)
class Semaphore:
    """nmp_signal, nmp_wait or nmp_release by ``count``."""

    action: Literal["signal", "wait", "release"]
    level: Level
    number: int
    count: Expression = ONE


@dataclass(frozen=True)
class Assign:
    """variable = value."""

    variable: Variable
    value: Expression


@dataclass(frozen=True)
class Minimum:
    """variable = max(0, min(limit, value))."""

    variable: Variable
    limit: int
    value: Expression


@dataclass(frozen=True)
class Product:
    """variable = left * right, for products that are not affine."""

    variable: Variable
    left: Expression
    right: Expression


@dataclass(frozen=True)
class If:
    """Runs ``then`` where ``condition`` (relation) 0 holds, else ``otherwise``."""

    condition: Expression
    relation: Literal["==", "!=", ">"]
    then: tuple[Node, ...]
    otherwise: tuple[Node, ...] = ()


@dataclass(frozen=True)
class Loop:
    """index = 0, step, 2 * step ... below ``end`` (at least one turn); extent = min(step, end -
    index) when that is not the same in all turns."""

    index: Variable
    extent: Variable | None
    end: Expression
    step: int
    body: tuple[Node, ...]


Node = Transfer | Compute | Semaphore | Assign | Minimum | Product | If | Loop
Nodes = tuple[Node, ...]


def loop(
    name: str, end: Operand, step: int, body: Callable[[Expression, Expression], Nodes]
) -> Nodes:
    """A loop in tiles of ``step``; ``body`` gets (index, extent). One turn needs no loop."""
    total = Expression.of(end)
    if total.low < 1:
        raise ValueError(f"loop {name}: may have no turn (end is {total})")
    if total.high <= step:
        return body(Expression(), total)
    index = Variable(name, 0, total.high - 1, step)
    if total.multiple % step == 0:
        return (Loop(index, None, total, step, body(Expression.of(index), Expression.of(step))),)
    extent = Variable(f"{name}_extent", 1, step)
    nodes = body(Expression.of(index), Expression.of(extent))
    is_used = names(nodes, Expression.of(extent))
    return (Loop(index, extent if is_used else None, total, step, nodes),)


def names(nodes: Nodes, value: Expression) -> bool:
    """Whether some operand of a tree has a variable of ``value``."""
    wanted = value.variables
    return any(wanted & found.variables for node in walk(nodes) for found in operands(node))


def when(
    condition: Operand, relation: Literal["==", "!=", ">"], then: Nodes, otherwise: Nodes = ()
) -> Nodes:
    """A branch, or just one side of it where the bounds of ``condition`` decide."""
    value = Expression.of(condition)
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


def product(name: str, left: Expression, right: Expression) -> tuple[Expression, Nodes]:
    """left * right as an operand, and the command that makes it where it is not affine."""
    if left.is_constant or right.is_constant:
        constant, other = (left, right) if left.is_constant else (right, left)
        return other * constant.constant, ()
    variable = Variable(name, min(0, left.low * right.high), left.high * right.high)
    return Expression.of(variable), (Product(variable, left, right),)


def clamped(name: str, limit: int, value: Expression) -> tuple[Expression, Nodes]:
    """max(0, min(limit, value)) as an operand, and the command that makes it where bounds do not
    decide."""
    if 0 <= value.low and value.high <= limit:
        return value, ()
    if value.high <= 0:
        return Expression(), ()
    if value.low >= limit:
        return Expression(constant=limit), ()
    variable = Variable(name, max(0, min(limit, value.low)), min(limit, value.high))
    return Expression.of(variable), (Minimum(variable, limit, value),)


def at_least_one(name: str, value: Expression) -> tuple[Expression, Nodes]:
    """``value`` as the end of a loop, where it is known to be no less than 1, and the command that
    makes it where bounds do not say so."""
    if value.low > 0:
        return value, ()
    some = Variable(name, 1, value.high)
    return Expression.of(some), (Minimum(some, value.high, value),)


def registers(values: dict[MacRegister, Operand]) -> tuple[tuple[MacRegister, Expression], ...]:
    return tuple((register, Expression.of(value)) for register, value in values.items())


def dma_registers(values: dict[DmaRegister, Operand]) -> tuple[tuple[DmaRegister, Expression], ...]:
    return tuple((register, Expression.of(value)) for register, value in values.items())


Demand = tuple[Literal["mac", "dma"], int]
"""One configuration register: its unit and number."""


def demands(node: Transfer | Compute) -> Iterator[tuple[Demand, Expression]]:
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


def operands(node: Node) -> Iterator[Expression]:
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
