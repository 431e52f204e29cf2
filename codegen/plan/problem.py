"""What a planner is asked and what it answers.

Names follow the TSO paper: N input channels, M filters, an OFM of R rows x C columns, tiles
(T_M, T_N, T_R, T_C). Everything here is per image and hashable, so equal layers are planned once.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Window:
    """A layer behind a convolution that makes every channel from the same channel of the
    convolution's OFM: a pool, or a depthwise convolution (``has_weights``: one kernel and one bias
    a channel). ``rows`` and ``columns`` are those of its own OFM. Every window touches the
    convolution's OFM."""

    rows: int
    columns: int
    kernel: tuple[int, int]
    stride: tuple[int, int]
    padding: tuple[int, int]
    """In front of the first row and column."""
    has_weights: bool = False


@dataclass(frozen=True)
class ConvProblem:
    """One convolution or fully connected layer as a planner sees it (``groups == 1`` is dense
    over channels; ``channels`` and ``filters`` are totals over all groups)."""

    filters: int
    channels: int
    groups: int
    rows: int
    columns: int
    in_rows: int
    in_columns: int
    kernel: tuple[int, int]
    stride: tuple[int, int]
    dilation: tuple[int, int]
    padding: tuple[int, int, int, int]
    element_bytes: int
    has_residual: bool = False
    is_dense: bool = False
    window: Window | None = None
    """What is computed from the OFM tile by tile on chip, so that only its result is stored."""
    accumulator_bytes: int = 8
    """Of a partial sum, on machines where these take more room than elements."""
    table_bytes: int | None = None
    """Of the table or slopes that lie beside the layer's biases, where there are some."""
    out_bytes: int | None = None
    """Of an element of what is stored, where it is another than those of the operands."""
    has_twin: bool = False
    """A pointwise convolution of the same IFM, with as many filters and the same OFM, runs beside
    it: every filter has one more tap, and makes two channels of the OFM."""

    @property
    def out_rows(self) -> int:
        """Rows of what is stored."""
        return self.rows if self.window is None else self.window.rows

    @property
    def out_columns(self) -> int:
        return self.columns if self.window is None else self.window.columns

    def middle_tile(self, rows: int, columns: int) -> tuple[int, int]:
        """Rows and columns of the convolution's OFM, borders around it included, under an OUT tile
        of ``rows`` x ``columns``."""
        if self.window is None:
            return rows, columns
        kernel, stride = self.window.kernel, self.window.stride
        return (rows - 1) * stride[0] + kernel[0], (columns - 1) * stride[1] + kernel[1]

    def in_tile_rows(self, tile_rows: int) -> int:
        """Equation 1: IFM rows that ``tile_rows`` OFM rows need, dilation included."""
        return (tile_rows - 1) * self.stride[0] + (self.kernel[0] - 1) * self.dilation[0] + 1

    def in_tile_columns(self, tile_columns: int) -> int:
        return (tile_columns - 1) * self.stride[1] + (self.kernel[1] - 1) * self.dilation[1] + 1

    @property
    def taps(self) -> int:
        """Weights of a filter for one channel, its twin's included."""
        return self.kernel[0] * self.kernel[1] + self.has_twin

    @property
    def planes(self) -> int:
        """Channels of the OFM that one filter makes."""
        return 1 + self.has_twin

    @property
    def macs(self) -> int:
        depth = self.channels // self.groups * self.taps
        return self.filters * depth * self.rows * self.columns

    @property
    def all_macs(self) -> int:
        """With those of a depthwise convolution behind it."""
        window = self.window
        if window is None or not window.has_weights:
            return self.macs
        taps = window.kernel[0] * window.kernel[1]
        return self.macs + self.filters * taps * window.rows * window.columns


Bound = Literal["mac", "dma", "dram", "ring"]


@dataclass(frozen=True)
class Prediction:
    """What a planner expects of its plan, over the whole machine. ``ring_bytes`` are those that
    loads forward to other TLEs; ``bound`` says what the time hangs on: the slowest TLE (its MAC
    unit or its DMA engine, whichever works longer), the DRAM, or the Global Ringbus."""

    cycles: float
    mac_cycles: float
    load_cycles: float
    store_cycles: float
    in_bytes: int
    weight_bytes: int
    out_bytes: int
    ring_bytes: int = 0
    bound: Bound = "dma"

    @property
    def moved_bytes(self) -> int:
        """To and from the memory outside."""
        return self.in_bytes + self.weight_bytes + self.out_bytes


@dataclass(frozen=True)
class MeasuredPrediction(Prediction):
    """Whose ``cycles`` are measured, or corrected by measurements, of the layer by itself on the
    simulator: the start of the layer is among them."""


@dataclass(frozen=True)
class Infeasible:
    """No plan fits: ``reason`` names what is too large even at its smallest, for which buffer;
    ``remedy`` says what would help."""

    buffer: str
    needed_bytes: int
    available_bytes: int
    reason: str
    remedy: str

    def __str__(self) -> str:
        if self.needed_bytes <= self.available_bytes:  # it is no matter of room
            return f"{self.reason}; {self.remedy}"
        return (
            f"{self.reason}: {self.needed_bytes} bytes of {self.buffer} needed, "
            f"{self.available_bytes} available; {self.remedy}"
        )


def share(total: int, parts: int, index: int) -> tuple[int, int]:
    """(begin, count) of part ``index`` when ``total`` items are dealt in contiguous runs of
    nearly equal length, the longer runs first."""
    base, extra = divmod(total, parts)
    return index * base + min(index, extra), base + (index < extra)


def slice_of(total: int, slices: int, index: int) -> tuple[int, int]:
    """(begin, count) of slice ``index`` of ceil(total / slices) items each (Algorithm 2); the
    last slices may be shorter or empty."""
    size = -(-total // slices)
    begin = min(index * size, total)
    return begin, min(size, total - begin)


def tile_sizes(total: int) -> Iterator[int]:
    """The smallest part size for every number of parts that ``total`` can be cut into."""
    part = 1
    while True:
        yield part
        parts = -(-total // part)
        if parts == 1:
            return
        part = -(-total // (parts - 1))
