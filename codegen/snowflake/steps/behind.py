"""Maxima of a convolution's results, where they lie in the MBufs: of the two halves of every
pixel's planes, of windows that do not overlap, or of the one and then the other. Only what they
leave is stored."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tvm_npu.codegen.snowflake.steps.objects import Chunk, Specials
from tvm_npu.codegen.snowflake.steps.streams import StreamOp, stream_chunk
from tvm_npu.sim.snowflake.isa import Special

Range = tuple[int, int]
WINDOW = 2
"""Rows and columns of a window."""


def halved(part: Range) -> Range:
    """Every second one of what begins and counts even."""
    return part[0] // 2, part[1] // 2


@dataclass(frozen=True)
class Maxima:
    """``halves``: what special registers hold for a max feature map, None without one; so
    ``windows`` for a pool of 2x2 windows.

    Results are made where their operands lay, from the front on: what a result takes the place of
    was an operand of it or of one before it."""

    halves: Specials | None
    windows: Specials | None

    # --- what is left --------------------------------------------------------------------------

    def planes(self, filters: Range) -> Range:
        return filters if self.halves is None else halved(filters)

    def pixels(self, part: Range) -> Range:
        """Rows or columns."""
        return part if self.windows is None else halved(part)

    # --- how -----------------------------------------------------------------------------------

    def chunks(
        self, base: int, rows: int, columns: int, filters: int, cus: int
    ) -> Iterator[Chunk]:
        """For ``rows`` x ``columns`` results of ``filters`` planes from word ``base`` of the MBufs
        of ``cus`` on."""
        planes = filters
        if self.halves is not None:
            planes = filters // 2
            yield from _runs(base, rows * columns, filters, planes, planes, self.halves, cus)
        if self.windows is not None:
            row = columns * planes
            yield from _runs(base, rows // 2, 2 * row, row, row, self.windows, cus)
            pixels = rows // 2 * (columns // 2)
            yield from _runs(base, pixels, 2 * planes, planes, planes, self.windows, cus)


NOTHING = Maxima(None, None)
"""Results are stored as they are."""


def _runs(
    base: int, count: int, step: int, second: int, words: int, specials: Specials, cus: int
) -> Iterator[Chunk]:
    """``count`` maxima of ``words`` words: of those from ``base`` on and those ``second`` behind,
    the next operands ``step`` behind, results one behind the other. In two chunks: of what hangs
    on them, a half can run while the other's results are on their way."""
    first = -(-count // 2)
    for begin, here in ((0, first), (first, count - first)):
        if not here:
            continue
        at = base + begin * step
        op = StreamOp(
            rows=1, columns=here, words=words, a=at, b=at + second, out=base + begin * words,
            a_row=0, b_row=0, out_row=0, a_column=step, b_column=step, out_column=words,
        )  # fmt: skip
        yield stream_chunk(op, None, {**specials, Special.CUS: cus}, cus)
