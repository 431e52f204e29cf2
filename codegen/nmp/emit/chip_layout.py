"""Where a multicast convolution keeps its tiles in MB0, MB1 and MB2, and whether they fit."""

from __future__ import annotations

from dataclasses import dataclass

from tvm_npu.codegen.errors import EmitError
from tvm_npu.codegen.nmp.emit.conv_tiles import ConvTiles
from tvm_npu.codegen.nmp.emit.layer import require_fit
from tvm_npu.codegen.nmp.plan.kept_rows import in_room
from tvm_npu.sim.machine_parts import BIAS_BYTES
from tvm_npu.sim.nmp.machine import NmpMachine


@dataclass(frozen=True)
class Halves:
    """How many tiles of each kind lie side by side: 2 take turns where there are two buffers and
    more than one tile."""

    in_tiles: int
    w_tiles: int
    out_tiles: int


@dataclass(frozen=True)
class ChipLayout:
    """``in_half_bytes``, ``w_half_bytes`` and ``out_half_elements`` lead from the first half of a
    buffer to the second. At byte ``second_offset`` of MB0 lies the residual tile, or what a window
    behind the convolution reads; ``middle_elements`` of MB2 in front of the OUT tile are the tile
    of the convolution's OFM under that window, whose kernels begin at byte ``window_w_offset`` of
    MB1."""

    halves: Halves
    in_half_bytes: int
    w_half_bytes: int
    out_half_elements: int
    second_offset: int
    middle_elements: int
    window_w_offset: int


def halves_of(tiles: ConvTiles) -> Halves:
    """By how often each kind of tile is loaded or stored. Places in MB2 are counted in elements, so
    that those of accumulators and of results of another width would not lie side by side."""
    plan, most = tiles.plan, tiles.most
    filters, channels, rows, columns = tiles.largest
    turns = [
        -(-extent // tile)
        for extent, tile in (
            (most.filters, filters), (tiles.channels, channels),
            (most.rows, rows), (most.columns, columns),
        )
    ]  # fmt: skip
    places = turns[2] * turns[3]
    in_loads = places * turns[1] * (1 if plan.keeps_in else turns[0])
    w_loads = turns[0] * (1 if plan.schedule == "WS" else places * turns[1])
    uses = (in_loads, w_loads, places * turns[0])
    in_tiles, w_tiles, out_tiles = (min(plan.buffers, count) for count in uses)
    return Halves(in_tiles, w_tiles, out_tiles if tiles.out_size == tiles.size else 1)


def chip_layout(
    name: str, tiles: ConvTiles, machine: NmpMachine, keeps_second: bool = False
) -> ChipLayout:
    """The layout for the layer ``name``. EmitError where a tile is larger than its memory.
    ``keeps_second``: an OUT tile of another convolution of the same filters lies behind the IN
    tiles."""
    plan, problem, halves = tiles.plan, tiles.problem, halves_of(tiles)
    in_bytes, w_bytes, middle_bytes = tiles.tile_bytes()
    filters, _, rows, columns = tiles.largest
    out_bytes = filters * rows * columns * tiles.size
    mb0, mb1 = in_room(in_bytes, halves.in_tiles, tiles.guard_bytes), w_bytes * halves.w_tiles
    second_offset = mb0 if plan.buffers == 2 or plan.keeps_in or keeps_second else 0
    second_bytes = out_bytes if problem.has_residual or keeps_second else 0
    middle_elements = window_w_offset = 0
    biases = tiles.most.filters * BIAS_BYTES * (2 if keeps_second else 1)
    window = problem.window
    if window is not None:
        read = tiles.box_bytes * (filters + plan.keeps_rows) // filters
        second_bytes = max(second_bytes, read)
        middle_elements = middle_bytes // tiles.size
        window_w_offset = mb1
        if window.has_weights:
            mb1 += tiles.most.filters * window.kernel[0] * window.kernel[1] * tiles.size
            biases *= 2
    mb0 = max(mb0 + tiles.guard_bytes, second_offset + second_bytes)
    mb2 = out_bytes * halves.out_tiles + middle_elements * tiles.size
    twice = {1: "", 2: " (twice)"}
    require_fit(name, f"the IN tile{twice[halves.in_tiles]}", mb0, machine, "mb0")
    require_fit(name, f"the W tile{twice[halves.w_tiles]}", mb1, machine, "mb1")
    require_fit(name, f"the OUT tile{twice[halves.out_tiles]}", mb2, machine, "mb2")
    require_fit(name, "the biases of one TLT", biases, machine, "bias")
    return ChipLayout(
        halves, in_bytes + tiles.guard_bytes, w_bytes, out_bytes // tiles.size, second_offset,
        middle_elements, window_w_offset,
    )  # fmt: skip


def require_abilities(name: str, tiles: ConvTiles, machine: NmpMachine) -> None:
    """EmitError where the plan of the layer ``name`` needs what the machine, or the plan's own
    schedule, does not have."""
    plan = tiles.plan
    if plan.buffers == 2 and machine.memories.ports < 2:
        raise EmitError(
            f"layer {name!r}: the plan has 2 buffers, which takes memories.ports = 2; machine "
            f"{machine.name!r} has {machine.memories.ports}"
        )
    if (plan.ring_in or plan.ring_weights) and machine.ring is None:
        raise EmitError(
            f"layer {name!r}: the plan uses the ring buses; machine {machine.name!r} has no [ring]"
        )
    if plan.keeps_in and (plan.schedule != "OS" or tiles.largest[1] < tiles.channels):
        raise EmitError(
            f"layer {name!r}: keeps_in needs schedule OS and tile_n = {tiles.channels}; the plan "
            f"has {plan.schedule} and {plan.tile_n}"
        )
