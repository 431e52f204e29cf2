"""Plans for the layers that are not convolutions: pooling and padding, and elementwise ones.

Both spread over all cores of the machine, core ``tle * tlts_per_tle + tlt``; every core loads for
itself. Times are the cost model's of `cost`, ragged edges rounded up.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import prod
from typing import Literal

from tvm_npu.codegen.graph import Shape, chw
from tvm_npu.codegen.nmp.plan.tables import table_bytes
from tvm_npu.codegen.nmp.plan.traffic import (
    NO_TRAFFIC,
    Traffic,
    chip_transfer,
    flat_transfer,
    linear_transfer,
    map_transfer,
)
from tvm_npu.codegen.ops import (
    FixedElementwise,
    FixedMaxFeatureMap,
    FixedMaximum,
    FixedPad,
    FixedPool,
    FixedTable,
)
from tvm_npu.codegen.plan.limits import NO_LIMITS, TileLimits
from tvm_npu.codegen.plan.problem import Infeasible, tile_sizes
from tvm_npu.sim.arithmetic import aligned
from tvm_npu.sim.nmp.machine import NmpMachine

Maps = Literal["boxes", "rows", "bordered"]


@dataclass(frozen=True)
class WindowProblem:
    """A layer whose every output channel comes from one input channel through a window; a pad
    or a crop is a 1x1 window. ``rows`` and ``columns`` are the output's."""

    channels: int
    rows: int
    columns: int
    in_rows: int
    in_columns: int
    kernel: tuple[int, int]
    stride: tuple[int, int]
    element_bytes: int
    channel_operand: bool = False
    """Whether a second operand has one element for each channel."""
    padding: tuple[int, int] | None = None
    """Rows and columns in front of the tensor that the first window of a pool sees; None for what
    is no pool."""

    def in_tile_rows(self, tile_rows: int) -> int:
        return (tile_rows - 1) * self.stride[0] + self.kernel[0]

    def in_tile_columns(self, tile_columns: int) -> int:
        return (tile_columns - 1) * self.stride[1] + self.kernel[1]


@dataclass(frozen=True)
class WindowPlan:
    """Output rows in ``row_slices`` and channels in ``channel_slices``, both dealt by
    `problem.share`; core i works on row slice i // channel_slices and channel slice
    i % channel_slices (cores from row_slices * channel_slices on are idle) and walks its part in
    tiles [tile_channels, tile_r, tile_c]: IN fits MB0, OUT fits MB2.

    ``maps``, with tiles of full width: "boxes" are 3-D transfers; "rows" whole rows of both
    tensors as 1-D transfers, where no window sees anything outside of the input; "bordered"
    likewise, but the rows of the input go from MB0 through the MAC unit to MB2, behind the OUT
    tile, and from there with a border over the TLE's ring back to MB0."""

    row_slices: int
    channel_slices: int
    tile_channels: int
    tile_r: int
    tile_c: int
    cycles: float = 0.0
    maps: Maps = "boxes"


@dataclass(frozen=True)
class FlatProblem:
    """An elementwise layer of ``operands`` (1 or 2) tensors of ``elements`` each, with or without a
    table."""

    elements: int
    operands: int
    element_bytes: int
    has_table: bool = False
    out_bytes: int | None = None
    """Of an element of the result, where it is another than those of the operands."""

    @property
    def most_bytes(self) -> int:
        """Of an element, operand or result."""
        return max(self.element_bytes, self.out_bytes or 0)


@dataclass(frozen=True)
class FlatPlan:
    """Core i works on elements [i * core_elements, (i + 1) * core_elements), cut off at the end
    of the tensor (late cores may have nothing), in tiles of ``tile_elements``. The operands fit
    MB0 and MB1, the result MB2."""

    core_elements: int
    tile_elements: int
    cycles: float = 0.0


def window_problem(
    layer: FixedPool | FixedPad, in_shape: Shape, out_shape: Shape, element_bytes: int
) -> WindowProblem:
    """What `plan_window` is asked for a pool, or for a pad (a 1x1 window)."""
    channels, rows, columns = chw(out_shape)
    _, in_rows, in_columns = chw(in_shape)
    kernel, padding = (1, 1), None
    if isinstance(layer, FixedPool):
        kernel, padding = layer.kernel, (layer.padding[0], layer.padding[1])
    return WindowProblem(
        channels, rows, columns, in_rows, in_columns, kernel, layer.stride, element_bytes,
        padding=padding,
    )  # fmt: skip


