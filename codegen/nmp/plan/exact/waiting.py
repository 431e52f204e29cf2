"""What the search of `exact` has bounded and not searched yet, in numba: a binary heap.

Of the least bound first; of equal bounds regions before classes, then in the order of the families,
of row classes and of column classes.
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import numpy as np

from tvm_npu.sim import compiled

device = partial(compiled.device, references=False)

IS_CLASS, FAMILY, ROWS, COLUMNS = range(4)
"""What waits: a class of tiles, or what is to be halved; regions of `axes`."""
_KEY_WIDTH = 4


class Waiting(NamedTuple):
    """The first ``count[0]`` of ``bounds`` and ``keys`` are a heap."""

    bounds: Any
    keys: Any
    count: Any


def waiting_in_order(bounds: Any, keys: Any, room: int) -> Waiting:
    """These, in the order in which they come first, and ``room`` more."""
    order = np.lexsort((keys[:, FAMILY], keys[:, IS_CLASS], bounds))
    return Waiting(
        np.concatenate((bounds[order], np.zeros(room))),
        np.concatenate((keys[order], np.zeros((room, _KEY_WIDTH), np.int64))),
        np.array([len(bounds)]),
    )


def with_room(waiting: Waiting, room: int) -> Waiting:
    return Waiting(
        np.concatenate((waiting.bounds, np.zeros(room))),
        np.concatenate((waiting.keys, np.zeros((room, _KEY_WIDTH), np.int64))),
        waiting.count,
    )


@device
def _precedes(waiting, one, other):
    if waiting.bounds[one] != waiting.bounds[other]:
        return waiting.bounds[one] < waiting.bounds[other]
    for column in range(_KEY_WIDTH):
        if waiting.keys[one, column] != waiting.keys[other, column]:
            return waiting.keys[one, column] < waiting.keys[other, column]
    return False


@device
def _exchange(waiting, one, other):
    bounds, keys = waiting.bounds, waiting.keys
    bounds[one], bounds[other] = bounds[other], bounds[one]
    for column in range(_KEY_WIDTH):
        keys[one, column], keys[other, column] = keys[other, column], keys[one, column]


@device
def push(waiting, bound, is_class, family, row_region, column_region):
    at = waiting.count[0]
    waiting.count[0] = at + 1
    waiting.bounds[at] = bound
    key = waiting.keys[at]
    key[IS_CLASS], key[FAMILY] = is_class, family
    key[ROWS], key[COLUMNS] = row_region, column_region
    while at and _precedes(waiting, at, (at - 1) // 2):
        _exchange(waiting, at, (at - 1) // 2)
        at = (at - 1) // 2


@device
def drop_first(waiting):
    last = waiting.count[0] - 1
    waiting.count[0] = last
    _exchange(waiting, 0, last)
    at = 0
    while True:
        first = at
        for child in (2 * at + 1, 2 * at + 2):
            if child < last and _precedes(waiting, child, first):
                first = child
        if first == at:
            return
        _exchange(waiting, at, first)
        at = first
