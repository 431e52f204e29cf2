"""Streams: element by element operations on rows of words."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from tvm_npu.codegen.snowflake.code.nodes import Value, Writer
from tvm_npu.codegen.snowflake.steps.objects import Access, Chunk, Place, Specials
from tvm_npu.sim.snowflake.isa import LANES, LONGEST_TRACE, Finish, MacMode, Special

UNROLLED = 4
"""Instructions in a turn of the innermost loop, where there are as many."""
_CHANGES = frozenset({Special.OUT, Special.OUT_STEP})


@dataclass(frozen=True)
class StreamOp:
    """``rows`` x ``columns`` operations on ``words`` words each, at words ``a`` and ``b`` to word
    ``out`` of MBuf; from one row (column) to the next they move by ``a_row`` (``a_column``) and so
    on."""

    rows: int
    columns: int
    words: int
    a: int
    b: int
    out: int
    a_row: int
    b_row: int
    out_row: int
    a_column: int
    b_column: int
    out_column: int

    def with_words(self, words: int) -> StreamOp:
        return replace(self, words=words)

    def with_columns(self, columns: int, words: int, a: int, b: int, out: int) -> StreamOp:
        return replace(
            self, columns=columns, words=words, a_column=a, b_column=b, out_column=out
        )

    def pieces(self) -> Iterator[StreamOp]:
        """Operations that a trace can be long enough for."""
        parts = -(-self.words // LONGEST_TRACE)
        size = -(-self.words // parts // LANES) * LANES
        for at in range(0, self.words, size):
            yield replace(
                self, words=min(size, self.words - at), a=self.a + at, b=self.b + at,
                out=self.out + at,
            )  # fmt: skip

    @property
    def vectors(self) -> int:
        return sum(one.rows * one.columns for one in self.pieces())

    def _span(self, begin: int, row: int, column: int) -> tuple[int, int]:
        """First and last word (not included) of an operand."""
        far = (self.rows - 1) * row + (self.columns - 1) * column
        return begin, begin + far + self.words


def stream_chunk(
    op: StreamOp, mode: MacMode | None, specials: Specials, cus: int, weights: Access | None = None,
    table: int = 0,
) -> Chunk:  # fmt: skip
    """The operations in the CUs of ``cus``: maxima (no ``mode``), or streams of `mac`. ``table`` is
    the word of the WBufs where the table of a table stream lies."""

    def write(writer: Writer, straight: int) -> None:
        for piece in op.pieces():
            _write(writer, piece, mode, table, straight)

    spans = [op._span(op.a, op.a_row, op.a_column), op._span(op.b, op.b_row, op.b_column)]
    if mode in (MacMode.SCALE, MacMode.TABLE):
        spans.pop()
    reads = tuple(Access(Place.MBUF, begin, end, cus) for begin, end in dict.fromkeys(spans))
    if weights is not None:
        reads = (*reads, weights)
    begin, end = op._span(op.out, op.out_row, op.out_column)
    writes = (Access(Place.MBUF, begin, end, cus),)
    return Chunk(write, op.vectors, reads, writes, specials, _CHANGES, 2)


def _write(
    writer: Writer, op: StreamOp, mode: MacMode | None, table: int, straight: int
) -> None:
    def one(a: Value, b: Value) -> None:
        first = writer.held(a)
        second = first if a == b else writer.held(b)
        if mode is None:
            writer.max(first, second, op.words)
        else:
            writer.mac(mode, Finish.RESULT, first, second, op.words)

    if mode is MacMode.TABLE:
        op = replace(op, b=table, b_row=0, b_column=0)
    # Where rows follow each other as columns do, all of them are one row.
    if op.columns == 1:
        op = replace(
            op, columns=op.rows, rows=1, a_column=op.a_row, b_column=op.b_row,
            out_column=op.out_row,
        )  # fmt: skip
    writer.set(Special.OUT_STEP, op.out_column)
    joined = op.out_row == op.columns * op.out_column or op.rows == 1
    if joined:
        writer.set(Special.OUT, op.out)

    def row(values: list[Value]) -> None:
        a, b, out = values
        if not joined:
            writer.set(Special.OUT, out)
        whole, rest = divmod(op.columns, UNROLLED)
        same = a == b and op.a_column == op.b_column

        def begin(first: int, count: int) -> list[Value]:
            found = []
            for at in range(first, first + count):
                found.append(a.plus(at * op.a_column))
                if not same:
                    found.append(b.plus(at * op.b_column))
            return found

        def some(count: int, values: list[Value]) -> None:
            each = 1 if same else 2
            for at in range(count):
                one(values[at * each], values[at * each + each - 1])

        steps = [op.a_column] if same else [op.a_column, op.b_column]
        moving = [UNROLLED * step for step in steps] * UNROLLED
        writer.loop(whole, begin(0, UNROLLED), moving, lambda values: some(UNROLLED, values))
        if rest:
            some(rest, begin(whole * UNROLLED, rest))

    begin = [Value(None, op.a), Value(None, op.b), Value(None, op.out)]
    steps = [op.a_row, op.b_row, 0 if joined else op.out_row]
    writer.loop(op.rows, begin, steps, row, straight > 0)
