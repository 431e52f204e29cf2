"""What a cost model sees of a convolution plan: its choices and what its loops do.

As in stock TVM's tuner, features come from the loop nest (how often each loop turns, what a step
touches, how much is moved and how much of the machine works), and none from a model of time.
Numbers are base-2 logarithms unless they are shares or flags.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from tvm_npu.codegen.nmp.plan.conv_plan import ConvPlan
from tvm_npu.codegen.plan.problem import ConvProblem
from tvm_npu.codegen.tune.space import Features
from tvm_npu.sim.nmp.machine import NmpMachine

Floats = NDArray[np.float64]

LAYER_NAMES = (
    "filters", "channels", "groups", "rows", "columns", "taps", "stride", "element_bytes",
    "residual", "dense", "window", "macs",
)  # fmt: skip
PLAN_NAMES = (
    "grouped", "row_slices", "column_slices", "filter_slices", "tlt_rows", "tlt_columns",
    "tlt_filters", "is_is", "is_ws", "keeps_in", "ring_in", "ring_weights", "weights_tiled",
    "linear_maps", "two_buffers", "tile_m", "tile_n", "tile_r", "tile_c",
    "in_is_linear", "out_is_linear",
)  # fmt: skip
LOOP_NAMES = (
    "tles", "filter_turns", "channel_turns", "places", "steps", "step_macs", "in_tile_bytes",
    "w_tile_bytes", "out_tile_bytes", "in_loads", "w_loads", "out_stores", "in_bytes", "w_bytes",
    "out_bytes", "in_bursts", "w_bursts", "out_bursts", "in_run_bytes", "w_run_bytes",
    "out_run_bytes", "moved_bytes", "bursts", "transfers", "macs_of_a_tlt", "mac_share",
    "mac_width_share", "macs_per_byte",
)  # fmt: skip
FEATURE_NAMES = (*LAYER_NAMES, *PLAN_NAMES, *LOOP_NAMES)


def conv_features(problem: ConvProblem, plans: Sequence[ConvPlan], machine: NmpMachine) -> Features:
    """[len(plans), len(FEATURE_NAMES)]. Loads, stores, bytes and bursts are those of the first
    TLE, all tiles taken as full."""
    layer = _layer(problem)
    if not plans:
        return np.zeros((0, len(FEATURE_NAMES)), np.float32)
    choices = np.array([_choices(plan, machine) for plan in plans], np.float64).T
    loops = _loops(problem, choices, machine)
    logs = np.array([name not in _FLAGS for name in PLAN_NAMES])
    shown = np.where(logs[:, None], np.log2(np.maximum(choices[: len(PLAN_NAMES)], 1)), choices)
    columns = np.concatenate((np.repeat(layer[:, None], len(plans), 1), shown, loops))
    return columns.T.astype(np.float32)


_FLAGS = frozenset(
    {"grouped", "is_is", "is_ws", "keeps_in", "ring_in", "ring_weights", "weights_tiled",
     "linear_maps", "two_buffers", "in_is_linear", "out_is_linear"}
)  # fmt: skip


def _layer(problem: ConvProblem) -> Floats:
    taps = problem.kernel[0] * problem.kernel[1]
    numbers = (
        problem.filters, problem.channels // problem.groups, problem.groups, problem.out_rows,
        problem.out_columns, taps, problem.stride[0] * problem.stride[1], problem.element_bytes,
    )  # fmt: skip
    flags = (problem.has_residual, problem.is_dense, problem.window is not None)
    return np.array([*np.log2(numbers), *flags, np.log2(problem.all_macs)])


def _choices(plan: ConvPlan, machine: NmpMachine) -> tuple[float, ...]:
    runs = machine.cores.tlts_per_tle // (plan.tlt_rows * plan.tlt_columns)
    return (
        plan.mode == "grouped", plan.row_slices, plan.column_slices, plan.filter_slices,
        plan.tlt_rows, plan.tlt_columns, runs, plan.schedule == "IS", plan.schedule == "WS",
        plan.keeps_in, plan.ring_in, plan.ring_weights, plan.weights == "tiles", plan.linear_maps,
        plan.buffers == 2, plan.tile_m, plan.tile_n, plan.tile_r, plan.tile_c, 0, 0,
    )  # fmt: skip


def _up(total: Floats | float, part: Floats) -> Floats:
    return np.ceil(total / part)


def _loops(problem: ConvProblem, choices: Floats, machine: NmpMachine) -> Floats:
    """The columns `LOOP_NAMES`; fills the last two of ``choices``."""
    (
        grouped, row_slices, column_slices, filter_slices, tlt_rows, tlt_columns, runs, _, is_ws,
        keeps_in, ring_in, ring_weights, tiled, linear, _, tile_m, tile_n, tile_r, tile_c, _, _,
    ) = choices  # fmt: skip
    size, burst = problem.element_bytes, float(machine.dram.burst_bytes)
    filters_each = problem.filters // problem.groups
    depth = problem.channels // problem.groups
    taps = problem.kernel[0] * problem.kernel[1]
    is_grouped = grouped > 0
    item_filters = np.where(is_grouped, filters_each, 1)
    repeats = np.where(is_grouped, 1, problem.groups)
    items = _up(_up(np.where(is_grouped, problem.groups, filters_each), filter_slices), runs)
    rows = _up(_up(problem.out_rows, row_slices), tlt_rows)
    columns = _up(_up(problem.out_columns, column_slices), tlt_columns)
    tile_items = np.maximum(tile_m // item_filters, 1)
    filter_turns, channel_turns = _up(items, tile_items), _up(depth, tile_n)
    places = _up(rows, tile_r) * _up(columns, tile_c)
    steps = places * filter_turns * channel_turns * repeats
    middle = _middle(problem, tile_r, tile_c)
    in_rows = (middle[0] - 1) * problem.stride[0] + problem.in_tile_rows(1)
    in_columns = (middle[1] - 1) * problem.stride[1] + problem.in_tile_columns(1)
    in_rows = np.minimum(in_rows, problem.in_rows)
    in_columns = np.minimum(in_columns, problem.in_columns)
    step_macs = tile_m * tile_n * taps * middle[0] * middle[1]
    in_channels = np.where(is_grouped, tile_items * depth, tile_n)
    in_tile = in_channels * in_rows * in_columns * size
    w_depth = np.where(is_ws > 0, depth, tile_n)
    w_tile = tile_m * w_depth * taps * size
    out_tile = tile_m * tile_r * tile_c * size
    spatial = tlt_rows * tlt_columns
    in_loads = np.where(keeps_in > 0, places, places * filter_turns) * channel_turns * repeats
    in_loads *= np.where(is_grouped, runs, spatial)
    in_shared = np.where(ring_in > 0, filter_slices, 1)
    w_loads = np.where(is_ws > 0, filter_turns, filter_turns * places * channel_turns)
    w_loads = w_loads * repeats * runs
    w_shared = np.where(ring_weights > 0, row_slices * column_slices, 1)
    out_stores = places * filter_turns * repeats * spatial * runs
    wide_in, wide_out = in_columns >= problem.in_columns, tile_c >= problem.out_columns
    choices[-2] = wide_in & (linear > 0) & (not any(problem.padding))
    choices[-1] = wide_out & (linear > 0)
    in_run = np.where(wide_in, in_rows, 1) * in_columns * size
    out_run = np.where(wide_out, tile_r, 1) * tile_c * size
    w_run = np.where(tiled > 0, w_tile, w_depth * taps * size)
    moved_in, moved_w = in_loads * in_tile / in_shared, w_loads * w_tile / w_shared
    moved_out = out_stores * out_tile * (2 if problem.has_residual else 1)
    bursts_in = moved_in / in_run * _up(in_run, np.array(burst))
    bursts_w = moved_w / w_run * _up(w_run, np.array(burst))
    bursts_out = moved_out / out_run * _up(out_run, np.array(burst))
    transfers = in_loads + w_loads + out_stores
    macs = steps * step_macs
    moved = moved_in + moved_w + moved_out
    cores = float(machine.core_count)
    width = float(machine.macs_per_cycle(size))
    side_by_side = tile_n if problem.is_dense else middle[0] * middle[1] * taps
    counts = (
        row_slices * column_slices * filter_slices, filter_turns, channel_turns, places, steps,
        step_macs, in_tile, w_tile, out_tile, in_loads, w_loads, out_stores, moved_in, moved_w,
        moved_out, bursts_in, bursts_w, bursts_out, in_run, w_run, out_run, moved,
        bursts_in + bursts_w + bursts_out, transfers, macs,
    )  # fmt: skip
    shares = (
        problem.all_macs / (macs * cores),
        side_by_side / (_up(side_by_side, np.array(width)) * width),
        np.log2(np.maximum(macs / moved, 1e-9)),
    )
    return np.concatenate((np.log2(np.maximum(np.stack(counts), 1.0)), np.stack(shares)))


def _middle(problem: ConvProblem, tile_r: Floats, tile_c: Floats) -> tuple[Floats, Floats]:
    """Rows and columns of the convolution's OFM under tiles of what is stored."""
    window = problem.window
    if window is None:
        return tile_r, tile_c
    rows = (tile_r - 1) * window.stride[0] + window.kernel[0]
    columns = (tile_c - 1) * window.stride[1] + window.kernel[1]
    return np.minimum(rows, problem.rows), np.minimum(columns, problem.columns)
