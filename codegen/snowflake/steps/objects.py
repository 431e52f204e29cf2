"""What a region's execution consists of: compute steps of load, compute and store objects.

Each object says what it touches, so that the order of objects, and what has to wait for what, can
be decided without knowing what they are for (the compiler's paper, section 6).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum

from tvm_npu.codegen.program.parts import Segment
from tvm_npu.codegen.snowflake.code.nodes import Writer
from tvm_npu.sim.lazy import cached_property
from tvm_npu.sim.snowflake.isa import WORD_BYTES, SnowflakeStream, Special, VmacSelect

ALL_VMACS = VmacSelect.ALL


class Place(Enum):
    """What can be touched."""

    MBUF = "MBuf"
    WBUF = "WBuf"
    MEMORY = "memory"


@dataclass(frozen=True)
class Access:
    """``begin`` to ``end`` (not included): words of the buffers of the CUs in ``cus``, or bytes of
    a segment in memory. ``pitch`` > 0: of each ``pitch`` from ``begin`` on only the first
    ``width``."""

    place: Place
    begin: int
    end: int
    cus: int = 0
    segment: Segment | None = None
    pitch: int = 0
    width: int = 0

    def meets(self, other: Access) -> bool:
        """Something is touched by both."""
        if self.begin >= other.end or other.begin >= self.end:
            return False
        if self.place is not other.place or self.segment is not other.segment:
            return False
        if self.place is not Place.MEMORY and not self.cus & other.cus:
            return False
        pitch = max(self.pitch, other.pitch)
        mine, theirs = self._width_in(pitch), other._width_in(pitch)
        if mine is None or theirs is None:
            return True
        return _lanes_meet(other.begin - self.begin, pitch, mine, theirs)

    def _width_in(self, pitch: int) -> int | None:
        """What is touched of each ``pitch``, at most; None where that cannot be said."""
        if self.pitch == pitch > 0:
            return self.width
        size = self.end - self.begin
        return size if size <= pitch else None


def _lanes_meet(distance: int, pitch: int, width: int, other: int) -> bool:
    """Of two patterns of one pitch, the second ``distance`` behind the first: the parts of a
    period that they touch overlap."""
    distance %= pitch
    return distance < width or distance + other > pitch


@dataclass(frozen=True)
class Move:
    """One `ld` (of a load) or `tmov` (of a store): ``runs`` runs of ``words`` words between byte
    ``offset`` of ``segment`` and word ``place`` of the buffer, counted from where its object lies.
    A store has one CU in ``cus``. A load that is ``shared`` is issued by every cluster."""

    buffer: Place
    cus: int
    segment: Segment
    offset: int
    place: int
    words: int
    stream: SnowflakeStream
    vmac: int = ALL_VMACS
    runs: int = 1
    memory_step: int = 0
    buffer_step: int = 0
    shared: bool = False

    def at(self, base: int) -> Move:
        """The move with its object at word ``base``."""
        return replace(self, place=self.place + base)

    @cached_property
    def in_memory(self) -> Access:
        reach, size = (self.runs - 1) * self.memory_step, WORD_BYTES * self.words
        begin, end = self.offset + min(0, reach), self.offset + max(0, reach) + size
        width, pitch = (size, abs(self.memory_step)) if self.runs > 1 else (0, 0)
        return Access(Place.MEMORY, begin, end, 0, self.segment, pitch, width)

    @cached_property
    def in_buffer(self) -> Access:
        end = self.place + (self.runs - 1) * self.buffer_step + self.words
        return Access(self.buffer, self.place, end, self.cus)


class Kind(Enum):
    """What a load object is to its step; each kind has places of its own."""

    MAPS = "maps"
    KERNELS = "kernels"


@dataclass(frozen=True)
class Load:
    """Data of a step. Loads with one ``key`` (and layer) bring the same; ``words`` is the room that
    they need."""

    kind: Kind
    key: tuple[int, ...]
    words: int
    moves: tuple[Move, ...]


Specials = Mapping[Special, int]


@dataclass(frozen=True)
class Chunk:
    """Vector instructions that run without anything between them.

    ``write`` gets a writer and how much is to be written straight instead of in loops (0: nothing;
    the more, the smaller the longest loop, up to ``levels`` - 1). ``specials`` are what special
    registers must hold before; those in ``changes`` hold anything behind. ``vectors`` is the number
    of vector instructions that are issued, ``cycles`` about what they take (0: not known)."""

    write: Callable[[Writer, int], None]
    vectors: int
    reads: tuple[Access, ...]
    writes: tuple[Access, ...]
    specials: Specials
    changes: frozenset[Special] = frozenset()
    levels: int = 1
    cycles: int = 0


@dataclass(frozen=True)
class Bases:
    """Where a step's objects lie: first words of its maps, kernels and results; ``target`` is the
    CU whose MBuf gets the results, where one does."""

    maps: int = 0
    kernels: int = 0
    out: int = 0
    target: int = 0


@dataclass(frozen=True)
class Step:
    """Loads, what is computed from them, and stores of the results.

    ``compute`` and ``stores`` are given the places. A step without ``stores`` leaves its results to
    a later one. ``in_place`` loads go where the results will be."""

    layer: int
    loads: tuple[Load, ...]
    compute: Callable[[Bases], tuple[Chunk, ...]]
    stores: Callable[[Bases], tuple[Move, ...]]
    in_place: Callable[[Bases], tuple[Move, ...]] = field(default=lambda bases: ())

    def load(self, kind: Kind) -> Load | None:
        return next((one for one in self.loads if one.kind is kind), None)


@dataclass(frozen=True)
class Rooms:
    """Places of a layer's objects: first words of each, which take turns. An out place is (CU,
    word)."""

    maps: tuple[int, ...]
    kernels: tuple[int, ...]
    out: tuple[tuple[int, int], ...]
