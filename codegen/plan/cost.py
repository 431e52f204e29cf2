"""What a plan costs on a machine: DMA transfers, MAC time, and the sum of both over the cores.

The model knows no search. A transfer on the DMA engine of a TLE takes

    setup + bursts * burst_cycles + bytes / bytes_per_cycle

where every contiguous DRAM segment of s bytes takes ceil(s / burst_bytes) bursts (TSO, Algorithm
4). One TLE loads and computes in turn, the TLEs run side by side, and the DRAM that they share
bounds them all. `predict` counts a plan exactly: ragged edge tiles, clipping at the borders of
the IFM, and how filters are dealt to TLTs.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace

from tvm_npu.codegen.plan.problem import ConvPlan, ConvProblem, Prediction, share, slice_of
from tvm_npu.sim.machine import Machine

BIAS_BYTES = 4


@dataclass(frozen=True)
class Traffic:
    """Transfers between DRAM and scratchpads: how many, their bursts and their bytes."""

    transfers: int = 0
    bursts: int = 0
    bytes: int = 0

    def __add__(self, other: Traffic) -> Traffic:
        return Traffic(
            self.transfers + other.transfers, self.bursts + other.bursts, self.bytes + other.bytes
        )

    def __mul__(self, times: int) -> Traffic:
        return Traffic(self.transfers * times, self.bursts * times, self.bytes * times)

    def engine_cycles(self, machine: Machine) -> float:
        """Cycles of one DMA engine that does all of it, one transfer after another."""
        dme = machine.dme
        return (
            self.transfers * dme.setup_cycles
            + self.bursts * dme.burst_cycles
            + self.bytes / dme.bytes_per_cycle
        )

    def dram_cycles(self, machine: Machine) -> float:
        """Cycles that the DRAM itself is occupied."""
        return self.bursts * machine.dram.cas_cycles + self.bytes / machine.dram.bytes_per_cycle


NO_TRAFFIC = Traffic()


def transfer(segments: int, segment_bytes: int, burst_bytes: int) -> Traffic:
    """One transfer of ``segments`` contiguous pieces; nothing at all when it is empty."""
    if segments * segment_bytes == 0:
        return NO_TRAFFIC
    return Traffic(1, segments * -(-segment_bytes // burst_bytes), segments * segment_bytes)


def map_transfer(
    channels: int, rows: int, columns: int, width: int, element_bytes: int, burst_bytes: int
) -> Traffic:
    """One tile [channels, rows, columns] of a feature map that is ``width`` elements wide: the
    rows of a full-width tile are one segment a channel, else every row is one."""
    if columns == width:
        return transfer(channels, rows * columns * element_bytes, burst_bytes)
    return transfer(channels * rows, columns * element_bytes, burst_bytes)


def flat_transfer(elements: int, element_bytes: int, burst_bytes: int) -> Traffic:
    """One 1-D transfer."""
    return transfer(1, elements * element_bytes, burst_bytes)


def is_flat_in(problem: ConvProblem) -> bool:
    """IN tiles are vectors over the channels: a 1x1 IFM under one 1x1 window."""
    window = problem.in_tile_rows(1) * problem.in_tile_columns(1)
    return is_flat_out(problem) and problem.in_rows * problem.in_columns * window == 1


def is_flat_out(problem: ConvProblem) -> bool:
    """OUT tiles are vectors over the filters."""
    return problem.rows * problem.columns == 1


def in_transfer(
    problem: ConvProblem, channels: int, rows: int, columns: int, burst_bytes: int
) -> Traffic:
    """One IN tile of ``channels`` x the ``rows`` x ``columns`` of it that lie in the IFM."""
    if is_flat_in(problem):
        return flat_transfer(channels * rows * columns, problem.element_bytes, burst_bytes)
    return map_transfer(
        channels, rows, columns, problem.in_columns, problem.element_bytes, burst_bytes
    )


def weight_transfer(problem: ConvProblem, filters: int, channels: int, burst_bytes: int) -> Traffic:
    """One W tile: a segment a filter, or one in all when it has all channels of its filters."""
    kernel = problem.kernel[0] * problem.kernel[1]
    filter_bytes = channels * kernel * problem.element_bytes
    if channels == problem.channels // problem.groups:
        return transfer(1, filters * filter_bytes, burst_bytes)
    return transfer(filters, filter_bytes, burst_bytes)


def out_transfer(
    problem: ConvProblem, filters: int, rows: int, columns: int, burst_bytes: int
) -> Traffic:
    """One OUT (or residual) tile."""
    if is_flat_out(problem):
        return flat_transfer(filters, problem.element_bytes, burst_bytes)
    return map_transfer(filters, rows, columns, problem.columns, problem.element_bytes, burst_bytes)


def mac_cycles(
    problem: ConvProblem, filters: int, channels: int, rows: int, columns: int, machine: Machine
) -> float:
    """MAC time of one tile: TSO, Equation 7, at the reachable share of the peak rate."""
    if filters == 0:
        return 0.0
    rate = machine.macs_per_cycle(problem.element_bytes)
    if problem.is_dense:
        units = filters * -(-channels // rate)
    else:
        kernel = problem.kernel[0] * problem.kernel[1]
        units = channels * filters * -(-rows * columns * kernel // rate)
    return units / machine.mac.efficiency + machine.mac.setup_cycles


@dataclass(frozen=True)
class TleCost:
    """What one TLE does for a layer: traffic by stream and the cycles of its MAC steps."""

    inputs: Traffic = NO_TRAFFIC
    weights: Traffic = NO_TRAFFIC
    outputs: Traffic = NO_TRAFFIC
    mac_cycles: float = 0.0

    def load_cycles(self, machine: Machine) -> float:
        return (self.inputs + self.weights).engine_cycles(machine)

    def store_cycles(self, machine: Machine) -> float:
        return self.outputs.engine_cycles(machine)

    def cycles(self, machine: Machine) -> float:
        """No overlap of MACs with transfers inside a TLE."""
        return self.load_cycles(machine) + self.store_cycles(machine) + self.mac_cycles


AxisTiles = tuple[tuple[int, int, int], ...]
"""Distinct tiles along one axis: (OFM extent, IFM extent inside the tensor, how many)."""


def axis_tiles(
    begin: int, count: int, tile: int, stride: int, span: int, padding: int, in_extent: int
) -> AxisTiles:
    """The tiles of OFM positions ``begin`` to ``begin + count`` along one axis; ``span`` is the
    extent of the (dilated) window, ``padding`` the amount before the first element."""
    kinds: Counter[tuple[int, int]] = Counter()
    for start in range(begin, begin + count, tile):
        extent = min(tile, begin + count - start)
        low = start * stride - padding
        high = low + (extent - 1) * stride + span
        kinds[extent, max(0, min(high, in_extent) - max(low, 0))] += 1
    return tuple((extent, real, number) for (extent, real), number in kinds.items())


def channel_tiles(count: int, tile: int) -> tuple[tuple[int, int], ...]:
    """(extent, how many) of the tiles of a plain axis: full ones, then a ragged one."""
    full, rest = divmod(count, tile)
    return tuple(kind for kind in ((tile, full), (rest, 1 if rest else 0)) if kind[1])


def deal_tiles(
    count: int, parts: int, tile: int
) -> tuple[tuple[tuple[tuple[int, int], ...], int], ...]:
    """Steps of the TLTs of a TLE when ``count`` items are dealt to ``parts`` TLTs and each TLT
    walks its run in tiles: ((items, TLTs that have so many) ..., how many such steps)."""
    runs = Counter(share(count, parts, index)[1] for index in range(parts))
    steps: Counter[tuple[tuple[int, int], ...]] = Counter()
    for step in range(-(-max(runs) // tile)):
        sizes = ((min(tile, run - step * tile), tlts) for run, tlts in runs.items())
        steps[tuple((size, tlts) for size, tlts in sizes if size > 0)] += 1
    return tuple(steps.items())


def predict(problem: ConvProblem, plan: ConvPlan, machine: Machine) -> Prediction:
    """Exact count of the plan's transfers and MAC steps, and the time that follows.

    ``cycles`` is the slowest TLE's time or the DRAM's, whichever is longer; ``mac_cycles``,
    ``load_cycles`` and ``store_cycles`` are the slowest TLE's; the bytes are those that cross the
    DRAM bus for the whole layer (a multicast counts once; residual tiles count as input, biases
    as weights).
    """
    repeats = 1
    items = problem.filters
    if plan.mode == "grouped":
        items = problem.groups
    elif problem.groups > 1:
        repeats = problem.groups
        problem = one_group(problem)
        items = problem.filters
    columns = axis_tiles(
        0,
        problem.columns,
        plan.tile_c,
        problem.stride[1],
        problem.in_tile_columns(1),
        problem.padding[1],
        problem.in_columns,
    )
    costs: Counter[TleCost] = Counter()
    item_counts = Counter(
        slice_of(items, plan.filter_slices, index)[1] for index in range(plan.filter_slices)
    )
    for row_slice in range(plan.row_slices):
        begin, count = slice_of(problem.rows, plan.row_slices, row_slice)
        if count == 0:
            continue
        rows = axis_tiles(
            begin,
            count,
            plan.tile_r,
            problem.stride[0],
            problem.in_tile_rows(1),
            problem.padding[0],
            problem.in_rows,
        )
        for item_count, tles in item_counts.items():
            if item_count:
                walk = _grouped_cost if plan.mode == "grouped" else _multicast_cost
                costs[walk(problem, plan, machine, rows, columns, item_count)] += tles
    return _combine(costs, repeats, machine)


def one_group(problem: ConvProblem) -> ConvProblem:
    """One group of a grouped convolution as a convolution of its own."""
    return replace(
        problem,
        filters=problem.filters // problem.groups,
        channels=problem.channels // problem.groups,
        groups=1,
    )


def _combine(costs: Counter[TleCost], repeats: int, machine: Machine) -> Prediction:
    slowest = max(costs, key=lambda cost: cost.cycles(machine))
    inputs = weights = outputs = NO_TRAFFIC
    for cost, tles in costs.items():
        inputs += cost.inputs * (tles * repeats)
        weights += cost.weights * (tles * repeats)
        outputs += cost.outputs * (tles * repeats)
    dram_cycles = (inputs + weights + outputs).dram_cycles(machine)
    return Prediction(
        cycles=max(slowest.cycles(machine) * repeats, dram_cycles),
        mac_cycles=slowest.mac_cycles * repeats,
        load_cycles=slowest.load_cycles(machine) * repeats,
        store_cycles=slowest.store_cycles(machine) * repeats,
        in_bytes=inputs.bytes,
        weight_bytes=weights.bytes,
        out_bytes=outputs.bytes,
    )


def _bias_traffic(count: int, filters_per_item: int, machine: Machine) -> Traffic:
    """One 1-D load a TLT, of the biases of its filters."""
    total = NO_TRAFFIC
    for index in range(machine.cores.tlts_per_tle):
        run = share(count, machine.cores.tlts_per_tle, index)[1]
        total += flat_transfer(run * filters_per_item, BIAS_BYTES, machine.dram.burst_bytes)
    return total


def _multicast_cost(
    problem: ConvProblem,
    plan: ConvPlan,
    machine: Machine,
    rows: AxisTiles,
    columns: AxisTiles,
    filters: int,
) -> TleCost:
    burst_bytes = machine.dram.burst_bytes
    inputs = outputs = NO_TRAFFIC
    weights = _bias_traffic(filters, 1, machine)
    macs = 0.0
    channels = channel_tiles(problem.channels, plan.tile_n)
    positions = sum(r[2] for r in rows) * sum(c[2] for c in columns)
    for tiles, steps in deal_tiles(filters, machine.cores.tlts_per_tle, plan.tile_m):
        largest = max(size for size, _ in tiles)
        for size, tlts in tiles:
            if plan.schedule == "WS":
                one = weight_transfer(problem, size, problem.channels, burst_bytes)
                weights += one * (tlts * steps)
            else:
                for extent, number in channels:
                    one = weight_transfer(problem, size, extent, burst_bytes)
                    weights += one * (tlts * steps * number * positions)
        for tile_r, in_rows, row_number in rows:
            for tile_c, in_columns, column_number in columns:
                times = steps * row_number * column_number
                for extent, number in channels:
                    one = in_transfer(problem, extent, in_rows, in_columns, burst_bytes)
                    inputs += one * (times * number)
                    step = mac_cycles(problem, largest, extent, tile_r, tile_c, machine)
                    macs += times * number * step
                for size, tlts in tiles:
                    one = out_transfer(problem, size, tile_r, tile_c, burst_bytes)
                    outputs += one * (times * tlts)
    if problem.has_residual:
        inputs += outputs
    return TleCost(inputs, weights, outputs, macs)


def _grouped_cost(
    problem: ConvProblem,
    plan: ConvPlan,
    machine: Machine,
    rows: AxisTiles,
    columns: AxisTiles,
    groups: int,
) -> TleCost:
    burst_bytes = machine.dram.burst_bytes
    filters_each = problem.filters // problem.groups
    channels_each = problem.channels // problem.groups
    inputs = outputs = NO_TRAFFIC
    weights = _bias_traffic(groups, filters_each, machine)
    macs = 0.0
    positions = sum(r[2] for r in rows) * sum(c[2] for c in columns)
    loads = 1 if plan.schedule == "WS" else positions
    deals = deal_tiles(groups, machine.cores.tlts_per_tle, plan.tile_m // filters_each)
    for tiles, steps in deals:
        largest = max(size for size, _ in tiles) * filters_each
        for size, tlts in tiles:
            one = weight_transfer(problem, size * filters_each, channels_each, burst_bytes)
            weights += one * (tlts * steps * loads)
        for tile_r, in_rows, row_number in rows:
            for tile_c, in_columns, column_number in columns:
                times = steps * row_number * column_number
                step = mac_cycles(problem, largest, channels_each, tile_r, tile_c, machine)
                macs += times * step
                for size, tlts in tiles:
                    taken = size * channels_each
                    one = in_transfer(problem, taken, in_rows, in_columns, burst_bytes)
                    inputs += one * (times * tlts)
                    made = size * filters_each
                    one = out_transfer(problem, made, tile_r, tile_c, burst_bytes)
                    outputs += one * (times * tlts)
    if problem.has_residual:
        inputs += outputs
    return TleCost(inputs, weights, outputs, macs)
