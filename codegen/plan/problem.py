"""What a planner is asked and what it answers.

Names follow the TSO paper: N input channels, M filters, an OFM of R rows x C columns, tiles
(T_M, T_N, T_R, T_C). Everything here is per image and hashable, so equal layers are planned once.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Split = Literal["KS", "KS&OFM", "OFM"]
Schedule = Literal["IS", "OS", "WS"]


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

    def in_tile_rows(self, tile_rows: int) -> int:
        """Equation 1: IFM rows that ``tile_rows`` OFM rows need, dilation included."""
        return (tile_rows - 1) * self.stride[0] + (self.kernel[0] - 1) * self.dilation[0] + 1

    def in_tile_columns(self, tile_columns: int) -> int:
        return (tile_columns - 1) * self.stride[1] + (self.kernel[1] - 1) * self.dilation[1] + 1

    @property
    def macs(self) -> int:
        kernel = self.kernel[0] * self.kernel[1]
        return self.filters * (self.channels // self.groups) * kernel * self.rows * self.columns


@dataclass(frozen=True)
class Prediction:
    """What a planner expects of its plan, over the whole machine."""

    cycles: float
    mac_cycles: float
    load_cycles: float
    store_cycles: float
    in_bytes: int
    weight_bytes: int
    out_bytes: int


@dataclass(frozen=True)
class ConvPlan:
    """How one convolution runs.

    The OFM rows are cut into ``row_slices`` and the filters into ``filter_slices`` over the TLEs
    (their product is the number of TLEs in use, at most the machine's). Inside a TLE, filters are
    dealt to the TLTs in contiguous runs of nearly equal length, the longer ones at low TLT ids.

    mode "multicast": the TLTs of a TLE share each IN tile (one multicast load). With groups > 1
    the groups run one after another, each as a convolution of its own.
    mode "grouped": TLTs own whole groups and load their own IN tiles; ``tile_m`` counts filters
    (a multiple of filters / groups), ``tile_n`` is channels / groups, the schedule is "OS" (all
    weights of the tile with its groups) or "WS" (weights stay while the OFM is walked).

    Schedules (TSO IV-D), loops from the outside in, per TLT:
      IS: rows, columns, channels; T_M = all filters of the TLT
      OS: rows, columns, filters, channels; IN and W are loaded for every step
      WS: filters, (W with all N channels is loaded once), rows, columns, channels
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


@dataclass(frozen=True)
class Infeasible:
    """No plan fits: which buffer, what the smallest tile needs, what there is, what would help."""

    buffer: str
    needed_bytes: int
    available_bytes: int
    reason: str
    remedy: str

    def __str__(self) -> str:
        return (
            f"{self.reason}: the smallest tile needs {self.needed_bytes} bytes of {self.buffer}, "
            f"which has {self.available_bytes}; {self.remedy}"
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