def broadcast_problem(out_shape: Shape, element_bytes: int) -> WindowProblem:
    """What `plan_window` is asked for a `FixedBroadcast` layer: 1x1 windows."""
    channels, rows, columns = chw(out_shape)
    return WindowProblem(
        channels, rows, columns, rows, columns, (1, 1), (1, 1), element_bytes, True
    )


FlatLayer = FixedElementwise | FixedMaximum | FixedMaxFeatureMap | FixedTable


def flat_problem(layer: FlatLayer, shape: Shape, element_bytes: int) -> FlatProblem:
    """A max feature map has the halves of its one input as operands."""
    operands = 2 if isinstance(layer, FixedMaxFeatureMap) else len(layer.inputs)
    has_table = layer.table is not None
    return FlatProblem(prod(shape), operands, element_bytes, has_table, layer.out_bytes)


def plan_window(
    problem: WindowProblem,
    machine: NmpMachine,
    limits: TileLimits = NO_LIMITS,
    linear_maps: bool = False,
) -> WindowPlan | Infeasible:
    """The plan of least predicted time among all row slices (the other cores go to channels),
    T_R and, only where no tile of full width fits, T_C; with ``linear_maps`` not in boxes alone.
    Ties: more busy cores, then fewer row
    slices, then the larger tile. ``limits`` make its tiles smaller afterwards."""
    size = problem.element_bytes
    least_in = problem.kernel[0] * problem.kernel[1] * size
    memories = machine.memories
    if least_in > memories.mb0_bytes:
        return Infeasible(
            "MB0",
            least_in,
            memories.mb0_bytes,
            f"smallest IN tile (one window of {problem.kernel[0]}x{problem.kernel[1]})",
            "use a smaller window, or raise memories.mb0_bytes",
        )
    if size > memories.mb2_bytes:
        return Infeasible(
            "MB2",
            size,
            memories.mb2_bytes,
            "smallest OUT tile (one element)",
            "raise memories.mb2_bytes",
        )

    def order(plan: WindowPlan) -> tuple[float, int, int, int, int]:
        busy = plan.row_slices * plan.channel_slices
        return (plan.cycles, -busy, plan.row_slices, -plan.tile_c, -plan.tile_r)

    best = min(_window_candidates(problem, machine, linear_maps), key=order)
    narrowest = limits.max_tile_c or best.tile_c
    return replace(
        best,
        maps=best.maps if narrowest >= best.tile_c else "boxes",
        tile_channels=min(best.tile_channels, limits.max_tile_m or best.tile_channels),
        tile_r=min(best.tile_r, limits.max_tile_r or best.tile_r),
        tile_c=min(best.tile_c, narrowest),
    )


def is_run(problem: WindowProblem, tile: tuple[int, int, int]) -> bool:
    """Whether a tile (channels, rows, columns) of a `FixedBroadcast` layer is a run of memory:
    whole planes, or rows of one."""
    whole_rows = problem.channel_operand and tile[2] == problem.columns
    return whole_rows and (tile[0] == 1 or tile[1] == problem.rows)


