"""What a planner is asked and what it answers.

Names follow the TSO paper: N input channels, M filters, an OFM of R rows x C columns, tiles
(T_M, T_N, T_R, T_C). Everything here is per image and hashable, so equal layers are planned once.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

Split = Literal["KS", "KS&OFM", "OFM"]
Schedule = Literal["IS", "OS", "WS"]


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
    """Of a partial sum, on machines where these take more room than elements (tile machines)."""

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
    def macs(self) -> int:
        kernel = self.kernel[0] * self.kernel[1]
        return self.filters * (self.channels // self.groups) * kernel * self.rows * self.columns

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


@dataclass(frozen=True)
class ConvPlan:
    """How one convolution runs.

    Over the TLEs: the OFM rows are cut into ``row_slices``, its columns into ``column_slices`` and
    the filters into ``filter_slices`` (`slice_of`; their product is the number of TLEs in use, at
    most the machine's). TLE t has row slice t // (column_slices * filter_slices), column slice
    t // filter_slices % column_slices and filter slice t % filter_slices.

    Over the TLTs of a TLE: its rows into ``tlt_rows`` parts, its columns into ``tlt_columns`` and
    its filters into all that remain, tlt_filters = tlts_per_tle // (tlt_rows * tlt_columns), which
    must divide; all dealt in contiguous runs of nearly equal length, the longer ones first
    (`share`). TLT k has row part k // (tlt_columns * tlt_filters), column part
    k // tlt_filters % tlt_columns and filter part k % tlt_filters.

    mode "multicast": the TLTs of a TLE that have the same rows and columns share each IN tile (one
    multicast load by the first of them); those that have the same filters share each W tile, too,
    where there are several. With groups > 1 the groups run one after another, each as a
    convolution of its own.
    mode "grouped": TLTs own whole groups and load their own IN and W tiles (tlt_rows, tlt_columns
    and column_slices are 1, nothing goes over the ring); ``tile_m`` counts filters (a multiple of
    filters / groups), ``tile_n`` is channels / groups, the schedule is "OS" (all weights of the
    tile with its groups) or "WS" (weights stay while the OFM is walked).

    Schedules (TSO IV-D), loops from the outside in, per TLT:
      IS: rows, columns, channels; T_M = all filters of the TLT
      OS: rows, columns, filters, channels; IN and W are loaded for every step
      WS: filters, (W with all N channels is loaded once), rows, columns, channels
    ``keeps_in`` (OS with tile_n = channels): the IN tile is loaded once a place and stays while
    the filters are walked.

    ``ring_in``: the TLEs that have the same rows and columns (filter_slices of them) share each IN
    tile over the Global Ringbus: each loads ceil(T_N / filter_slices) of its channels and forwards
    them to the others. ``ring_weights``: the TLEs with the same filters (row_slices *
    column_slices of them) share each W tile so, by filters: ceil(T_M / sharing TLEs) of them each.

    ``weights``: "filters" keeps the layout [filter][channel][kernel] in DRAM; "tiles" stores every
    W tile as one contiguous run. ``linear_maps``: a feature map tile of the tensor's full
    width that needs no padding moves as a 1-D transfer, one segment a channel (or one in all, where
    it has all rows as well), instead of a box.

    With a ``window`` in the problem, rows and columns of slices, parts and tiles are those of its
    OFM. An OUT tile then takes the convolution's OFM under it (`ConvProblem.middle_tile`, clipped
    to the OFM, computed anew where windows overlap) into MB2, from there as a box over the TLE's
    ring into MB0 (in place of the IN tile, behind it where that has to stay), and from there
    through the window into MB2, behind the first.

    ``buffers``: 2 halves MB0 for IN (what a residual tile needs comes off first), MB1 for W and
    MB2 for OUT; the transfers of a step run while the MAC unit works on the step before.
    """

    mode: Literal["multicast", "grouped"]
    split: Split
    row_slices: int
    filter_slices: int
    schedule: Schedule
    tile_m: int
    tile_n: int
    tile_r: int
    tile_c: int
    prediction: Prediction | None = None
    planner: str = ""
    column_slices: int = 1
    tlt_rows: int = 1
    tlt_columns: int = 1
    keeps_in: bool = False
    ring_in: bool = False
    ring_weights: bool = False
    weights: Literal["filters", "tiles"] = "filters"
    linear_maps: bool = False
    buffers: Literal[1, 2] = 1


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
