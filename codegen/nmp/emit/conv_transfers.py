"""The transfers of a convolution's tiles: IN, W, biases, OUT and the residual."""

from __future__ import annotations

from dataclasses import dataclass, replace

from tvm_npu.codegen.nmp.emit.commands import (
    Nodes,
    Transfer,
    at_least_one,
    loop,
    product,
    when,
)
from tvm_npu.codegen.nmp.emit.conv_tiles import ConvTiles
from tvm_npu.codegen.nmp.emit.conv_words import ConvWords
from tvm_npu.codegen.nmp.emit.conventions import (
    IN_ARRIVED,
    SECOND_ARRIVED,
    STORE_DONE,
    W_ARRIVED,
    wait,
)
from tvm_npu.codegen.nmp.emit.expressions import Expression, Operand
from tvm_npu.codegen.nmp.emit.transfers import (
    START,
    OnChip,
    box_transfer,
    rows_transfer,
    run_transfer,
    segments_transfer,
)
from tvm_npu.sim.machine_parts import BIAS_BYTES
from tvm_npu.sim.nmp.xnmp import Memory
from tvm_npu.sim.streams import Stream


@dataclass(frozen=True)
class OfmBox:
    """Rows and columns of an OFM: where they begin, how many there are, and how many rows in front
    of them are ``kept`` on chip."""

    row: Expression
    rows: Expression
    column: Expression
    columns: Expression
    kept: Expression = Expression()


