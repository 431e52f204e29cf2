"""The plan of least predicted time, or of least traffic, over all `LoopPlan`s; proven.

The space: every tile size along every loop, every order of the loops, several groups in a step, one
buffer or two, and as many kernel taps at once as PEs have room for beside a tile's channels. All of
it is enumerated (`search`), but for
  tile sizes along a loop that give as many tiles as another size, need no less room, and lose in
    nothing that `cost.predicted` counts (iterations, IFM rows or columns, contiguous runs)
  orders that differ in loops of one trip only
  numbers of groups that give as many runs as a smaller one
  tilings whose lower bound is no better than the best plan found so far
Where the machine can move rows, plans that keep them (`LoopPlan.keeps_rows`) are in the space, too:
the same search with the rows that come from outside in place of all, what they take the transfers,
and what the moves take the engine; likewise where it can gather, plans that take only what windows
touch (`LoopPlan.touched_only`). `exact-traffic` minimizes bytes with the same search: a byte costs
one, an engine nothing, and a transfer so little that it only breaks ties. Two buffers never save
bytes.
"""

from tvm_npu.codegen.plan.loops.exact.planner import ExactLoops, LoopProof, prove

__all__ = ["ExactLoops", "LoopProof", "prove"]
