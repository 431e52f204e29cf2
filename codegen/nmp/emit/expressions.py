"""Values that generated code computes: affine expressions over variables that live in registers.

Variables are loop indices and words of the core's parameter line. Their bounds are known, so that
"does it change inside this loop" and "can it be zero" are questions with exact answers.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import gcd

from tvm_npu.sim.lazy import cached_property


@dataclass(frozen=True)
class Variable:
    """A register's content: its bounds over all cores that run the code, and a known divisor."""

    name: str
    low: int
    high: int
    multiple: int = 1


@dataclass(frozen=True)
class Expression:
    """``sum(coefficient * variable) + constant``; terms in the order of the variables' names."""

    terms: tuple[tuple[Variable, int], ...] = ()
    constant: int = 0

    @staticmethod
    def of(value: Operand) -> Expression:
        if isinstance(value, Expression):
            return value
        if isinstance(value, Variable):
            return Expression(((value, 1),))
        return Expression(constant=int(value))

    def __add__(self, other: Operand) -> Expression:
        right = Expression.of(other)
        merged = dict(self.terms)
        for variable, coefficient in right.terms:
            merged[variable] = merged.get(variable, 0) + coefficient
        kept = ((v, c) for v, c in merged.items() if c)
        return Expression(
            tuple(sorted(kept, key=lambda term: term[0].name)), self.constant + right.constant
        )

    def __mul__(self, factor: int) -> Expression:
        if factor == 0:
            return Expression()
        return Expression(tuple((v, c * factor) for v, c in self.terms), self.constant * factor)

    def __sub__(self, other: Operand) -> Expression:
        return self + Expression.of(other) * -1

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


Operand = Expression | Variable | int
ONE = Expression(constant=1)
