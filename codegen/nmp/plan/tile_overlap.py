"""Time of a tile with two buffers in numba: `overlap.TileTimes.cycles`, for the searches of layers
(`exact`) and of blocks (`exact_blocks`)."""

from __future__ import annotations

from functools import partial

from tvm_npu.sim import compiled

device = partial(compiled.device, references=False)

T_LOAD, T_LAST_LOAD, T_RESIDUAL, T_MAC, T_LAST_MAC, T_STORE, T_BEHIND, T_BESIDE = range(8)
"""Of a tile (`overlap.TileTimes`); its LAST_MAC has the end of the tile in it."""
TILE_WIDTH = 8


@device
def tile_cycles(tile, tlts, steps, next_load, store, residual):
    """Of a ``tile`` of so many channel ``steps``, with the ``store`` and the ``residual`` that come
    under it."""
    if steps == 1:
        last = max(tile[T_LAST_MAC], next_load + store + tile[T_BESIDE])
        return last + tile[T_BEHIND]
    if steps == 2:
        second = tile[T_LAST_LOAD] + residual + store
        late = 0.0
        if tile[T_BESIDE] > 0:
            late = max(0.0, second + tile[T_BESIDE] - max(tile[T_MAC], second))
        last = max(tile[T_LAST_MAC], next_load + late)
        return max(tile[T_MAC], second) + last + tile[T_BEHIND]
    total = max(tile[T_LAST_MAC], next_load) + tile[T_BEHIND]
    number = min(tlts, steps - 2)  # `spread.steps_with_some`
    some = (store + residual) / number
    if tile[T_BESIDE] > 0:
        third = (tile[T_LOAD] if steps > 3 else tile[T_LAST_LOAD]) + some
        late = max(0.0, tile[T_LOAD] + tile[T_BESIDE] - max(tile[T_MAC], tile[T_LOAD]))
        total += max(tile[T_MAC], third + late) - max(tile[T_MAC], third)
    if number == steps - 2:
        total += max(tile[T_MAC], tile[T_LAST_LOAD] + some)
        number -= 1
    else:
        total += max(tile[T_MAC], tile[T_LAST_LOAD])
    total += number * max(tile[T_MAC], tile[T_LOAD] + some)
    return total + (steps - 2 - number) * max(tile[T_MAC], tile[T_LOAD])