@dataclass(frozen=True)
class ConvTransfers:
    """Transfers between the tensors of one layer and the memories of a TLT."""

    tiles: ConvTiles
    words: ConvWords
    fill: int = 0
    """What lies around the input."""

    def load_in(
        self,
        mnemonic: str,
        channel: Expression,
        channels: Expression,
        under: OfmBox,
        on_chip: OnChip = START,
    ) -> Transfer:
        """The IN tile under a box of the OFM; ``mnemonic`` nmp_load or nmp_mload."""
        tiles, problem, address = self.tiles, self.tiles.problem, self.words.in_address
        if tiles.flat_in:
            return run_transfer(
                mnemonic, Stream.IN, Memory.MB0, address + channel * tiles.size, IN_ARRIVED,
                channels * tiles.size, tiles.size, on_chip,
            )  # fmt: skip
        row, rows = tiles.in_start(0, under.row), tiles.in_extent(0, under.rows)
        if tiles.linear_in:
            return rows_transfer(
                mnemonic, Stream.IN, Memory.MB0, address, IN_ARRIVED,
                (problem.in_rows, problem.in_columns), (channel, channels), (row, rows),
                tiles.size, on_chip,
            )  # fmt: skip
        return box_transfer(
            f"{mnemonic}3d", Stream.IN, Memory.MB0, address, IN_ARRIVED,
            (problem.channels, problem.in_rows, problem.in_columns),
            (channel, row, tiles.in_start(1, under.column)),
            (channels, rows, tiles.in_extent(1, under.columns)),
            tiles.size, fill=self.fill, on_chip=on_chip,
        )  # fmt: skip

    def load_in_by_channels(
        self,
        mnemonic: str,
        channels: tuple[Expression, Expression],
        under: OfmBox,
        on_chip: OnChip,
        arrived: int,
    ) -> Nodes:
        """`load_in` of ``channels``, (begin, count), where `ConvTiles.by_channels` holds; the last
        transfer signals ``arrived``."""
        tiles, problem = self.tiles, self.tiles.problem
        rows, columns = tiles.in_extent(0, under.rows), tiles.in_extent(1, under.columns)
        row_bytes = problem.in_columns * tiles.size
        corner = tiles.in_start(0, under.row) * row_bytes
        corner = corner + tiles.in_start(1, under.column) * tiles.size
        address = self.words.in_address + corner
        plane_bytes = problem.in_rows * row_bytes

        def load(
            channel: Expression, segments: Expression, offset: Expression, semaphore: int
        ) -> Transfer:
            place = replace(on_chip, offset=on_chip.offset + offset, arrived=semaphore)
            return segments_transfer(
                mnemonic, Stream.IN, Memory.MB0, address + channel * plane_bytes, semaphore,
                (segments, columns * tiles.size, row_bytes), tiles.size, place,
            )  # fmt: skip

        if rows == Expression.of(problem.in_rows):
            segments, make = product("in_segments", channels[1], rows)
            return (*make, load(channels[0], segments, Expression(), arrived))
        area, make_area = product("in_channel_area", rows, columns * tiles.size)
        # It is asked for no tile without channels.
        count, make_count = at_least_one("some_channels", channels[1])

        def turn(index: Expression, _: Expression) -> Nodes:
            offset, make = product("in_channel_offset", index, area)
            at = channels[0] + index
            inner, last = (load(at, rows, offset, number) for number in (0, arrived))
            return (*make, *when(count - index - 1, ">", (inner,), (last,)))

        return (*make_area, *make_count, *loop("in_channel", count, 1, turn))

    def store_out(
        self, filter_: Expression, filters: Expression, box: OfmBox, on_chip: OnChip = START
    ) -> Transfer:
        """The OUT tile, from MB2."""
        return self._out_transfer(
            "nmp_store", Stream.OUT, Memory.MB2, self.words.out_address, STORE_DONE, filter_,
            filters, box, self.tiles.out_size, None, on_chip,
        )  # fmt: skip

    def load_residual(
        self,
        filter_: Expression,
        filters: Expression,
        box: OfmBox,
        on_chip: OnChip = START,
        arrived: int = SECOND_ARRIVED,
    ) -> Transfer:
        """The tile that is added to the OUT tile, to MB0; the semaphore ``arrived`` says when."""
        address = self.words.residual_address
        assert address is not None
        return self._out_transfer(
            "nmp_load", Stream.RESIDUAL, Memory.MB0, address, arrived, filter_, filters,
            box, self.tiles.size, 0, on_chip,
        )  # fmt: skip

    def _out_transfer(
        self,
        mnemonic: str,
        stream: Stream,
        memory: Memory,
        address: Expression,
        semaphore: int,
        filter_: Expression,
        filters: Expression,
        box: OfmBox,
        size: int,
        fill: int | None,
        on_chip: OnChip,
    ) -> Transfer:
        """``size`` are the bytes of an element."""
        tiles, problem = self.tiles, self.tiles.problem
        if tiles.flat_out:
            return run_transfer(
                mnemonic, stream, memory, address + filter_ * size, semaphore,
                filters * size, size, on_chip,
            )  # fmt: skip
        if tiles.linear_out:
            return rows_transfer(
                mnemonic, stream, memory, address, semaphore,
                (problem.out_rows, problem.out_columns), (filter_, filters),
                (box.row, box.rows), size, on_chip,
            )  # fmt: skip
        return box_transfer(
            f"{mnemonic}3d", stream, memory, address, semaphore,
            (problem.filters, problem.out_rows, problem.out_columns),
            (filter_, box.row, box.column), (filters, box.rows, box.columns), size,
            fill=fill, on_chip=on_chip,
        )  # fmt: skip

    def load_biases(
        self, address: Expression, filters: Expression, on_chip: OnChip = START
    ) -> Nodes:
        """Biases of ``filters`` filters, and the wait for them."""
        transfer = run_transfer(
            "nmp_load", Stream.BIAS, Memory.BIAS, address, SECOND_ARRIVED,
            filters * BIAS_BYTES, self.tiles.size, on_chip,
        )  # fmt: skip
        return (transfer, wait(SECOND_ARRIVED))

    def load_weights(
        self,
        mnemonic: str,
        address: Expression,
        filters: Expression,
        channels: Expression,
        on_chip: OnChip = START,
    ) -> Transfer:
        """A W tile or some filters of one: a segment a filter, or one in all where filters lie one
        behind the other."""
        tiles = self.tiles
        segments: tuple[Operand, Operand, Operand]
        if channels == Expression.of(tiles.channels):
            segments = (1, filters * tiles.filter_bytes, 0)
        else:
            segments = (filters, channels * (tiles.taps * tiles.size), tiles.filter_bytes)
        return segments_transfer(
            mnemonic, Stream.WEIGHT, Memory.MB1, address, W_ARRIVED, segments, tiles.size, on_chip
        )
