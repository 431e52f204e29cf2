"""Command trees compute what they say, whatever registers their variables get: random ones, against
an interpreter of trees."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

from tests.codegen.nmp.fixed_layers import SEEDS
from tests.examples import examples
from tests.sim.nmp.rv32im_model import BRANCH, MASK, computed, signed
from tvm_npu.codegen.nmp.emit import registers as few
from tvm_npu.codegen.nmp.emit.commands import (
    Assign,
    Compute,
    If,
    Loop,
    Minimum,
    Nodes,
    Product,
    Semaphore,
    registers,
)
from tvm_npu.codegen.nmp.emit.expressions import Expression, Variable
from tvm_npu.codegen.nmp.emit.layer import LayerCode
from tvm_npu.codegen.nmp.emit.liveness import most_live
from tvm_npu.codegen.nmp.emit.lower import Lowering
from tvm_npu.codegen.nmp.emit.parameters import LayerParameters, Location
from tvm_npu.codegen.nmp.emit.registers import FREE, LINE, RegisterPressureError
from tvm_npu.codegen.nmp.emit.spilling import spilled
from tvm_npu.sim.nmp.xnmp import NMP_ISA, Level, MacRegister

MOST = 1000
MOST_STEPS = 50_000
LABELS = [f"{kind}{n}" for kind in ("loop", "else", "end", "fits", "floor") for n in range(1, 100)]
NAMES = tuple(Variable(f"v{number}", 0, MOST) for number in range(8))
PRODUCTS = tuple(Variable(f"p{number}", 0, MOST * MOST) for number in range(2))
Values = dict[Variable, int]


class Trees:
    """Random trees: every value that is read has been given on every way to it."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.loops = 0

    def value(self, known: list[Variable]) -> Expression:
        """Of at most two variables."""
        random = self.random
        found = Expression(constant=random.randint(-40, 40))
        for variable in random.sample(known, min(len(known), random.randint(0, 2))):
            found = found + Expression.of(variable) * random.choice((-3, -1, 1, 1, 2, 5))
        return found

    def nodes(self, known: list[Variable], depth: int, count: int) -> tuple[Nodes, list[Variable]]:
        """``count`` commands, and the variables that have values behind them."""
        nodes: Nodes = ()
        for _ in range(count):
            more, known = self.command(known, depth)
            nodes += more
        return nodes, known

    def command(self, known: list[Variable], depth: int) -> tuple[Nodes, list[Variable]]:
        random = self.random
        kind = random.choice(("set", "set", "set", "say", "say", "work", "if", "loop", "product"))
        if depth == 0 and kind in ("if", "loop"):
            kind = "set"
        if kind == "set":
            variable = random.choice(NAMES)
            return (Minimum(variable, MOST, self.value(known)),), _with(known, variable)
        if kind == "product" and len(known) > 1:
            left, right = (Expression.of(one) for one in random.sample(known, 2))
            if max(left.high, right.high) <= MOST:
                variable = random.choice(PRODUCTS)
                return (Product(variable, left, right),), _with(known, variable)
        if kind == "work":
            values = registers({MacRegister.SHIFT: self.value(known)})
            return (Compute("nmp_activation", None, 0, values),), known
        if kind == "if":
            relation = random.choice(("==", "!=", ">"))
            then, one = self.nodes(known, depth - 1, random.randint(1, 4))
            other: Nodes = ()
            two = known
            if random.random() < 0.6:
                other, two = self.nodes(known, depth - 1, random.randint(1, 4))
            node = If(self.value(known), relation, then, other)  # type: ignore[arg-type]
            return (node,), [variable for variable in one if variable in two]
        if kind == "loop":
            index = Variable(f"i{random.randint(0, 2)}_{depth}", 0, 20)
            body, inside = self.nodes(_with(known, index), depth - 1, random.randint(1, 5))
            end = Expression(constant=random.randint(1, 4))
            node = Loop(index, None, end, random.randint(1, 2), body)
            return (node,), [variable for variable in inside if variable != index]
        return (Semaphore("signal", Level.TLT, 1, self.value(known)),), known


def _with(known: list[Variable], variable: Variable) -> list[Variable]:
    return [*(one for one in known if one != variable), variable]


