"""A lookup table: how it comes to the WBufs, and what the special registers say of it."""

from __future__ import annotations

from dataclasses import dataclass

from tvm_npu.codegen.program.parts import Segment
from tvm_npu.codegen.snowflake.steps.objects import Access, Move, Place, Specials
from tvm_npu.sim.snowflake.isa import SnowflakeStream, Special


@dataclass(frozen=True)
class PlacedTable:
    """``words`` words from byte ``offset`` of the constants; ``shift`` and ``bits`` as in
    TABLE_SHIFT and TABLE_BITS."""

    offset: int
    words: int
    shift: int
    bits: int

    def load(self, place: int, cus: int) -> Move:
        """To word ``place`` of all WBufs: each vMAC looks up words of its own."""
        return Move(
            Place.WBUF, cus, Segment.CONSTANTS, self.offset, place, self.words,
            SnowflakeStream.OTHER,
        )  # fmt: skip

    def read(self, place: int, cus: int) -> Access:
        """What a look-up touches of a table at word ``place``."""
        return Access(Place.WBUF, place, place + self.words, cus)

    @property
    def specials(self) -> Specials:
        return {Special.TABLE_SHIFT: self.shift, Special.TABLE_BITS: self.bits}
