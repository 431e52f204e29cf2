"""Time of a TLE with two buffers, in closed form over the kinds of its tiles.

The transfers of a step run under the MACs of the step before, and the store of a tile under the
first step of the next tile or, with three steps or more, in later ones. With loads L_i, MAC times
C_i (i = 1 .. N; the last one includes the end of the tile) and the store S of a tile, a tile in the
middle of a layer takes, N = 1:

    max(C_1, L_1 + S)

for N = 2

    max(C_1, L_2 + S) + max(C_2, L_1)

and otherwise, as each TLT stores in a step of its own (`spread`), in k steps a k-th of S:

    max(C_1, L_2) + max(C_2, L_3 + S / k) + ... + max(C_N-1, L_N + S / k) + max(C_N, L_1)

A residual tile is loaded beside the store of the tile before (N = 1: with L_1). The tile before is
taken to store and the next one to load what this one does. What all TLTs load for the end of a
tile in its first step (B, a block's weights) queues behind L_2; what of it is not through with that
step, max(0, B + L_2 - max(C_1, L_2)), is in front of L_3, or with N = 2 of the next L_1. What is
loaded once for many tiles (W of WS; IN where it is kept) adds to the L_1 of the first of them.

What goes on behind a tile's products over a ring (to a window or to a crew) queues behind the L_1
of the next tile: nothing hides that part of the end of a tile, which comes on top of the last max.

The layer begins with the L_1 of its first tile and ends with an S; nothing is stored under its
first tile, under which the L_1 of the last one is loaded, and nothing is loaded under the last one.
What is loaded once for one tile alone comes under the first tile the second time.
That S is the first tile's, so that every load and store counts once and the time is never less than
all transfers or all MACs take.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tvm_npu.codegen.nmp.plan.spread import steps_with_some


@dataclass(frozen=True)
class TileTimes:
    """One kind of OUT tile of a TLE's ``tlts``: ``steps`` channel steps of each of one or two kinds
    (full ones, a ragged one), the cycles of the loads and of the MACs of one step of each, and the
    cycles of the residual's load, the end of the tile in the MAC unit and its store; ``behind``:
    what goes on behind the end from the first transfer over a ring; ``beside``: loads in the first
    step for the end of the tile."""

    tlts: int
    steps: tuple[int, ...]
    loads: tuple[float, ...]
    macs: tuple[float, ...]
    residual: float
    finish: float
    store: float
    behind: float = 0.0
    beside: float = 0.0

    def cycles(
        self, once: float = 0.0, is_first: bool = False, next_load: float | None = None
    ) -> float:
        """Time of the tile, from the start of its first MAC to that of the next tile's, for which
        ``next_load`` is loaded (its own, where it is None), and ``once`` on top."""
        store = 0.0 if is_first else self.store
        if next_load is None:
            next_load = self.first_load
        next_load += once
        last_load, last_mac = self.loads[-1], self.macs[-1] + self.finish
        count = sum(self.steps)
        if count == 1:
            return max(last_mac, next_load + store + self.beside) + self.behind
        load, mac = self.loads[0], self.macs[0]
        if count == 2:
            second = last_load + self.residual + store
            late = max(0.0, second + self.beside - max(mac, second))
            return max(mac, second) + max(last_mac, next_load + late) + self.behind
        total = max(last_mac, next_load) + self.behind
        number = steps_with_some(self.tlts, count)
        some = (store + self.residual) / number
        third = (load if count > 3 else last_load) + some
        late = max(0.0, load + self.beside - max(mac, load))
        total += max(mac, third + late) - max(mac, third)
        if number == count - 2:  # own steps are all but the first and the last of the tile
            total += max(mac, last_load + some)
            number -= 1
        else:
            total += max(mac, last_load)
        # Steps 2 .. count - 1 are full.
        total += number * max(mac, load + some)
        return total + (count - 2 - number) * max(mac, load)

    @property
    def slack(self) -> float:
        """Of the engine under the MACs of a tile whose next loads are as its own."""
        spare = (mac - load for mac, load in zip(self.macs, self.loads, strict=True))
        each = zip(spare, self.steps, strict=True)
        return max(0.0, sum(max(0.0, one) * number for one, number in each) - self.beside)

    @property
    def first_load(self) -> float:
        """Loads before the first MAC of the layer."""
        return self.loads[0] + (self.residual if sum(self.steps) == 1 else 0.0)


def overlapped_cycles(
    tiles: Sequence[tuple[TileTimes, int]], once: Sequence[tuple[TileTimes, float, int]]
) -> float:
    """Time of the ``tiles`` = (kind, how many), in the order of the loops; ``once`` = (the tile
    before, load cycles, how many) for what is loaded once for many tiles, likewise."""
    total = 0.0
    count = 0
    for tile, number in tiles:
        total += number * tile.cycles()
        count += number
    first, last = tiles[0][0], tiles[-1][0]
    if count == 1:
        total = first.cycles(is_first=True, next_load=0.0)
    else:
        total += first.cycles(is_first=True, next_load=last.first_load) - first.cycles()
        total += last.cycles(next_load=0.0) - last.cycles()
    total += first.first_load + first.store
    is_behind_first = count == sum(number for _, _, number in once)
    for index, (before, cycles, number) in enumerate(once):
        if index == 0:
            total += cycles
            number -= 1
        if is_behind_first and number:
            next_load = last.first_load
            total += first.cycles(cycles, True, next_load) - first.cycles(0.0, True, next_load)
            number -= 1
            is_behind_first = False
        total += number * (before.cycles(cycles) - before.cycles())
    return total