def said(nodes: Nodes, values: Values) -> Iterator[tuple[str, int]]:
    """What a tree signals, and the shifts it works with."""

    def of(value: Expression) -> int:
        return value.constant + sum(c * values[variable] for variable, c in value.terms)

    for node in nodes:
        if isinstance(node, Assign):
            values[node.variable] = of(node.value)
        elif isinstance(node, Minimum):
            values[node.variable] = max(0, min(node.limit, of(node.value)))
        elif isinstance(node, Product):
            values[node.variable] = of(node.left) * of(node.right)
        elif isinstance(node, Semaphore):
            yield "signal", of(node.count)
        elif isinstance(node, Compute):
            yield "work", of(node.registers[0][1])
        elif isinstance(node, If):
            found = of(node.condition)
            holds = {"==": found == 0, "!=": found != 0, ">": found > 0}[node.relation]
            yield from said(node.then if holds else node.otherwise, values)
        elif isinstance(node, Loop):
            for index in range(0, of(node.end), node.step):
                values[node.index] = index
                yield from said(node.body, values)


def executed(words: list[int], line: int, parameters: list[int]) -> Iterator[tuple[str, int]]:
    """The same of code, whose core's line of words begins at register ``line``'s zero."""
    held, shift, at, steps = dict.fromkeys(range(32), 0), 0, 0, 0
    while at < len(words):
        steps += 1
        assert steps < MOST_STEPS, "code goes on for ever"
        found = NMP_ISA.decode(words[at])
        assert found is not None
        item, operands = found
        name, following = item.mnemonic, at + 1
        left = held[operands.get("rs1", 0)]
        if name == "nmp_signal":
            yield "signal", signed(left)
        elif name == "nmp_activation":
            yield "work", shift
        elif name in ("nmp_mcfg", "nmp_mcfgi"):
            assert operands["creg"] == MacRegister.SHIFT
            shift = signed(left) if name == "nmp_mcfg" else operands["imm"]
        elif name in BRANCH:
            if BRANCH[name](left, held[operands["rs2"]]):
                following = at + operands["imm"] // 4
        elif name == "jal":
            assert operands["rd"] == 0
            following = at + operands["imm"] // 4
        elif name == "lw":
            assert operands["rs1"] == line
            held[operands["rd"]] = parameters[(signed(left) + operands["imm"]) // 4] & MASK
        elif name == "sw":
            assert operands["rs1"] == line
            parameters[(signed(left) + operands["imm"]) // 4] = held[operands["rs2"]]
        elif operands["rd"]:
            held[operands["rd"]] = computed(name, operands, held)
        at = following


@given(SEEDS, st.integers(0, 14))
@settings(max_examples=examples(300), deadline=None)
def test_trees_compute_what_they_say(seed: int, parameter_count: int) -> None:
    random = Random(seed)
    own = [Variable(f"w{number}", 0, MOST) for number in range(parameter_count)]
    values = [random.randint(0, MOST) for _ in own]
    nodes, _ = Trees(random).nodes(own, 3, 12)
    lowering = Lowering()
    lowering.run_layer(tuple(own), nodes)
    words = lowering.finish().words.tolist()
    found = list(executed(words, LINE, values))
    assert found == list(said(nodes, dict(zip(own, values, strict=True))))


@given(SEEDS, st.integers(0, 6), st.integers(8, 11))
@settings(max_examples=examples(200), deadline=None)
def test_trees_with_few_registers_and_long_ways(seed: int, parameter_count: int, free: int) -> None:
    """Variables that lie in memory, and branches around jumps, which any branch may become."""
    random = Random(seed)
    own = [Variable(f"w{number}", 0, MOST) for number in range(parameter_count)]
    words: list[list[int | Location]] = [[random.randint(0, MOST)] for _ in own]
    nodes, _ = Trees(random).nodes(own, 3, 12)
    code = LayerCode(LayerParameters([True], own, words), nodes)
    far = {label for label in LABELS if random.random() < 0.5}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(few, "FREE", FREE[:free])
        while True:
            lowering = Lowering(far)
            lowering.begin_layer(0)
            try:
                lowering.run_layer(tuple(code.parameters.variables), nodes)
                break
            except RegisterPressureError as error:
                found = spilled(code, error.held)
                assert found is not None
                code = found
    line = [word for (word,) in code.parameters.words]
    event(f"{len(line) - len(own)} variables in memory")
    expected = said(nodes, dict(zip(own, line, strict=False)))  # type: ignore[arg-type]
    assert list(executed(lowering.finish().words.tolist(), LINE, line)) == list(expected)  # type: ignore[arg-type]


def test_values_that_nobody_reads_need_no_register() -> None:
    """Behind the loop the variable gets another value first."""
    index, inner, other = Variable("i", 0, 9), Variable("a", 0, 9), Variable("b", 0, 9)

    def use(variable: Variable) -> Nodes:
        say = Semaphore("signal", Level.TLT, 1, Expression.of(variable))
        return (Assign(variable, Expression(constant=1)), say)

    body = (*use(inner), *use(other))
    nodes = (Loop(index, None, Expression(constant=3), 1, body), *use(inner), *use(other))
    assert most_live(nodes, frozenset()) == 2
