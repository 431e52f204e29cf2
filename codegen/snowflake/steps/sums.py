"""Nests of sums: loops over groups of filters, rows and columns around the traces of a sum."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

from tvm_npu.codegen.snowflake.code.nodes import Value, Writer
from tvm_npu.codegen.snowflake.steps.windows import Run
from tvm_npu.sim.snowflake.isa import (
    LANES,
    LONGEST_TRACE,
    Finish,
    Layout,
    MacMode,
    Preload,
    Special,
)

MOST_HELD = 6
"""Traces of a sum whose addresses stay in registers over a loop; more are computed for each sum."""
BUSY_CYCLES = 12
"""A sum that takes so long leaves the core time for a loop of its own; others are unrolled."""
MOST_UNROLLED = 16
"""Address registers of an unrolled loop, at most."""
MOST_COPIES, LEAST_COPIES = 8, 4
"""Sums in a turn of an unrolled loop. With fewer an address is read too soon after it moved on."""
LOOP_ISSUED = 3
"""Instructions of a turn beside its sums."""


@dataclass(frozen=True)
class Trace:
    """``length`` steps from word ``maps`` (from the window's first word) and ``weights`` (from the
    kernel's), in the CUs of ``cus``."""

    maps: int
    weights: int
    length: int
    cus: int


@dataclass(frozen=True)
class Part:
    """The traces of a sum in ``cus``; the last ends it. ``divisor`` as the special register."""

    cus: int
    divisor: int
    traces: tuple[Trace, ...]


@dataclass(frozen=True)
class Taps:
    """How a window's taps lie in the buffers; fields as those of `SumNest`."""

    mode: MacMode
    tap_row: int
    tap_column: int
    cells: int
    weight_row: int
    weight_column: int

    def row(self, tap: int, window: tuple[int, int], cus: int) -> Iterator[Trace]:
        """The traces of one row of taps."""
        first, count = window
        if self.mode is MacMode.LANE:
            lines = LANES if self.weight_column else 0
            yield Trace(
                tap * self.tap_row + first * self.tap_column,
                tap * self.weight_row + first * lines, count, cus,
            )  # fmt: skip
            return
        each = 1 if self.mode is MacMode.COOP else LANES
        together = count if self.tap_column == self.cells else 1
        for column in range(first, first + count, together):
            maps = tap * self.tap_row + column * self.tap_column
            weights = tap * self.weight_row + column * self.weight_column
            length = together * self.cells
            for at in range(0, length, LONGEST_TRACE):
                size = min(LONGEST_TRACE, length - at)
                yield Trace(maps + at, weights + at * each, size, cus)


Windows = tuple[tuple[int, int] | None, ...]


@lru_cache(maxsize=1 << 16)
def _parts(
    taps: Taps, down: Windows, counted: tuple[int, ...], across: Windows, wide: tuple[int, ...]
) -> tuple[Part, ...]:
    """The sums of a result whose windows have ``down`` and ``across`` in each CU."""
    window: tuple[int, int] | None = None
    alike: dict[int, dict[int, tuple[int, int]]] = {}
    for cu, (vertical, horizontal) in enumerate(zip(down, across, strict=True)):
        if vertical is None or horizontal is None:
            continue
        assert window in (None, horizontal)
        window = horizontal
        alike.setdefault(counted[cu] * wide[cu], {})[cu] = vertical
    if window is None:
        return ()
    return tuple(
        part
        for divisor, members in alike.items()
        for part in _together(taps, members, window, divisor)
    )


def _together(
    taps: Taps, vertical: dict[int, tuple[int, int]], window: tuple[int, int], divisor: int
) -> Iterator[Part]:
    """One sum for all CUs if a row of taps is inside in all of them, else one for those that are
    alike."""
    low = max(first for first, _ in vertical.values())
    high = min(first + count for first, count in vertical.values())
    if low >= high:
        for one in sorted(set(vertical.values())):
            members = {cu: own for cu, own in vertical.items() if own == one}
            yield from _together(taps, members, window, divisor)
        return
    taken = sorted({tap for first, n in vertical.values() for tap in range(first, first + n)})
    last = (low + high) // 2
    traces: list[Trace] = []
    for tap in [*(one for one in taken if one != last), last]:
        cus = _mask(cu for cu, (first, n) in vertical.items() if first <= tap < first + n)
        traces += taps.row(tap, window, cus)
    yield Part(_mask(vertical), divisor, tuple(traces))


@dataclass(frozen=True)
class SumNest:
    """Sums of ``groups`` groups of filters (or channels) for the results of ``rows`` x ``columns``
    of every CU's tile. Words in MBuf: ``maps`` is where the window of the tile's first result
    begins (padding included), from one row of results to the next it moves by ``row_step``, from
    one column by ``column_step``, from one group by ``group_step``; a tap down is ``tap_row``, a
    tap right ``tap_column`` words further. In WBuf: ``kernels`` is the first group's, each
    ``kernel_words`` long, biases first, then from ``kernel_at`` on the taps, ``weight_row`` and
    ``weight_column`` apart. Results go to ``out``, ``out_step`` apart, the next row behind
    ``out_row`` words, the next group ``out_group`` further. ``cells`` are the words of a tap."""

    mode: MacMode
    groups: int
    rows: tuple[Run, ...]
    columns: tuple[Run, ...]
    maps: int
    row_step: int
    column_step: int
    group_step: int
    tap_row: int
    tap_column: int
    cells: int
    kernels: int
    kernel_words: int
    kernel_at: int
    weight_row: int
    weight_column: int
    out: int
    out_step: int
    out_row: int
    out_group: int
    has_bias: bool
    has_residual: bool
    ends: bool = True
    """The last trace of a sum finishes it."""
    opens: bool = True
    """The first trace of a sum opens it."""

    @property
    def layout(self) -> Layout:
        return Layout.COOP if self.mode is MacMode.COOP else Layout.INDP

    # --- what is computed ----------------------------------------------------------------------

    def parts(self, row: Run, column: Run) -> tuple[Part, ...]:
        """The sums of a result: one, or where CUs differ too much one after the other."""
        taps = Taps(
            self.mode, self.tap_row, self.tap_column, self.cells, self.weight_row,
            self.weight_column,
        )  # fmt: skip
        return _parts(taps, row.taps, row.counted, column.taps, column.counted)

    def trace_cycles(self, trace: Trace, outputs: int) -> int:
        if self.mode is MacMode.COOP:
            return -(-trace.length // LANES)
        if self.mode is MacMode.INDP:
            return trace.length
        return trace.length * -(-outputs // LANES)

    def cycles(self, outputs: int) -> int:
        """What the vMACs take for the nest, lines of traces aligned."""
        total = 0
        for row in self.rows:
            for column in self.columns:
                sums = sum(
                    self.trace_cycles(trace, outputs)
                    for part in self.parts(row, column)
                    for trace in part.traces
                )
                total += sums * row.count * column.count
        return total * self.groups

    @property
    def vectors(self) -> int:
        """Vector instructions that are issued."""
        extra = self.opens * (self.has_bias + self.has_residual)
        total = 0
        for row in self.rows:
            for column in self.columns:
                parts = self.parts(row, column)
                count = sum(len(part.traces) + extra for part in parts)
                total += count * row.count * column.count
        return total * self.groups

    # --- writing -------------------------------------------------------------------------------

    def write(self, writer: Writer, straight: int) -> None:
        """The loops; ``straight`` of them, from the outside, are written out."""
        steps = (self.group_step, self.kernel_words, self.out_group)
        begin = (Value(None, self.maps), Value(None, self.kernels), Value(None, self.out))

        def group(values: list[Value]) -> None:
            maps, kernel, out = values
            if self.ends:
                first = self.rows[0].begin * self.out_row + self.columns[0].begin * self.out_step
                writer.set(Special.OUT, out.plus(first))
            for row in self.rows:
                here = [
                    maps.plus(row.begin * self.row_step), out.plus(row.begin * self.out_row)
                ]
                steps = (self.row_step, self.out_row if self.has_residual else 0)
                if not self.has_residual:
                    here[1] = Value(None, 0)

                def one_row(values: list[Value], row: Run = row) -> None:
                    self._row(writer, row, values[0], kernel, values[1])

                writer.loop(row.count, here, steps, one_row, straight > 1)

        writer.loop(self.groups, begin, steps, group, straight > 0)

    def _row(self, writer: Writer, row: Run, maps: Value, kernel: Value, out: Value) -> None:
        bias = writer.held(kernel) if self.has_bias and self.opens else -1
        for column in self.columns:
            parts = self.parts(row, column)
            at = maps.plus(column.begin * self.column_step)
            place = out.plus(column.begin * self.out_step)
            self._columns(writer, column.count, parts, at, kernel, place, bias)

    def _columns(
        self, writer: Writer, count: int, parts: Sequence[Part], maps: Value, kernel: Value,
        out: Value, bias: int,
    ) -> None:  # fmt: skip
        simple = len(parts) == 1 and all(trace.cus == parts[0].cus for trace in parts[0].traces)
        traces = [trace for part in parts for trace in part.traces]
        if len(traces) > MOST_HELD or not simple:
            self._computed(writer, count, parts, maps, kernel, out, bias, simple)
            return
        part = parts[0]
        self._prepare(writer, part)
        unrolled = self._unrolled(count, part)
        weights = [
            writer.held(kernel.plus(self.kernel_at + trace.weights)) for trace in part.traces
        ]
        whole, rest = divmod(count, unrolled)

        def sums(copies: int, values: list[Value]) -> None:
            step = len(part.traces) + 1
            for copy in range(copies):
                own = values[copy * step : (copy + 1) * step]
                places = [writer.held(value) for value in own[:-1]]
                residual = writer.held(own[-1]) if self.has_residual else -1
                self._sum(writer, part, places, weights, bias, residual)

        def begin(first: int, copies: int) -> list[Value]:
            values = []
            for copy in range(first, first + copies):
                moved = maps.plus(copy * self.column_step)
                values += [moved.plus(trace.maps) for trace in part.traces]
                values.append(out.plus(copy * self.out_step))
            return values

        out_step = self.out_step if self.has_residual else 0
        moves = [*[self.column_step] * len(part.traces), out_step]
        steps = [unrolled * step for step in moves] * unrolled
        writer.loop(whole, begin(0, unrolled), steps, lambda values: sums(unrolled, values))
        if rest:
            sums(rest, begin(whole * unrolled, rest))

    def _unrolled(self, count: int, part: Part) -> int:
        """How many sums a turn of the loop makes: as many as hide the loop's own instructions, and
        no more, since each has addresses of its own to prepare."""
        cycles = sum(self.trace_cycles(trace, LANES) for trace in part.traces)
        if cycles >= BUSY_CYCLES:
            return 1
        addresses = len(part.traces) + self.has_residual
        issued = len(part.traces) + self.opens * (self.has_bias + self.has_residual) + addresses
        most = max(1, min(count, MOST_UNROLLED // addresses, MOST_COPIES))
        if cycles <= issued:
            return most
        return min(most, max(LEAST_COPIES, -(-LOOP_ISSUED // (cycles - issued))))

    def _computed(
        self, writer: Writer, count: int, parts: Sequence[Part], maps: Value, kernel: Value,
        out: Value, bias: int, simple: bool,
    ) -> None:  # fmt: skip
        """Sums whose addresses are made one by one."""
        if simple:
            self._prepare(writer, parts[0])

        def one(values: list[Value]) -> None:
            for number, part in enumerate(parts):
                if not simple:
                    self._prepare(writer, part)
                    if self.ends and len(parts) > 1:
                        # Only the last of several sums moves on to the next result.
                        last = number == len(parts) - 1
                        writer.set(Special.OUT_STEP, self.out_step if last else 0)
                residual = writer.held(values[1]) if self.has_residual else -1
                self._open(writer, bias, residual)
                cus = part.cus
                for index, trace in enumerate(part.traces):
                    if trace.cus != cus:
                        cus = trace.cus
                        writer.set(Special.CUS, cus)
                    a = writer.held(values[0].plus(trace.maps))
                    b = writer.held(kernel.plus(self.kernel_at + trace.weights))
                    ends = self.ends and index == len(part.traces) - 1
                    finish = Finish.RESULT if ends else Finish.KEEP
                    writer.mac(self.mode, finish, a, b, trace.length)

        steps = [self.column_step, self.out_step if self.has_residual else 0]
        writer.loop(count, [maps, out], steps, one)

    def _prepare(self, writer: Writer, part: Part) -> None:
        if self.mode is not MacMode.COOP:
            writer.set(Special.CUS, part.cus)
        if part.divisor:
            writer.set(Special.DIVISOR, part.divisor)

    def _open(self, writer: Writer, bias: int, residual: int) -> None:
        if bias >= 0:
            writer.vmov(Preload.BIAS, self.layout, bias)
        if residual >= 0 and self.opens:
            writer.vmov(Preload.RESIDUAL, self.layout, residual)

    def _sum(
        self, writer: Writer, part: Part, maps: Sequence[int], weights: Sequence[int], bias: int,
        residual: int,
    ) -> None:  # fmt: skip
        self._open(writer, bias, residual)
        last = len(part.traces) - 1
        for index, trace in enumerate(part.traces):
            finish = Finish.RESULT if self.ends and index == last else Finish.KEEP
            writer.mac(self.mode, finish, maps[index], weights[index], trace.length)


def _mask(cus: Iterable[int]) -> int:
    return sum(1 << cu for cu in cus)


CHANGED = frozenset({Special.OUT, Special.CUS, Special.DIVISOR, Special.OUT_STEP})
"""Special registers that a nest may leave with other values."""
