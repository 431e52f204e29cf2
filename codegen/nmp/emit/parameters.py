"""The words by which cores differ: one line a core in CONSTANTS, read with lw.

Everything that is the same for all cores and known at compile time stays a constant in the code.
DRAM addresses are always words, because only words can be relocated. So are variables for which no
register is left (`spilling`): cores write them, with sw.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from math import gcd

from tvm_npu.codegen.nmp.emit.expressions import Expression, Variable
from tvm_npu.codegen.program.format import Segment

WORD_MASK = 0xFFFF_FFFF


@dataclass(frozen=True)
class Location:
    """A byte in one of the program's segments."""

    segment: Segment
    offset: int

    def plus(self, bytes_further: int) -> Location:
        return Location(self.segment, self.offset + bytes_further)


@dataclass
class LayerParameters:
    """The words of one layer. ``active`` says which cores run its body; the bounds of a
    parameter are those over active cores."""

    active: Sequence[bool]
    variables: list[Variable] = field(default_factory=list)
    words: list[list[int | Location]] = field(default_factory=list)
    """By parameter, then by core."""

    def number(self, name: str, values: Sequence[int]) -> Expression:
        """One number a core; a constant when all active cores have the same."""
        seen = [value for value, active in zip(values, self.active, strict=True) if active]
        if len(set(seen)) == 1:
            return Expression(constant=seen[0])
        variable = Variable(name, min(seen), max(seen), gcd(*seen))
        self.variables.append(variable)
        self.words.append(list(values))
        return Expression.of(variable)

    def address(self, name: str, locations: Sequence[Location] | Location) -> Expression:
        """One DRAM address a core."""
        if isinstance(locations, Location):
            locations = [locations] * len(self.active)
        variable = Variable(name, 0, WORD_MASK)
        self.variables.append(variable)
        self.words.append(list(locations))
        return Expression.of(variable)

    def with_variable(self, variable: Variable) -> LayerParameters:
        """These, and a word for ``variable``, which the code of each core writes itself."""
        return replace(
            self,
            variables=[*self.variables, variable],
            words=[*self.words, [0] * len(self.active)],
        )

    def activity(self) -> Expression:
        """1 for active cores, 0 for the others."""
        flags = [int(active) for active in self.active]
        if all(flags):
            return Expression(constant=1)
        variable = Variable("active", 0, 1)
        self.variables.append(variable)
        self.words.append(list(flags))
        return Expression.of(variable)
