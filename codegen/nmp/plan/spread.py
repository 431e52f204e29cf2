"""Which step of a tile each TLT stores the tile before in, and loads its residual in.

An engine serves its TLTs one transfer after another, and loads are asked for one step ahead. If
all TLTs stored at once, the loads of the next steps would queue behind all of that, and the MAC
units would wait. With two buffers and at least `LEAST_STEPS` channel steps a tile, every TLT has a
step of its own instead, so that a step has one of these transfers or few beside its loads. It is
never the first step, in front of which the store before has to be complete, nor the last one.
"""

from __future__ import annotations

LEAST_STEPS = 3


def spreads(buffers: int, steps: int) -> bool:
    return buffers == 2 and steps >= LEAST_STEPS


def own_step(tlt: int, tlts: int, steps: int) -> int:
    """The step of TLT number ``tlt`` of ``tlts``, where a tile has ``steps``."""
    return 1 + tlt * (steps - 2) // tlts


def steps_with_some(tlts: int, steps: int) -> int:
    """How many steps are some TLT's own."""
    return min(tlts, steps - 2)