def plan_flat(problem: FlatProblem, machine: NmpMachine) -> FlatPlan | Infeasible:
    """Contiguous runs a core in whole bursts, in as few, nearly equal tiles as fit."""
    memories = machine.memories
    needed = table_bytes(problem.element_bytes) if problem.has_table else 0
    if needed > memories.bias_bytes:
        remedy = "leave the function to the CPU, or raise memories.bias_bytes"
        return Infeasible("the bias buffer", needed, memories.bias_bytes, "a table", remedy)
    buffers = [memories.mb0_bytes, memories.mb2_bytes]
    if problem.operands > 1:
        buffers.append(memories.mb1_bytes)
    size = problem.most_bytes
    burst = max(1, machine.dram.burst_bytes // problem.element_bytes)
    core = aligned(-(-problem.elements // machine.core_count), burst)
    most = min(buffers) // size
    if most > burst:
        most -= most % burst
    tile = min(most, aligned(-(-core // -(-core // most)), burst))

    one = flat_transfer(tile, size, machine.dram.burst_bytes)
    steps = -(-core // tile)
    active = min(-(-problem.elements // core), machine.cores.tlts_per_tle)
    rate = machine.macs_per_cycle(size)
    compute = -(-tile // rate) / machine.mac.efficiency + machine.mac.setup_cycles
    moved = one * (active * steps * (problem.operands + 1))
    everything = one * (-(-problem.elements // tile) * (problem.operands + 1))
    cycles = moved.engine_cycles(machine) + steps * compute
    return FlatPlan(core, tile, max(cycles, everything.dram_cycles(machine)))


def linear_kinds(problem: WindowProblem, machine: NmpMachine) -> tuple[Maps, ...]:
    """How tiles of full width can move as whole rows; nothing for what is no pool."""
    if problem.padding is None:
        return ()
    needed = problem.in_tile_rows(problem.rows), problem.in_tile_columns(problem.columns)
    is_inside = needed[0] <= problem.in_rows and needed[1] <= problem.in_columns
    if is_inside and problem.padding == (0, 0):
        return ("rows",)
    return () if machine.ring is None else ("bordered",)


def in_tile_extents(problem: WindowProblem, maps: Maps, tile: tuple[int, int]) -> tuple[int, int]:
    """Rows and columns of an IN tile in MB0 under an OUT tile of ``tile`` rows and columns."""
    rows, columns = problem.in_tile_rows(tile[0]), problem.in_tile_columns(tile[1])
    return rows, problem.in_columns if maps == "rows" else columns


def _window_candidates(
    problem: WindowProblem, machine: NmpMachine, linear_maps: bool
) -> Iterator[WindowPlan]:
    yield from _candidates_with(problem, machine, "boxes")
    if linear_maps:
        for maps in linear_kinds(problem, machine):
            yield from _candidates_with(problem, machine, maps)


def _candidates_with(
    problem: WindowProblem, machine: NmpMachine, maps: Maps
) -> Iterator[WindowPlan]:
    widths = [problem.columns]
    if maps == "boxes" and _most_channels(problem, machine, 1, problem.columns, maps) == 0:
        widths = _narrow_widths(problem)
    for row_slices in range(1, min(problem.rows, machine.core_count) + 1):
        channel_slices = min(problem.channels, machine.core_count // row_slices)
        rows = -(-problem.rows // row_slices)
        channels = -(-problem.channels // channel_slices)
        for tile_c in widths:
            for tile_r in tile_sizes(rows):
                most = min(channels, _most_channels(problem, machine, tile_r, tile_c, maps))
                if most == 0:
                    break
                whole = -(-channels // -(-channels // most))
                for tile_channels in {whole, 1} if problem.channel_operand else (whole,):
                    yield WindowPlan(
                        row_slices,
                        channel_slices,
                        tile_channels,
                        tile_r,
                        tile_c,
                        _window_cycles(
                            problem,
                            machine,
                            (row_slices * channel_slices, rows, channels),
                            (tile_channels, tile_r, tile_c),
                            maps,
                        ),
                        maps,
                    )


def _rows_moved(
    problem: WindowProblem, tile: tuple[int, int, int], rows: tuple[int, int], burst_bytes: int
) -> Traffic:
    """Of a tile: whole rows of IN and of OUT, so many of each, a segment a channel or one in all
    for whole planes."""
    total, size = NO_TRAFFIC, problem.element_bytes
    tensors = (problem.in_rows, problem.in_columns), (problem.rows, problem.columns)
    for (all_rows, columns), count in zip(tensors, rows, strict=True):
        plane_bytes = count * columns * size
        if count == all_rows:
            total += linear_transfer(1, tile[0] * plane_bytes, burst_bytes)
        else:
            total += linear_transfer(tile[0], plane_bytes, burst_bytes)
    return total


def _narrow_widths(problem: WindowProblem) -> list[int]:
    """T_C worth a look: the smallest for each number of tiles, and the smallest that reads the
    IFM at full width, which makes one segment of an IN tile's rows."""
    covers = -(-(problem.in_columns - problem.kernel[1]) // problem.stride[1]) + 1
    widths = set(tile_sizes(problem.columns)) | {max(1, min(covers, problem.columns))}
    return sorted(widths)


def mb0_channel_bytes(problem: WindowProblem, maps: Maps, tile_r: int, tile_c: int) -> int:
    """What a channel of a tile takes of MB0: IN, which may be narrower than the whole rows that
    come before it gets its border."""
    in_rows, in_columns = in_tile_extents(problem, maps, (tile_r, tile_c))
    elements = in_rows * in_columns
    if maps == "bordered":
        elements = max(elements, _bordered_elements(problem, tile_r))
    return elements * problem.element_bytes


def mb2_channel_bytes(problem: WindowProblem, maps: Maps, tile_r: int, tile_c: int) -> int:
    """What a channel of a tile takes of MB2: OUT, and IN on its way."""
    elements = tile_r * tile_c
    if maps == "bordered":
        elements += _bordered_elements(problem, tile_r)
    return elements * problem.element_bytes


def _bordered_elements(problem: WindowProblem, tile_r: int) -> int:
    """Of a channel: the whole rows that get a border."""
    return min(problem.in_tile_rows(tile_r), problem.in_rows) * problem.in_columns


def _most_channels(
    problem: WindowProblem, machine: NmpMachine, tile_r: int, tile_c: int, maps: Maps
) -> int:
    """The most channels of a tile that MB0 and MB2 hold."""
    size, memories = problem.element_bytes, machine.memories
    most = min(
        memories.mb0_bytes // mb0_channel_bytes(problem, maps, tile_r, tile_c),
        memories.mb2_bytes // mb2_channel_bytes(problem, maps, tile_r, tile_c),
    )
    return min(most, memories.mb1_bytes // size) if problem.channel_operand else most


def _window_cycles(
    problem: WindowProblem,
    machine: NmpMachine,
    part: tuple[int, int, int],
    tile: tuple[int, int, int],
    maps: Maps,
) -> float:
    """Time of the busiest TLE or of the DRAM; ``part`` is (busy cores, rows, channels of one),
    ``tile`` (channels, rows, columns). Channels are counted exactly, rows and columns rounded
    up."""
    cores, rows, channels = part
    tile_channels, tile_r, tile_c = tile
    size, burst_bytes = problem.element_bytes, machine.dram.burst_bytes
    places = -(-rows // tile_r) * -(-problem.columns // tile_c)
    steps = places * -(-channels // tile_channels)
    in_rows = min(problem.in_tile_rows(tile_r), problem.in_rows)
    in_columns = min(problem.in_tile_columns(tile_c), problem.in_columns)
    one = map_transfer(1, in_rows, in_columns, problem.in_columns, size, burst_bytes)
    one += map_transfer(1, tile_r, tile_c, problem.columns, size, burst_bytes)
    core = Traffic(2 * steps, one.bursts * places * channels, one.bytes * places * channels)
    if maps != "boxes":
        core = _rows_moved(problem, tile, (in_rows, tile_r), burst_bytes) * steps
    if maps == "bordered":
        box_rows, box_columns = in_tile_extents(problem, maps, (tile_r, tile_c))
        core += chip_transfer(tile_channels * box_rows * box_columns, size) * steps
    if problem.channel_operand:
        if is_run(problem, tile):
            core = flat_transfer(tile_channels * tile_r * tile_c, size, burst_bytes) * (2 * steps)
        core += flat_transfer(tile_channels, size, burst_bytes) * steps
    window = tile_r * tile_c * problem.kernel[0] * problem.kernel[1]
    units = -(-window // machine.macs_per_cycle(size)) * channels * places
    compute = units / machine.mac.efficiency + steps * machine.mac.setup_cycles
    if maps == "bordered":
        copied = -(-in_rows * problem.in_columns // machine.macs_per_cycle(size)) * channels
        compute += copied * places / machine.mac.efficiency + steps * machine.mac.setup_cycles
    moved = (core * min(cores, machine.cores.tlts_per_tle)).engine_cycles(machine)
    # TLTs compute under each other's transfers; 3-D ones leave the last of them far behind.
    own = moved + compute if maps == "boxes" else max(moved + compute / steps, compute)
    return max(own, (core * cores).dram_cycles(machine))
