"""The plan of a convolution on an NMP: who works on what, and in which tiles and order.

Names follow the TSO paper: N input channels, M filters, an OFM of R rows x C columns, tiles
(T_M, T_N, T_R, T_C).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from tvm_npu.codegen.plan.problem import ConvProblem, Prediction

Split = Literal["KS", "KS&OFM", "OFM"]
Schedule = Literal["IS", "OS", "WS"]


def split_of(spatial_slices: int, filter_slices: int) -> Split:
    """What TLEs that so many slices are dealt to divide between them."""
    if spatial_slices == 1:
        return "KS"
    return "OFM" if filter_slices == 1 else "KS&OFM"


@dataclass(frozen=True)
class ConvPlan:
    """How one convolution runs.

    Over the TLEs: the OFM rows are split into ``row_slices``, its columns into ``column_slices``
    and the filters into ``filter_slices`` (`slice_of`; their product is the number of TLEs in use,
    at most the machine's). TLE t has row slice t // (column_slices * filter_slices), column slice
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

    ``in_by_channels`` (an IFM without padding, no window behind): IN tiles move as 1-D transfers,
    too, where they are no whole rows: one for each channel, of a segment a row; or one in all,
    where the tile has all rows of its channels. Only the last one of a tile says that it arrived.

    With a ``window`` in the problem, rows and columns of slices, parts and tiles are those of its
    OFM. An OUT tile then takes the convolution's OFM under it (`ConvProblem.middle_tile`, clipped
    to the OFM, computed anew where windows overlap) into MB2, from there as a box over the TLE's
    ring into MB0 (in place of the IN tile, behind it where that has to stay), and from there
    through the window into MB2, behind the first.

    ``keeps_rows`` (with a window whose windows overlap along the rows): loops go over filters,
    columns, rows and channels, and the rows of the convolution's OFM that the tile above needs,
    too, stay in MB2 (`kept_rows`). A row of a tile is multiplied with all filters at once.

    ``macs_first`` (with two buffers): a TLT asks for the tiles of the next step when its products
    have begun, not in front of them.

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
    keeps_rows: bool = False
    macs_first: bool = False
    in_by_channels: bool = False


def loads_weights_early(problem: ConvProblem, plan: ConvPlan) -> bool:
    """The first W tile needs nothing of the layer before, nor of any other TLT. (With one buffer it
    only queues in front of what other TLTs still load for the layer before.)"""
    is_own = plan.tlt_rows * plan.tlt_columns == 1 and not plan.ring_weights
    return is_own and problem.groups == 1 and plan.buffers == 2
