"""What the DRAM needs for all TLEs at least, in numba: a bound of the search of `exact`.

What the TLEs of a filter slice move is linear in the counts of their places, so these are summed
once a place (`sum_places`), and what differs by position on a ring is summed over the positions.
"""

from __future__ import annotations

from functools import partial

from tvm_npu.codegen.nmp.plan.exact.cost import P_TURNS, PLACE_WIDTH, WS, loads_of, stores_of
from tvm_npu.codegen.nmp.plan.exact.tables import LOADED, MERGED, PARTS, TURNS
from tvm_npu.sim import compiled

device = partial(compiled.device, references=False)


@device
def sum_places(scratch, spatial):
    """Counts and biases of all ``spatial`` slices of a place, whose own are filled in."""
    for column in range(PLACE_WIDTH):
        scratch.all_places[column] = 0.0
        for index in range(spatial):
            scratch.all_places[column] += scratch.places[index, column]
    for kind in range(2):
        for column in range(3):
            scratch.all_biases[kind, column] = 0.0
            for index in range(spatial):
                scratch.all_biases[kind, column] += scratch.biases[index, kind, column]


@device
def _sum_parts(spread, part_rows, part_begins, tile_n, first, slices, part):
    """Loads of IN of ``slices`` filter slices from ``first`` on, into ``part``."""
    row = part_begins[0] + tile_n
    part[PARTS] = part_rows[row, PARTS]
    part[LOADED], part[MERGED] = slices * part_rows[row, LOADED], slices * part_rows[row, MERGED]
    if spread.ring_in:
        part[LOADED], part[MERGED] = 0.0, 0.0
        for position in range(first, first + slices):
            row = part_begins[position] + tile_n
            part[LOADED] += part_rows[row, LOADED]
            part[MERGED] += part_rows[row, MERGED]


@device
def _weights(task, spread, scratch, item_rows, begins, tile_m, part, items):
    """(bursts, bytes) of W of the TLEs of one filter slice."""
    spatial = spread.row_slices * spread.column_slices
    item, place = item_rows[begins[0] + tile_m], scratch.all_places
    if not spread.ring_weights:
        _, _, _, _, _, bursts, volume = loads_of(
            task, spread, place, item, part, items, item[TURNS], place[P_TURNS], -1.0
        )
        times = spatial if spread.flow == WS else 1  # else places are factors, and these are sums
        return times * bursts, times * volume
    all_bursts, all_bytes = 0.0, 0.0
    for index in range(spatial):
        item, place = item_rows[begins[index] + tile_m], scratch.places[index]
        _, _, _, _, _, bursts, volume = loads_of(
            task, spread, place, item, part, items, item[TURNS], place[P_TURNS], -1.0
        )
        all_bursts += bursts
        all_bytes += volume
    return all_bursts, all_bytes


@device
def least_dram(
    task, speeds, spread, scratch, item_rows, item_begins, item_counts, part_rows, part_begins,
    tile_m, tile_n,
):  # fmt: skip
    """Cycles, of rows of tables or of least values."""
    place, part = scratch.all_places, scratch.part
    last = int(item_counts[1] > 0)
    all_bursts, all_bytes = 0.0, 0.0
    for kind in range(1 + last):
        slices = last if kind else spread.item_slices - last
        first = spread.item_slices - last if kind else 0
        items, bias = item_counts[kind], scratch.all_biases[kind]
        item = item_rows[item_begins[kind, 0] + tile_m]
        _sum_parts(spread, part_rows, part_begins, tile_n, first, slices, part)
        _, in_bursts, in_linear, in_bytes, _, _, _ = loads_of(
            task, spread, place, item, part, items, item[TURNS], place[P_TURNS], -1.0
        )
        in_times = slices if task.grouped else 1  # else all of them are in ``part``
        w_bursts, w_bytes = _weights(
            task, spread, scratch, item_rows, item_begins[kind], tile_m, part, items
        )
        _, out_bursts, out_linear, out_bytes = stores_of(task, place, item, items)
        times = 1 + task.residual
        all_bursts += in_times * (in_bursts + in_linear)
        all_bursts += slices * (w_bursts + times * (out_bursts + out_linear) + bias[1])
        all_bytes += in_times * in_bytes + slices * (w_bytes + times * out_bytes + bias[2])
    return (all_bursts * speeds.dram_burst + all_bytes * speeds.dram_byte) * task.repeats
