"""Transfers of many runs: which axes of a box of words are a run, the runs of a transfer, and
transfers of their own; and what the memory takes for them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from math import gcd, prod
from typing import NamedTuple

from tvm_npu.sim.snowflake.isa import MEMORY_UNIT_BYTES, WORD_BYTES

UNIT_WORDS = MEMORY_UNIT_BYTES // WORD_BYTES
"""Of a unit of the memory."""


class Stride(NamedTuple):
    """``extent`` words, from one to the next ``there`` words of memory and ``here`` of a buffer."""

    extent: int
    there: int
    here: int


ONE = Stride(1, 0, 0)


@dataclass(frozen=True)
class Strided:
    """A transfer for all values of ``loops``: ``runs`` runs of ``words`` words."""

    words: int
    runs: Stride
    loops: tuple[Stride, ...]

    @property
    def transfers(self) -> int:
        return prod(one.extent for one in self.loops)

    @property
    def units(self) -> float:
        """Units of memory that the runs touch, on average over the places where they begin."""
        step = gcd(*(one.there for one in (self.runs, *self.loops)))
        return self.transfers * self.runs.extent * mean_units(self.words, step)


def strided(axes: Iterable[Stride]) -> Strided:
    """``axes``, outer ones first, as few transfers of long runs."""
    merged: list[Stride] = []
    for axis in axes:
        outer = merged[-1] if merged else ONE
        if axis.extent == 1:
            continue
        ways = (axis.there * axis.extent, axis.here * axis.extent)
        if merged and (outer.there, outer.here) == ways:
            merged[-1] = axis._replace(extent=axis.extent * outer.extent)
        else:
            merged.append(axis)
    words = next((one for one in merged if one[1:] == (1, 1)), ONE)
    rest = [one for one in merged if one is not words]
    runs = max(rest, key=lambda one: one.extent, default=ONE)
    return Strided(words.extent, runs, tuple(one for one in rest if one is not runs))


def mean_units(words: int, step: int) -> float:
    """Units that a run of ``words`` touches, on average over runs that begin at multiples of
    ``step`` words."""
    begins = range(0, UNIT_WORDS, gcd(step, UNIT_WORDS))
    touched = ((at + words - 1) // UNIT_WORDS + 1 for at in begins)
    return sum(touched) / len(begins)
