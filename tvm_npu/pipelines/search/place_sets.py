"""Sets of places in use, told apart by how many of each class of alike places they hold.

Of exchangeable places the first free one stands for all (`space.twins`), so a set in use is a count
for each class: 128 fast and 128 slow places have 129 * 129 sets, not 2^256.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from tvm_npu.pipelines.platform import Platform
from tvm_npu.pipelines.search.space import twins
from tvm_npu.sim.lazy import cached_property

NONE = -1
SORTABLE_PLACES = 62
"""Sets of so many places have a bit mask of 64 bits."""


@dataclass(frozen=True)
class PlaceClasses:
    """``members``: the places of each class, in the order in which they are used. ``clashes``
    [places, places]: which share a core, or are the same."""

    members: tuple[tuple[int, ...], ...]
    clashes: np.ndarray

    @property
    def set_count(self) -> int:
        return math.prod(len(places) + 1 for places in self.members)

    @cached_property
    def table(self) -> np.ndarray:
        """``members`` [classes, most members], -1 where there are fewer."""
        widest = max(map(len, self.members))
        table = np.full((len(self.members), widest + 1), NONE, np.int64)
        for row, places in zip(table, self.members, strict=True):
            row[: len(places)] = places
        return table

    @cached_property
    def steps(self) -> np.ndarray:
        """[sets, classes, 3], for each set in the order of the places that may come next: such a
        place, its class and the set with it; -1 behind the last. The first set is empty."""
        sizes = np.array([len(places) for places in self.members])
        strides = np.cumprod([1, *(sizes[:-1] + 1)])
        counts = np.arange(self.set_count)[:, None] // strides % (sizes + 1)
        rank = np.arange(self.set_count)
        if self.clashes.shape[0] <= SORTABLE_PLACES:  # as bit masks are
            masks = np.zeros(self.set_count, np.int64)
            for kind, places in enumerate(self.members):
                of_count = np.cumsum([0, *(1 << place for place in places)])
                masks += of_count[counts[:, kind]]
            order = np.argsort(masks)
            counts, rank[order] = counts[order], np.arange(self.set_count)
        following = np.full(counts.shape, NONE, np.int64)
        next_places = self.table[np.arange(len(self.members)), counts]
        index = counts @ strides
        for kind, own in enumerate(self.members):
            free = next_places[:, kind] >= 0
            for member, place in enumerate(own):
                here = counts[:, kind] == member
                free[here] &= (counts[here] <= self._first_clash(place)).all(axis=1)
            following[free, kind] = rank[index[free] + strides[kind]]
        last = np.iinfo(np.int64).max
        classes = np.argsort(np.where(following >= 0, next_places, last), axis=1, kind="stable")
        following = np.take_along_axis(following, classes, axis=1)
        next_places = np.take_along_axis(next_places, classes, axis=1)
        steps = np.stack([next_places, classes, following], axis=2)
        steps[following < 0] = NONE
        return steps

    def _first_clash(self, place: int) -> np.ndarray:
        """For each class how many of its places leave ``place`` free."""
        limits = []
        for places in self.members:
            taken = [other != place and self.clashes[place, other] for other in places]
            limits.append(taken.index(True) if True in taken else len(places))
        return np.array(limits)


@lru_cache(maxsize=64)
def place_classes(platform: Platform) -> PlaceClasses:
    members: list[list[int]] = []
    class_of: dict[int, int] = {}
    for place, twin in enumerate(twins(platform)):
        if twin < 0:
            class_of[place] = len(members)
            members.append([place])
        else:
            class_of[place] = class_of[twin]
            members[class_of[twin]].append(place)
    count = len(platform)
    clashes = np.array(
        [[bool(mask >> other & 1) for other in range(count)] for mask in platform.conflicts]
    )
    return PlaceClasses(tuple(map(tuple, members)), clashes)
