"""Slow, plain counterparts of the planner: random layers and machines, Algorithms 1-4 without
pruning, and a walk over every tile of a plan."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, inf

from hypothesis import strategies as st

from tvm_npu.codegen.nmp.plan.conv_plan import ConvPlan
from tvm_npu.codegen.plan.limits import NO_LIMITS, TileLimits
from tvm_npu.codegen.plan.problem import ConvProblem
from tvm_npu.sim.nmp.machine import NmpMachine, load_nmp_machine, nmp_machine_from_dict

SPLITS = ("KS", "KS&OFM", "OFM")
SCHEDULES = ("IS", "OS", "WS")

# times, filters, channels, in_rows, rows, kernel, stride, padding; all maps are square
INCEPTION_V3 = (
    (1, 32, 3, 299, 149, (3, 3), 2, (0, 0)),
    (1, 32, 32, 149, 147, (3, 3), 1, (0, 0)),
    (1, 64, 32, 147, 147, (3, 3), 1, (1, 1)),
    (1, 80, 64, 73, 73, (1, 1), 1, (0, 0)),
    (1, 192, 80, 73, 71, (3, 3), 1, (0, 0)),
    (2, 64, 192, 35, 35, (1, 1), 1, (0, 0)),
    (1, 48, 192, 35, 35, (1, 1), 1, (0, 0)),
    (3, 64, 48, 35, 35, (5, 5), 1, (2, 2)),
    (4, 96, 64, 35, 35, (3, 3), 1, (1, 1)),
    (3, 96, 96, 35, 35, (3, 3), 1, (1, 1)),
    (1, 32, 192, 35, 35, (1, 1), 1, (0, 0)),
    (3, 64, 256, 35, 35, (1, 1), 1, (0, 0)),
    (1, 48, 256, 35, 35, (1, 1), 1, (0, 0)),
    (4, 64, 288, 35, 35, (1, 1), 1, (0, 0)),
    (1, 48, 288, 35, 35, (1, 1), 1, (0, 0)),
    (1, 384, 288, 35, 17, (3, 3), 2, (0, 0)),
    (1, 96, 96, 35, 17, (3, 3), 2, (0, 0)),
    (12, 192, 768, 17, 17, (1, 1), 1, (0, 0)),
    (2, 128, 768, 17, 17, (1, 1), 1, (0, 0)),
    (2, 128, 128, 17, 17, (1, 7), 1, (0, 3)),
    (1, 192, 128, 17, 17, (7, 1), 1, (3, 0)),
    (2, 128, 128, 17, 17, (7, 1), 1, (3, 0)),
    (1, 192, 128, 17, 17, (1, 7), 1, (0, 3)),
    (4, 160, 768, 17, 17, (1, 1), 1, (0, 0)),
    (4, 160, 160, 17, 17, (1, 7), 1, (0, 3)),
    (2, 192, 160, 17, 17, (7, 1), 1, (3, 0)),
    (4, 160, 160, 17, 17, (7, 1), 1, (3, 0)),
    (2, 192, 160, 17, 17, (1, 7), 1, (0, 3)),
    (4, 192, 192, 17, 17, (1, 7), 1, (0, 3)),
    (4, 192, 192, 17, 17, (7, 1), 1, (3, 0)),
    (1, 320, 192, 17, 8, (3, 3), 2, (0, 0)),
    (1, 192, 192, 17, 8, (3, 3), 2, (0, 0)),
    (1, 320, 1280, 8, 8, (1, 1), 1, (0, 0)),
    (1, 384, 1280, 8, 8, (1, 1), 1, (0, 0)),
    (4, 384, 384, 8, 8, (1, 3), 1, (0, 1)),
    (4, 384, 384, 8, 8, (3, 1), 1, (1, 0)),
    (1, 448, 1280, 8, 8, (1, 1), 1, (0, 0)),
    (2, 384, 448, 8, 8, (3, 3), 1, (1, 1)),
    (1, 192, 1280, 8, 8, (1, 1), 1, (0, 0)),
    (1, 320, 2048, 8, 8, (1, 1), 1, (0, 0)),
    (1, 384, 2048, 8, 8, (1, 1), 1, (0, 0)),
    (1, 448, 2048, 8, 8, (1, 1), 1, (0, 0)),
    (1, 192, 2048, 8, 8, (1, 1), 1, (0, 0)),
)

NMP_PLANNERS = (
    "tso", "tso-noburst", "fixed-ks", "fixed-ks-ofm", "fixed-ofm", "fixed-is", "fixed-os",
    "fixed-ws", "exact", "exact-dma",
)  # fmt: skip
"""Planners whose own search is for NMPs; those of tile machines answer there by an adapter."""


def inception_v3() -> list[ConvProblem]:
    """The 94 convolutions of InceptionV3 at 299 x 299, 16 bit."""
    layers = []
    for times, filters, channels, extent, rows, kernel, stride, (
        pad_rows,
        pad_columns,
    ) in INCEPTION_V3:
        layer = conv(
            filters,
            channels,
            (extent, extent),
            kernel,
            stride=(stride, stride),
            padding=(pad_rows, pad_columns, pad_rows, pad_columns),
        )
        assert (layer.rows, layer.columns) == (rows, rows)
        layers += [layer] * times
    return layers


def conv(
    filters: int,
    channels: int,
    in_extent: tuple[int, int],
    kernel: tuple[int, int],
    stride: tuple[int, int] = (1, 1),
    dilation: tuple[int, int] = (1, 1),
    padding: tuple[int, int, int, int] = (0, 0, 0, 0),
    groups: int = 1,
    element_bytes: int = 2,
    has_residual: bool = False,
) -> ConvProblem:
    rows, columns = (
        (in_extent[a] + padding[a] + padding[a + 2] - (kernel[a] - 1) * dilation[a] - 1)
        // stride[a]
        + 1
        for a in (0, 1)
    )
    return ConvProblem(
        filters, channels, groups, rows, columns, *in_extent, kernel, stride, dilation, padding,
        element_bytes, has_residual,
    )  # fmt: skip


def dense(filters: int, channels: int, element_bytes: int = 2) -> ConvProblem:
    one = (1, 1)
    return ConvProblem(
        filters, channels, 1, 1, 1, 1, 1, one, one, one, (0, 0, 0, 0), element_bytes, is_dense=True
    )


def machine(
    tles: int = 4,
    tlts: int = 8,
    memories: tuple[int, int, int, int] = (8192, 8192, 8192, 4096),
    burst_bytes: int = 128,
    setup_cycles: float = 16.0,
    burst_cycles: float = 56.0,
    linear_burst_cycles: float | None = 20.0,
    dme_rate: float = 1.5,
    cas_cycles: float = 14.0,
    dram_rate: float = 17.0,
    mac_setup: float = 8.0,
    ports: int = 1,
    ring: tuple[float, float] | None = (16.0, 4.0),
) -> NmpMachine:
    """A machine in which everything that a plan's time depends on is set here; ``ring`` is (bytes
    a cycle, cycles a hop)."""
    mb0, mb1, mb2, bias = memories
    values = load_nmp_machine("nmp-4x8").model_dump()
    values["name"] = "test"
    values["cores"].update(tles=tles, tlts_per_tle=tlts)
    values["mac"].update(datapath_bits=128, efficiency=0.75, setup_cycles=mac_setup)
    values["memories"] = {
        "mb0_bytes": mb0,
        "mb1_bytes": mb1,
        "mb2_bytes": mb2,
        "bias_bytes": bias,
        "ports": ports,
    }
    values["ring"] = ring and {"bytes_per_cycle": ring[0], "hop_cycles": ring[1]}
    values["dme"].update(
        setup_cycles=setup_cycles,
        burst_cycles=burst_cycles,
        linear_burst_cycles=linear_burst_cycles,
        bytes_per_cycle=dme_rate,
    )
    values["dram"].update(burst_bytes=burst_bytes, cas_cycles=cas_cycles, bytes_per_cycle=dram_rate)
    return nmp_machine_from_dict(values)


@st.composite
def convs(draw: st.DrawFn, largest: int = 7) -> ConvProblem:
    """Small layers: grouped, depthwise, strided, dilated, padded, with residuals, and dense."""
    if draw(st.integers(0, 7)) == 0:
        return dense(
            draw(st.integers(1, 40)), draw(st.integers(1, 40)), draw(st.sampled_from((1, 2)))
        )
    groups = draw(st.sampled_from((1, 1, 1, 2, 3, 6)))
    kernel, stride, dilation, extent = (
        (draw(st.integers(1, top)), draw(st.integers(1, top))) for top in (3, 3, 2, largest)
    )
    pads = st.integers(0, 2) if draw(st.booleans()) else st.just(0)
    padding = tuple(draw(pads) for _ in range(4))
    in_extent = []
    for axis in (0, 1):
        span = (kernel[axis] - 1) * dilation[axis] + 1
        slack = draw(st.integers(0, stride[axis] - 1))
        real = (extent[axis] - 1) * stride[axis] + span + slack
        in_extent.append(max(1, real - padding[axis] - padding[axis + 2]))
    return conv(
        groups * draw(st.integers(1, 24 // groups)),
        groups * draw(st.integers(1, 12 // groups)),
        (in_extent[0], in_extent[1]),
        kernel,
        stride,
        dilation,
        padding,  # type: ignore[arg-type]
        groups,
        draw(st.sampled_from((1, 2))),
        draw(st.booleans()),
    )


@st.composite
def machines(draw: st.DrawFn, largest: int = 512) -> NmpMachine:
    sizes = st.integers(8, largest // 8).map(lambda n: 8 * n)
    return machine(
        tles=draw(st.sampled_from((1, 2, 3, 4, 6))),
        tlts=draw(st.integers(1, 4)),
        memories=(draw(sizes), draw(sizes), draw(sizes), draw(st.sampled_from((64, 4096)))),
        burst_bytes=draw(st.sampled_from((8, 32, 128))),
        setup_cycles=draw(st.sampled_from((0.0, 16.0))),
        burst_cycles=draw(st.sampled_from((0.0, 7.0, 56.0))),
        linear_burst_cycles=draw(st.sampled_from((None, 0.0, 20.0))),
        dme_rate=draw(st.sampled_from((1.5, 8.0))),
        cas_cycles=draw(st.sampled_from((0.0, 14.0, 60.0))),
        dram_rate=draw(st.sampled_from((1.0, 17.0))),
        mac_setup=draw(st.sampled_from((0.0, 8.0))),
        ports=draw(st.sampled_from((1, 2))),
        ring=draw(st.sampled_from((None, (16.0, 4.0), (0.25, 1.0)))),
    )


@st.composite
def tight_layers(draw: st.DrawFn) -> tuple[ConvProblem, NmpMachine]:
    """A few TLTs with many filters and scratchpads of a few tiles, and maps that are little wider
    than their windows: where T_M, T_R and T_C trade against each other."""
    kernel, stride, pads = (
        (draw(st.integers(low, 3)), draw(st.integers(low, 3))) for low in (1, 1, 0)
    )
    in_extent = (draw(st.integers(3, 11)), draw(st.integers(3, 11)))
    groups = draw(st.sampled_from((1, 1, 1, 2, 4)))
    filters = groups * draw(st.integers(1, 60 // groups))
    problem = conv(
        filters,
        groups * draw(st.integers(1, 4)),
        in_extent,
        kernel,
        stride,
        padding=(*pads, *pads),
        groups=groups,
    )
    sizes = st.integers(8, 36).map(lambda n: 8 * n)
    mach = machine(
        tles=draw(st.sampled_from((1, 2))),
        tlts=draw(st.integers(1, 3)),
        memories=(draw(sizes), draw(sizes), draw(sizes), 4096),
        burst_bytes=draw(st.sampled_from((8, 16, 64))),
        setup_cycles=draw(st.sampled_from((0.0, 1.0, 16.0))),
        burst_cycles=draw(st.sampled_from((0.0, 7.0, 56.0))),
        linear_burst_cycles=draw(st.sampled_from((None, 0.0, 20.0))),
        mac_setup=draw(st.sampled_from((0.0, 8.0))),
    )
    return problem, mach


def limits() -> st.SearchStrategy[TileLimits]:
    bound = st.none() | st.integers(1, 5)
    return st.just(NO_LIMITS) | st.builds(TileLimits, bound, bound, bound, bound)


def slices(split: str, tles: int) -> tuple[int, int] | None:
    """(row slices, filter slices); None where KS&OFM does not exist."""
    if tles == 1:
        return (1, 1)
    if split == "KS&OFM":
        return (2, tles // 2) if tles in (4, 6, 8) else None
    return (1, tles) if split == "KS" else (tles, 1)


# --- Algorithms 1-4 ------------------------------------------------------------------------


@dataclass(frozen=True)
class Choice:
    """The outcome of the plain search: everything a ConvPlan says, and its closed-form time."""

    time: float = inf
    plan: ConvPlan | None = None


def brute_force(
    p: ConvProblem,
    mach: NmpMachine,
    limits: TileLimits = NO_LIMITS,
    by_volume: bool = False,
    splits: tuple[str, ...] = SPLITS,
    schedules: tuple[str, ...] = SCHEDULES,
) -> Choice:
    """Every split, schedule and tile in the order of the paper's loops."""
    best = Choice()
    for split in splits:
        cut = slices(split, mach.cores.tles)
        if cut is None:
            continue
        for mode in ("multicast", "grouped") if p.groups > 1 else ("multicast",):
            allowed = schedules
            if mode == "grouped":
                allowed = tuple(dict.fromkeys("OS" if q == "IS" else q for q in schedules))
            for schedule in allowed:
                found = _tilings(p, mach, limits, by_volume, cut, mode, schedule)
                for time, tile in found:
                    if time < best.time:
                        plan = ConvPlan(mode, split, *cut, schedule, *tile)  # type: ignore[arg-type]
                        best = Choice(time, plan)
    return best


