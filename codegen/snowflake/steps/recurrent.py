"""A recurrent layer as compute steps: for every time step the sums of gates, tile by tile of their
weights, and the elementwise operations that make new states of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from tvm_npu.codegen.program.parts import Segment
from tvm_npu.codegen.snowflake.code.nodes import Value, Writer
from tvm_npu.codegen.snowflake.plan.recurrent import GroupRange, RecurrentGeometry, Tile
from tvm_npu.codegen.snowflake.plan.tiling import line
from tvm_npu.codegen.snowflake.steps.kernels import Piece
from tvm_npu.codegen.snowflake.steps.objects import (
    Access,
    Bases,
    Chunk,
    Kind,
    Load,
    Move,
    Place,
    Rooms,
    Specials,
    Step,
)
from tvm_npu.codegen.snowflake.steps.requantize import Requantize
from tvm_npu.codegen.snowflake.steps.tables import PlacedTable
from tvm_npu.sim.snowflake.isa import (
    LANES,
    LONGEST_TRACE,
    WORD_BYTES,
    Finish,
    Layout,
    MacMode,
    Preload,
    SnowflakeStream,
    Special,
    Wait,
)

FIRST_GROUPS = 2
"""Groups of sums in a tile's first chunk: transfers issue behind it."""
_STREAMS_CHANGE = frozenset({
    Special.OUT, Special.OUT_STEP, Special.SHIFT, Special.TABLE_SHIFT, Special.TABLE_BITS,
})  # fmt: skip


@dataclass(frozen=True)
class Sums:
    """A group of gates: ``rows`` sums go to word ``into``; products are with the input (if it is
    taken) and with the vector at word ``state`` (None: with none)."""

    rows: int
    into: int
    takes_input: bool
    state: int | None
    biases: int = 1


@dataclass(frozen=True)
class Stream:
    """``words`` words of an elementwise operation: words of MBuf, the shift of the result, and
    which table is looked up."""

    mode: MacMode
    a: int
    b: int
    out: int
    words: int
    shift: int = 0
    table: int | None = None

    def pieces(self) -> Iterator[Stream]:
        for at in range(0, self.words, LONGEST_TRACE):
            words = min(LONGEST_TRACE, self.words - at)
            b = self.b if self.table is not None else self.b + at
            yield replace(self, a=self.a + at, b=b, out=self.out + at, words=words)

    @property
    def reads(self) -> tuple[tuple[int, int], ...]:
        mine = (self.a, self.a + self.words)
        return (mine,) if self.table is not None else (mine, (self.b, self.b + self.words))


@dataclass(frozen=True)
class Phase:
    """Sums, then streams that use them."""

    sums: tuple[Sums, ...]
    streams: tuple[Stream, ...]


@dataclass(frozen=True)
class Vector:
    """``words`` words of MBuf, of which memory has a copy at byte ``offset`` of ``segment``."""

    place: int
    words: int
    segment: Segment
    offset: int

    def move(self, cus: int, stream: SnowflakeStream) -> Move:
        return Move(
            Place.MBUF, cus, self.segment, self.offset, self.place, self.words, stream
        )


