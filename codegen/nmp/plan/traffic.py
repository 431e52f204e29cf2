"""What crosses between DRAM and scratchpads: transfers, their bursts and bytes, and their time.

A transfer on the DMA engine of a TLE takes

    setup + bursts * burst_cycles + bytes / bytes_per_cycle

where every contiguous DRAM segment of s bytes takes ceil(s / burst_bytes) bursts (TSO, Algorithm
4). Feature maps move as 3-D boxes; weights, biases, vectors and runs of whole planes are 1-D
transfers, of which a burst costs linear_burst_cycles instead. A transfer that other TLEs receive,
too, passes the Global Ringbus once, as a broadcast, and takes hop_cycles for each TLE that it
passes longer.

The DRAM serves the engines burst by burst, so transfers take no less than it needs for the bursts
of all engines that want some at the same time (short bursts feel this first):

    max(setup + bursts * burst_cycles + bytes / bytes_per_cycle,
        rivals * (bursts * cas_cycles + bytes / dram.bytes_per_cycle))

with `rivals` of them: while one engine sets up a transfer, the DRAM serves others. With two
buffers, where the engines of all TLEs begin a step at about the same time, the setup comes on top
of either (``in_step``). Applied to the sum of many transfers this is a lower bound of the sum, and
a good one for those of one stream, which are alike.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache

from tvm_npu.codegen.nmp.plan.conv_plan import ConvPlan
from tvm_npu.codegen.plan.problem import ConvProblem
from tvm_npu.sim.machine_parts import BIAS_BYTES
from tvm_npu.sim.nmp.machine import NmpMachine


@dataclass(frozen=True)
class Traffic:
    """Transfers between DRAM and scratchpads: how many, their bursts and their bytes; how many of
    the bursts belong to 1-D transfers; how many of the transfers, and of their bytes, go to other
    TLEs as well. ``chip_bytes`` are of transfers that stay on a TLE's ring. ``chained`` ones
    follow another of the same tile."""

    transfers: int = 0
    bursts: int = 0
    bytes: int = 0
    forwards: int = 0
    ring_bytes: int = 0
    linear_bursts: int = 0
    chip_bytes: int = 0
    chained: int = 0

    def __add__(self, other: Traffic) -> Traffic:
        if self is NO_TRAFFIC or other is NO_TRAFFIC:
            return other if self is NO_TRAFFIC else self
        return Traffic(
            self.transfers + other.transfers,
            self.bursts + other.bursts,
            self.bytes + other.bytes,
            self.forwards + other.forwards,
            self.ring_bytes + other.ring_bytes,
            self.linear_bursts + other.linear_bursts,
            self.chip_bytes + other.chip_bytes,
            self.chained + other.chained,
        )

    def __mul__(self, times: int) -> Traffic:
        if times == 1:
            return self
        return Traffic(
            self.transfers * times,
            self.bursts * times,
            self.bytes * times,
            self.forwards * times,
            self.ring_bytes * times,
            self.linear_bursts * times,
            self.chip_bytes * times,
            self.chained * times,
        )

    def forwarded(self) -> Traffic:
        """The same, received by other TLEs, too."""
        return replace(self, forwards=self.transfers, ring_bytes=self.bytes)

    def engine_cycles(
        self, machine: NmpMachine, rivals: float = 1.0, in_step: bool = False
    ) -> float:
        """Cycles of one DMA engine that does all of it, one transfer after another, while
        ``rivals`` engines, this one included, want the DRAM, ``in_step`` or not."""
        dme = machine.dme
        setup = self.transfers * dme.setup_cycles
        alone = (
            (self.bursts - self.linear_bursts) * dme.burst_cycles
            + self.linear_bursts * dme.linear_cycles
            + self.bytes / dme.bytes_per_cycle
        )
        shared = rivals * self.dram_cycles(machine)
        # In a step all engines begin at once: only first transfers of tiles are set up at one time.
        beside = self.chained * dme.setup_cycles if in_step else setup
        cycles = setup + max(alone, shared - beside)
        if machine.ring is not None:
            cycles += self.forwards * machine.ring.hop_cycles * (machine.cores.tles - 1)
            cycles += self.chip_bytes / machine.ring.bytes_per_cycle
        return cycles

    def dram_cycles(self, machine: NmpMachine) -> float:
        """Cycles that the DRAM itself is occupied."""
        return self.bursts * machine.dram.cas_cycles + self.bytes / machine.dram.bytes_per_cycle

    def ring_cycles(self, machine: NmpMachine) -> float:
        """Cycles that the Global Ringbus is occupied."""
        if machine.ring is None:
            return 0.0
        return self.ring_bytes / machine.ring.bytes_per_cycle


NO_TRAFFIC = Traffic()


def rivals(plan: ConvPlan) -> int:
    """How many engines want the DRAM at the same time: those of all TLEs, which have equal work and
    so keep in step."""
    return plan.row_slices * plan.column_slices * plan.filter_slices


def least_bias_bytes(filters: int, machine: NmpMachine) -> int:
    """What the biases of a layer of ``filters`` filters (in a group) take of a TLT's bias buffer
    where all TLTs of all TLEs share them; no plan needs less."""
    tle_filters = -(-filters // machine.cores.tles)
    return -(-tle_filters // machine.cores.tlts_per_tle) * BIAS_BYTES


@lru_cache(maxsize=1 << 14)
def transfer(segments: int, segment_bytes: int, burst_bytes: int) -> Traffic:
    """One transfer of ``segments`` contiguous pieces; nothing at all when it is empty."""
    if segments * segment_bytes == 0:
        return NO_TRAFFIC
    return Traffic(1, segments * -(-segment_bytes // burst_bytes), segments * segment_bytes)


@lru_cache(maxsize=1 << 14)
def linear_transfer(segments: int, segment_bytes: int, burst_bytes: int) -> Traffic:
    """`transfer` as a 1-D one."""
    if segments * segment_bytes == 0:
        return NO_TRAFFIC
    bursts = segments * -(-segment_bytes // burst_bytes)
    return Traffic(1, bursts, segments * segment_bytes, linear_bursts=bursts)


def map_transfer(
    channels: int, rows: int, columns: int, width: int, element_bytes: int, burst_bytes: int
) -> Traffic:
    """One tile [channels, rows, columns] of a feature map that is ``width`` elements wide: the
    rows of a full-width tile are one segment a channel, else every row is one."""
    if columns == width:
        return transfer(channels, rows * columns * element_bytes, burst_bytes)
    return transfer(channels * rows, columns * element_bytes, burst_bytes)


def flat_transfer(elements: int, element_bytes: int, burst_bytes: int) -> Traffic:
    """One contiguous run."""
    return linear_transfer(1, elements * element_bytes, burst_bytes)


def is_flat_in(problem: ConvProblem) -> bool:
    """IN tiles are vectors over the channels: a 1x1 IFM under one 1x1 kernel."""
    span = problem.in_tile_rows(1) * problem.in_tile_columns(1)
    extent = problem.in_rows * problem.in_columns * problem.rows * problem.columns
    return extent * span == 1


def is_flat_out(problem: ConvProblem) -> bool:
    """OUT tiles are vectors over the filters."""
    return problem.out_rows * problem.out_columns == 1


def in_transfer(
    problem: ConvProblem,
    channels: int,
    rows: int,
    columns: int,
    burst_bytes: int,
    linear_maps: bool = False,
    by_channels: bool = False,
) -> Traffic:
    """One IN tile of ``channels`` x the ``rows`` x ``columns`` of it that lie in the IFM.
    ``linear_maps``: tiles of full width of an IFM without padding are 1-D transfers;
    ``by_channels``: others are one for each channel (`ConvPlan.in_by_channels`)."""
    if is_flat_in(problem):
        return flat_transfer(channels * rows * columns, problem.element_bytes, burst_bytes)
    tensor = (problem.in_rows, problem.in_columns)
    if linear_maps and columns == problem.in_columns and not any(problem.padding):
        return _linear_map(channels, rows, tensor, problem.element_bytes, burst_bytes)
    if by_channels:
        row_bytes = columns * problem.element_bytes
        if rows == problem.in_rows:
            return linear_transfer(channels * rows, row_bytes, burst_bytes)
        each = linear_transfer(rows, row_bytes, burst_bytes) * channels
        return replace(each, chained=channels - 1) if channels and each.bytes else each
    return map_transfer(
        channels, rows, columns, problem.in_columns, problem.element_bytes, burst_bytes
    )


def _linear_map(
    channels: int, rows: int, tensor: tuple[int, int], element_bytes: int, burst_bytes: int
) -> Traffic:
    """One tile of full width as a 1-D transfer: a segment a channel, one for whole planes."""
    channel_bytes = rows * tensor[1] * element_bytes
    if rows == tensor[0]:
        return linear_transfer(1, channels * channel_bytes, burst_bytes)
    return linear_transfer(channels, channel_bytes, burst_bytes)


def weight_transfer(
    problem: ConvProblem, filters: int, channels: int, burst_bytes: int, tiled: bool = False
) -> Traffic:
    """One W tile: a segment a filter, or one in all when it has all channels of its filters or
    the weights lie in DRAM tile by tile (``tiled``)."""
    filter_bytes = channels * problem.taps * problem.element_bytes
    if tiled or channels == problem.channels // problem.groups:
        return linear_transfer(1, filters * filter_bytes, burst_bytes)
    return linear_transfer(filters, filter_bytes, burst_bytes)


def out_transfer(
    problem: ConvProblem,
    filters: int,
    rows: int,
    columns: int,
    burst_bytes: int,
    linear_maps: bool = False,
) -> Traffic:
    """One OUT (or residual) tile. ``linear_maps``: tiles of full width are 1-D transfers."""
    if is_flat_out(problem):
        return flat_transfer(filters * rows * columns, problem.element_bytes, burst_bytes)
    if linear_maps and columns == problem.out_columns:
        tensor = (problem.out_rows, problem.out_columns)
        return _linear_map(filters, rows, tensor, problem.element_bytes, burst_bytes)
    return map_transfer(
        filters, rows, columns, problem.out_columns, problem.element_bytes, burst_bytes
    )


def chip_transfer(elements: int, element_bytes: int) -> Traffic:
    """One transfer from MB2 to MB0 of a TLT."""
    return Traffic(1, chip_bytes=elements * element_bytes) if elements else NO_TRAFFIC