def _tilings(p, mach, limits, by_volume, cut, mode, schedule):
    """All (time, (T_M, T_N, T_R, T_C)) of Algorithm 3 that satisfy Equation 2 and the extras."""
    grouped = mode == "grouped"
    filters_each, channels = p.filters // p.groups, p.channels // p.groups
    rows = ceil(p.rows / cut[0])
    items = ceil((p.groups if grouped else filters_each) / cut[1])
    per_tlt = ceil(items / mach.cores.tlts_per_tle)
    biases = per_tlt * (filters_each if grouped else 1)
    if biases * 4 > mach.memories.bias_bytes:
        return
    top_m, top_n, top_r, top_c = (
        inf if bound is None else bound
        for bound in (limits.max_tile_m, limits.max_tile_n, limits.max_tile_r, limits.max_tile_c)
    )
    for tile_r in range(1, rows + 1):
        for tile_c in range(1, p.columns + 1):
            for step in range(1, (per_tlt if grouped else channels) + 1):
                if grouped:
                    choices = [(step * filters_each, channels)]
                else:
                    most = ceil(per_tlt / 2) if schedule == "OS" else per_tlt
                    wanted = (per_tlt,) if schedule == "IS" else range(most, 0, -1)
                    choices = [(tile_m, step) for tile_m in wanted]
                for tile_m, tile_n in choices:  # GetFilters: the most that fit
                    if tile_m > top_m or tile_n > top_n or tile_r > top_r or tile_c > top_c:
                        continue
                    tile = (tile_m, tile_n, tile_r, tile_c)
                    if fits(p, mach, mode, schedule, tile):
                        one = _closed_form(p, mach, by_volume, cut, mode, schedule, tile)
                        yield one * (1 if grouped else p.groups), tile
                        break