@dataclass(frozen=True)
class RecurrentLayer:
    """A layer: its time steps' ``phases``; ``pieces`` of the weights by (phase, tile), from byte
    ``weights_at`` of the constants; where the sequence of inputs and that of the states ``hidden``
    lie in memory (bytes of ACTIVATIONS); vectors that come before the first step and that are
    stored behind the last one."""

    layer: int
    geometry: RecurrentGeometry
    phases: tuple[Phase, ...]
    tables: tuple[PlacedTable, ...]
    pieces: dict[tuple[int, int], tuple[Piece, ...]]
    weights_at: int
    source: int
    target: int
    hidden: Vector
    initial: tuple[Vector, ...]
    final: tuple[Vector, ...]
    gate_shift: int
    limits: tuple[int, int]

    # --- steps ---------------------------------------------------------------------------------

    @property
    def _every(self) -> int:
        return (1 << self.geometry.cus) - 1

    @property
    def rooms(self) -> Rooms:
        size = line(self.geometry.shape.inputs)
        return Rooms((0, size), self.geometry.places, ((0, 0),))

    def steps(self) -> list[Step]:
        """In order of time; the last one only stores final states. It takes all of the WBufs for
        itself, so that weights of a following layer come when no table is needed any more."""
        found = [
            step for time in range(self.geometry.shape.steps) for step in self._time_step(time)
        ]
        found[0] = replace(found[0], in_place=lambda bases: tuple(self._first_loads()))
        last = self.geometry.shape.steps - 1
        everything = Load(
            Kind.KERNELS, (self.layer, -1), self.geometry.wbuf_words, ()
        )

        def stores(bases: Bases) -> tuple[Move, ...]:
            return tuple(one.move(1, SnowflakeStream.OUT) for one in self.final)

        end = Step(self.layer, (self._input(last), everything), lambda bases: (), stores)
        return [*found, end]

    def _first_loads(self) -> Iterator[Move]:
        for one in self.initial:
            yield one.move(self._every, SnowflakeStream.IN)
        for place, table in zip(self.geometry.tables_at, self.tables, strict=True):
            yield table.load(place, self._every)

    def _time_step(self, time: int) -> Iterator[Step]:
        shape = self.geometry.shape
        for number, phase in enumerate(shape.phases):
            tiles = self.geometry.tiles(phase)
            for index, tile in enumerate(tiles):
                ends = index == len(tiles) - 1
                yield self._tile_step(time, number, index, tile, ends)

    def _tile_step(self, time: int, number: int, index: int, tile: Tile, ends: bool) -> Step:
        phase = self.phases[number]

        def compute(bases: Bases) -> tuple[Chunk, ...]:
            chunks = tuple(self._sums(phase, number, tile, bases))
            return (*chunks, self._streams(phase.streams)) if ends else chunks

        def stores(bases: Bases) -> tuple[Move, ...]:
            if not ends or number < len(self.phases) - 1:
                return ()
            offset = self.target + WORD_BYTES * time * self.hidden.words
            mine = replace(self.hidden, segment=Segment.ACTIVATIONS, offset=offset)
            return (mine.move(1, SnowflakeStream.OUT),)

        loads = (self._input(time), self._weights(time, number, index))
        return Step(self.layer, loads, compute, stores)

    # --- loads ---------------------------------------------------------------------------------

    def _input(self, time: int) -> Load:
        words = self.geometry.shape.inputs
        move = Move(
            Place.MBUF, self._every, Segment.ACTIVATIONS,
            self.source + WORD_BYTES * time * words, 0, words, SnowflakeStream.IN,
        )  # fmt: skip
        return Load(Kind.MAPS, (self.layer, time), line(words), (move,))

    def _weights(self, time: int, number: int, index: int) -> Load:
        found = tuple(
            Move(
                Place.WBUF, piece.cus, Segment.CONSTANTS, self.weights_at + piece.offset, 0,
                piece.words, SnowflakeStream.WEIGHT, piece.vmac,
            )
            for piece in self.pieces[number, index]
        )  # fmt: skip
        when = 0 if self.geometry.plan.keeps_weights else time
        words = max(piece.words for piece in self.pieces[number, index])
        return Load(Kind.KERNELS, (self.layer, when, number, index), words, found)

    # --- compute -------------------------------------------------------------------------------

    def _sums(self, phase: Phase, number: int, tile: Tile, bases: Bases) -> Iterator[Chunk]:
        shape = self.geometry.shape
        kernels, first = bases.kernels, True
        for part in tile:
            sums = phase.sums[part.of]
            words = shape.kernel_words(shape.phases[number].sums[part.of])
            for begin, count, outputs in self._chunks(part, sums.rows, first):
                at = kernels + (begin - part.begin) * words
                yield self._sum_chunk(sums, begin, count, outputs, words, at, bases.maps)
                first = False
            kernels += part.count * words

    def _chunks(
        self, part: GroupRange, rows: int, first: bool
    ) -> Iterator[tuple[int, int, int]]:
        """(first group, groups, sums of each): few groups first; a group that is not full is one
        of its own."""
        together = self.geometry.together
        begin, end = part.begin, part.begin + part.count
        whole = min(end, rows // together)
        if first and begin < whole:
            few = min(FIRST_GROUPS, whole - begin)
            yield begin, few, together
            begin += few
        if begin < whole:
            yield begin, whole - begin, together
        if whole < end:
            yield whole, 1, rows - whole * together

    def _sum_chunk(
        self, sums: Sums, begin: int, count: int, outputs: int, words: int, at: int, maps: int
    ) -> Chunk:
        shape, together = self.geometry.shape, self.geometry.together
        operands: list[tuple[int, int, int]] = []
        weights = LANES * sums.biases
        if sums.takes_input:
            operands.append((maps, weights, shape.inputs))
            weights += line(shape.inputs)
        if sums.state is not None:
            operands.append((sums.state, weights, shape.hidden))
        out = sums.into + begin * together
        traces = tuple(_traces(operands))

        def write(writer: Writer, straight: int) -> None:
            writer.set(Special.OUT, out)
            places = [writer.held(Value(None, trace[0])) for trace in traces]

            def group(values: list[Value]) -> None:
                for number in range(sums.biases):
                    place = writer.held(values[0].plus(LANES * number))
                    writer.vmov(Preload.BIAS, Layout.COOP, place)
                for index, (_, weight, length) in enumerate(traces):
                    finish = Finish.RESULT if index == len(traces) - 1 else Finish.KEEP
                    kernel = writer.held(values[0].plus(weight))
                    writer.mac(MacMode.COOP, finish, places[index], kernel, length)

            writer.loop(count, [Value(None, at)], [words], group, straight > 0)

        specials: Specials = {
            **Requantize(self.gate_shift, *self.limits).specials,
            Special.OUTPUTS: outputs,
            Special.OUT_STEP: together,
            Special.TARGET: self._every,
            Special.CUS: self._every,
        }
        reads = (
            *(Access(Place.MBUF, one, one + length, self._every) for one, _, length in operands),
            Access(Place.WBUF, at, at + count * words, self._every),
        )
        writes = (Access(Place.MBUF, out, out + (count - 1) * together + outputs, self._every),)
        vectors = count * (sums.biases + len(traces))
        changes = frozenset({Special.OUT})
        return Chunk(write, vectors, reads, writes, specials, changes, 2)

    def _streams(self, streams: Sequence[Stream]) -> Chunk:
        """One chunk: what hangs on a result waits for it inside."""
        pieces = [piece for stream in streams for piece in stream.pieces()]

        def write(writer: Writer, straight: int) -> None:
            writer.set(Special.OUT_STEP, 0)
            dirty: list[tuple[int, int]] = []
            for one in pieces:
                if any(a < d and c < b for a, b in one.reads for c, d in dirty):
                    writer.sync(Wait.VECTOR)
                    dirty = []
                dirty.append((one.out, one.out + one.words))
                self._write_stream(writer, one)

        every = self._every
        reads = tuple(Access(Place.MBUF, *span, every) for one in pieces for span in one.reads)
        tables = tuple(
            table.read(place, every)
            for place, table in zip(self.geometry.tables_at, self.tables, strict=True)
        )
        writes = tuple(
            Access(Place.MBUF, one.out, one.out + one.words, every) for one in pieces
        )
        specials: Specials = {
            **{
                special: value
                for special, value in Requantize(0, *self.limits).specials.items()
                if special is not Special.SHIFT
            },
            Special.SHIFT_A: 0,
            Special.SHIFT_B: 0,
            Special.CUS: every,
        }
        return Chunk(
            write, len(pieces), (*reads, *tables), writes, specials, _STREAMS_CHANGE, 1
        )

    def _write_stream(self, writer: Writer, one: Stream) -> None:
        writer.set(Special.OUT, one.out)
        b = one.b
        if one.table is None:
            writer.set(Special.SHIFT, one.shift)
        else:
            for special, value in self.tables[one.table].specials.items():
                writer.set(special, value)
            b = self.geometry.tables_at[one.table]
        first, second = writer.held(Value(None, one.a)), writer.held(Value(None, b))
        writer.mac(one.mode, Finish.RESULT, first, second, one.words)


def _traces(operands: Sequence[tuple[int, int, int]]) -> Iterator[tuple[int, int, int]]:
    """(word of MBuf, word of the kernel, length), none too long."""
    for maps, weights, words in operands:
        for at in range(0, words, LONGEST_TRACE):
            yield maps + at, weights + at, min(LONGEST_TRACE, words - at)
