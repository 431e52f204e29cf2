"""Arrays for numbers on the way of the search of `exact`: compiled code allocates nothing."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from tvm_npu.codegen.nmp.plan.exact.cost import BIASES, PLACE_WIDTH
from tvm_npu.codegen.nmp.plan.exact.overlap import KIND_WIDTH, MOST_KINDS, TILES_WIDTH

SPOT = 8
"""Of rows, then of columns: first kind of turns, kinds, own turns, turns taken part in."""


class Scratch(NamedTuple):
    """Arrays for numbers on the way: by spatial slice ``places``, ``spots`` and ``biases`` (also
    by kind of filter slice: `cost.BIASES`); ``bias`` is of a region; the others are of one
    tile."""

    places: Any
    spots: Any
    biases: Any
    kinds: Any
    weights: Any
    place: Any
    tile: Any
    bias: Any


def new_scratch(spatial: int) -> Scratch:
    """For at most ``spatial`` spatial slices."""
    return Scratch(
        np.zeros((spatial, PLACE_WIDTH)), np.zeros((spatial, SPOT), np.int64),
        np.zeros((spatial, 2, BIASES)), np.zeros((MOST_KINDS, KIND_WIDTH), np.int64),
        np.zeros((MOST_KINDS, 2)), np.zeros(PLACE_WIDTH), np.zeros(TILES_WIDTH),
        np.zeros(BIASES),
    )  # fmt: skip