def fits(p, mach, mode, schedule, tile) -> bool:
    """Equation 2, and the residual tile in MB0."""
    tile_m, tile_n, tile_r, tile_c = tile
    in_channels = tile_n
    if mode == "grouped":
        in_channels = tile_m // (p.filters // p.groups) * tile_n
    w_channels = p.channels // p.groups if schedule == "WS" else tile_n
    in_bytes = in_channels * p.in_tile_rows(tile_r) * p.in_tile_columns(tile_c) * p.element_bytes
    w_bytes = tile_m * w_channels * p.kernel[0] * p.kernel[1] * p.element_bytes
    out_bytes = tile_m * tile_r * tile_c * p.element_bytes
    return (
        in_bytes <= mach.memories.mb0_bytes
        and w_bytes <= mach.memories.mb1_bytes
        and out_bytes <= mach.memories.mb2_bytes
        and (not p.has_residual or out_bytes <= mach.memories.mb0_bytes)
    )


def _closed_form(p, mach, by_volume, cut, mode, schedule, tile) -> float:
    """Equations 3-9, channel tile by channel tile: IN and W tiles once a TLE, OUT tiles for every
    TLT; TLTs that own whole groups share nothing."""
    tile_m, tile_n, tile_r, tile_c = tile
    grouped = mode == "grouped"
    filters_each, channels = p.filters // p.groups, p.channels // p.groups
    all_items = p.groups if grouped else filters_each
    tle_r, tle_w = ceil(p.rows / cut[0]), ceil(all_items / cut[1])
    tlts = min(tle_w, mach.cores.tlts_per_tle)
    per_tlt = ceil(tle_w / mach.cores.tlts_per_tle)
    tiles_m = ceil(per_tlt / (tile_m // filters_each if grouped else tile_m))
    places = ceil(tle_r / tile_r) * ceil(p.columns / tile_c)
    size, taps, rate = p.element_bytes, p.kernel[0] * p.kernel[1], 16 // p.element_bytes
    owners = tlts if grouped else 1

    totals = {"transfers": 0, "bursts": 0, "elements": 0, "units": 0, "steps": 0}

    def move(times: int, pieces: list[int]) -> None:
        totals["transfers"] += times
        totals["bursts"] += times * sum(ceil(n * size / mach.dram.burst_bytes) for n in pieces)
        totals["elements"] += times * sum(pieces)

    height = min(p.in_tile_rows(tile_r), p.in_rows)
    width = min(p.in_tile_columns(tile_c), p.in_columns)
    is_point = p.in_rows == p.in_columns == p.rows == p.columns == 1
    is_point = is_point and p.in_tile_rows(1) == p.in_tile_columns(1) == 1
    parts = [channels] if grouped else [*range(tile_n, channels, tile_n), channels]
    for end in parts:
        depth = end if grouped else (end - 1) % tile_n + 1
        read = tile_m // filters_each * channels if grouped else depth
        if is_point:
            move(owners * tiles_m * places, [read])
        elif width == p.in_columns:
            move(owners * tiles_m * places, [height * width] * read)
        else:
            move(owners * tiles_m * places, [width] * height * read)
        if schedule != "WS":
            whole = tile_n == channels
            pieces = [tile_m * depth * taps] if whole else [depth * taps] * tile_m
            move(owners * tiles_m * places, pieces)
        area = tile_r * tile_c * taps
        one = ceil(depth / rate) if p.is_dense else depth * ceil(area / rate)
        totals["units"] += tiles_m * places * tile_m * one
        totals["steps"] += tiles_m * places
    if schedule == "WS":
        move(owners * tiles_m, [tile_m * channels * taps])
    if p.rows == p.columns == 1:
        out = [tile_m]
    elif tile_c == p.columns:
        out = [tile_r * tile_c] * tile_m
    else:
        out = [tile_c] * tile_r * tile_m
    move(tlts * tiles_m * places * (2 if p.has_residual else 1), out)
    if by_volume:
        totals["bursts"] = 0
    # The order of the sum is the planner's, so that equal times tie in both.
    return (
        totals["transfers"] * mach.dme.setup_cycles
        + totals["bursts"] * mach.dram.cas_cycles
        + totals["elements"] * size * (1.0 / mach.dme.bytes_per_cycle)
        + totals["units"] * (1.0 / mach.mac.efficiency)
        + totals["steps"] * mach.mac.setup_cycles
    )


def engine_cycles(
    transfers: list[list[int]], mach: NmpMachine, are_linear: list[bool] | None = None
) -> float:
    """Time of one DMA engine for transfers that are lists of segment lengths in bytes, 3-D ones
    unless said otherwise."""
    dme = mach.dme
    linear = dme.burst_cycles if dme.linear_burst_cycles is None else dme.linear_burst_cycles
    return sum(
        dme.setup_cycles
        + sum(ceil(length / mach.dram.burst_bytes) for length in lengths)
        * (linear if is_linear else dme.burst_cycles)
        + sum(lengths) / dme.bytes_per_cycle
        for lengths, is_linear in zip(
            transfers, are_linear or [False] * len(transfers), strict=True
        )
    )


def dram_cycles(transfers: list[list[int]], mach: NmpMachine) -> float:
    return sum(
        sum(ceil(length / mach.dram.burst_bytes) for length in lengths) * mach.dram.cas_cycles
        + sum(lengths) / mach.dram.bytes_per_cycle
        for lengths in transfers
    )
