"""A block on a machine as the numbers that the search reads."""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tvm_npu.codegen.nmp.plan.block import BlockProblem
from tvm_npu.codegen.nmp.plan.input_residual import adds_what_it_reads
from tvm_npu.codegen.nmp.plan.kept_rows import least_tile_rows, may_keep_rows, shared_rows
from tvm_npu.codegen.nmp.plan.mac_time import ROW_INSTRUCTIONS, late_cycles, step_cycles
from tvm_npu.codegen.nmp.plan.traffic import is_flat_in
from tvm_npu.codegen.plan.limits import TileLimits
from tvm_npu.codegen.plan.problem import Window
from tvm_npu.sim import compiled
from tvm_npu.sim.compiled.arithmetic import ceil_div
from tvm_npu.sim.nmp.machine import NmpMachine

device = partial(compiled.device, references=False)
_UNLIMITED = 1 << 40


class Block(NamedTuple):
    """A block: its head's ``channels``, ``filters``, IFM and OFM (``rows``, ``columns``) and window
    over the IFM; what is stored, ``out_rows`` x ``out_columns`` of ``point_filters`` channels; and
    the window behind, if it ``has_window``. ``taps`` are a filter's for a channel with its twin's.
    ``shared`` rows may be kept under windows (0: none may), in tiles of ``least_rows`` or more;
    ``takes``: a residual may come from IN tiles, ``carried`` rows of it from the tile above where
    rows are kept."""

    channels: int
    filters: int
    rows: int
    columns: int
    in_rows: int
    in_columns: int
    kernel: int
    taps: int
    stride_rows: int
    stride_columns: int
    span_rows: int
    span_columns: int
    padding_rows: int
    padding_columns: int
    linear_in: int
    twin: int
    has_window: int
    kernel_rows: int
    kernel_columns: int
    step_rows: int
    step_columns: int
    window_rows: int
    window_columns: int
    has_kernels: int
    shared: int
    least_rows: int
    out_rows: int
    out_columns: int
    point_filters: int
    residual: int
    takes: int
    carried: int
    element_bytes: int


class Machine(NamedTuple):
    """Cycles: of an engine for a transfer, a burst of a box, one of a 1-D transfer, a byte, and
    what forwarding adds to a transfer; of the DRAM for a burst and a byte; of the ring for a byte;
    of a MAC unit for a beat and an operation; of a core for a ``step`` with one buffer, with two
    under OS, under WS and where products come first, for loads that come ``late`` then (over the
    ring), for a ``row`` of a tile. ``rate``: elements a beat; bytes of a burst and of memories;
    limits of tiles."""

    tles: int
    tlts: int
    ports: int
    transfer: float
    burst: float
    linear_burst: float
    byte: float
    hop: float
    dram_burst: float
    dram_byte: float
    ring_byte: float
    beat: float
    operation: float
    step: float
    ahead: float
    ahead_ws: float
    first: float
    late: float
    late_ring: float
    row: float
    rate: int
    burst_bytes: int
    mb0: int
    mb1: int
    mb2: int
    bias: int
    most_m: int
    most_n: int


def block_numbers(problem: BlockProblem) -> Block:
    head = problem.head
    window = head.window or Window(head.rows, head.columns, (1, 1), (1, 1), (0, 0), False)
    kept = shared_rows(head) if may_keep_rows(head) else 0
    return Block(
        head.channels, head.filters, head.rows, head.columns, head.in_rows, head.in_columns,
        head.kernel[0] * head.kernel[1], head.taps, *head.stride,
        head.in_tile_rows(1), head.in_tile_columns(1), head.padding[0], head.padding[1],
        int(is_flat_in(head) or not any(head.padding)), int(head.has_twin),
        int(head.window is not None), *window.kernel, *window.stride, *window.padding[:2],
        int(window.has_weights), kept, least_tile_rows(head), head.out_rows, head.out_columns,
        problem.filters, int(problem.has_residual), int(adds_what_it_reads(problem)),
        kept - window.padding[0], problem.element_bytes,
    )  # fmt: skip


def machine_numbers(machine: NmpMachine, element_bytes: int, limits: TileLimits) -> Machine:
    dme, dram, mac, memories = machine.dme, machine.dram, machine.mac, machine.memories
    assert machine.ring is not None
    tles, one = machine.cores.tles, machine.cores.instruction_cycles
    return Machine(
        tles, machine.cores.tlts_per_tle, memories.ports,
        float(dme.setup_cycles), float(dme.burst_cycles), float(dme.linear_cycles),
        1.0 / dme.bytes_per_cycle, machine.ring.hop_cycles * (tles - 1.0),
        float(dram.cas_cycles), 1.0 / dram.bytes_per_cycle, 1.0 / machine.ring.bytes_per_cycle,
        1.0 / mac.efficiency, float(mac.setup_cycles),
        step_cycles(machine), step_cycles(machine, 2), step_cycles(machine, 2, True),
        step_cycles(machine, 2, macs_first=True),
        late_cycles(machine, False), late_cycles(machine, True),
        float(ROW_INSTRUCTIONS * one),
        machine.macs_per_cycle(element_bytes), dram.burst_bytes,
        memories.mb0_bytes, memories.mb1_bytes, memories.mb2_bytes, memories.bias_bytes,
        limits.max_tile_m or _UNLIMITED, limits.max_tile_n or _UNLIMITED,
    )  # fmt: skip


class Spread(NamedTuple):
    """Slices over TLEs, parts over TLTs, what a TLT has at most of rows and columns, its filters of
    the head, and the most of the pointwise convolution. TLEs that share tiles use the rings."""

    row_slices: int
    column_slices: int
    filter_slices: int
    row_parts: int
    column_parts: int
    filter_parts: int
    rows: int
    columns: int
    filters: int
    point_filters: int


SPREAD_WIDTH = 10


@device
def spread_of(row):
    return Spread(
        row[0], row[1], row[2], row[3], row[4], row[5], row[6], row[7], row[8], row[9]
    )  # fmt: skip


@device
def engine(machine, rivals, in_step, transfers, boxes, linear, volume):
    """`Traffic.engine_cycles`, but for what rings add: ``boxes`` and ``linear`` are bursts."""
    setup = transfers * machine.transfer
    alone = boxes * machine.burst + linear * machine.linear_burst + volume * machine.byte
    shared = rivals * ((boxes + linear) * machine.dram_burst + volume * machine.dram_byte)
    return setup + max(alone, shared - (0.0 if in_step else setup))


@device
def passed_through(machine, times, elements):
    """`mac_time.pass_cycles`."""
    if times * elements == 0:
        return 0.0
    return times * ceil_div(elements, machine.rate) * machine.beat + machine.operation


def as_rows(spreads: list[Spread]) -> NDArray[np.int64]:
    return np.array(spreads, np.int64).reshape(-1, SPREAD_WIDTH)
