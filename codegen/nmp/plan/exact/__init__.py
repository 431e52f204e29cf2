"""The plan of least predicted time over all that a machine can do, with its proof.

The space: any spread of the rows, the columns and the filters (or groups) over at most all TLEs,
any grid of the TLTs, both modes, IS, OS, WS and OS that keeps IN, every stream that can go over the
ring, one buffer or two, and every tile_m, tile_n, tile_r and tile_c that fits. Time is
`cost.predict`: ragged edges, clipping and uneven shares counted exactly.

The search (`search`) is branch and bound over spreads, classes of tiles and tiles, from the
time of TSO's plan down; what it leaves out by dominance is listed there. Left out here:
  weights "filters": a W tile that is one run takes no more bursts than its filters one by one,
    as the sum of ceil(x / b) is at least ceil(sum of x / b)
  linear_maps False: likewise for the planes of a tile, where a burst of a 1-D transfer costs no
    more than one of a 3-D transfer; else it is searched, too
  IS: costs what OS does with all filters of a TLT in a tile
  OS in the grouped mode: WS loads the same W tiles once
  spreads with empty slices: see `space`
Where "filters" and boxes take no longer, the plan says so. Products in front of loads
(`macs_first`) and IN tiles by channels are no part of the space: the plan found gets them where it
is faster with them, and so does the fastest plan without the ring: the faster of the two is taken.

Ties: the first plan found. Classes of tiles are searched from the least bound up, those of equal
bounds in the order of `space`; in a class small tile_r come first, then small tile_c, large
tile_n, large tile_m. The plan's time is the least up to a relative 1e-9, and never above TSO's.
"""

from tvm_npu.codegen.nmp.plan.exact.planner import (
    ExactPlanner,
    Proof,
    fastest_by_family,
    plan_with_proof,
    predicted_cycles,
)

__all__ = ["ExactPlanner", "Proof", "fastest_by_family", "plan_with_proof", "predicted_cycles"]
