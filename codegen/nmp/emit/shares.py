"""Who works on what: rows, columns and items of every core under a plan."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tvm_npu.codegen.nmp.plan.conv_plan import ConvPlan
from tvm_npu.codegen.plan.problem import share, slice_of
from tvm_npu.sim.nmp.machine import NmpMachine


@dataclass(frozen=True)
class CoreShare:
    """What one core works on. ``items`` are filters of a group (multicast) or groups (grouped).

    Inside its TLE it has spatial part ``place`` and filter part ``run``; its TLE has spatial slice
    ``tle_place`` and filter slice ``tle_run``."""

    first_row: int
    rows: int
    first_column: int
    columns: int
    first_item: int
    items: int
    place: int
    run: int
    tle_place: int
    tle_run: int


NOTHING = CoreShare(0, 0, 0, 0, 0, 0, -1, -1, -1, -1)
"""The share of a core that only keeps in step with the others."""


@dataclass(frozen=True)
class Shares:
    """The shares of all cores; a core that does not even keep in step has none."""

    cores: tuple[CoreShare | None, ...]
    tlts: int

    def values(self, of: Callable[[CoreShare], int]) -> list[int]:
        """A number a core, 0 for idle ones."""
        return [0 if one is None else of(one) for one in self.cores]

    def most(self, of: Callable[[CoreShare], int], everywhere: bool) -> list[int]:
        """By core: the most among the TLTs of its TLE, or of the machine."""
        values = self.values(of)
        scope = len(values) if everywhere else self.tlts
        return [
            max(values[core // scope * scope : (core // scope + 1) * scope])
            for core in range(len(values))
        ]

    @property
    def active(self) -> list[bool]:
        return [one is not None for one in self.cores]

    def mask(self, core: int, same: Callable[[CoreShare], object], of_tles: bool) -> int:
        """Bits of the TLTs of the core's TLE (or of the TLEs) that are alike to it."""
        own = self.cores[core]
        if own is None:
            return 0
        tle, tlt = divmod(core, self.tlts)
        others: Sequence[int]
        if of_tles:
            others = range(tlt, len(self.cores), self.tlts)
        else:
            others = range(tle * self.tlts, (tle + 1) * self.tlts)
        bits = 0
        for bit, other in enumerate(others):
            found = self.cores[other]
            if found is not None and same(found) == same(own):
                bits |= 1 << bit
        return bits


def core_shares(plan: ConvPlan, rows: int, columns: int, items: int, machine: NmpMachine) -> Shares:
    """The deal of `ConvPlan`. Cores of TLEs without work are idle, unless TLEs share tiles over the
    ring: then all keep in step, and a TLE with an empty slice still loads its part for others."""
    tlts = machine.cores.tlts_per_tle
    runs = tlts // (plan.tlt_rows * plan.tlt_columns)
    needs_all = plan.ring_in or plan.ring_weights
    used = plan.row_slices * plan.column_slices * plan.filter_slices
    cores: list[CoreShare | None] = []
    for core in range(machine.core_count):
        tle, tlt = divmod(core, tlts)
        tle_place, tle_run = divmod(tle, plan.filter_slices)
        row_slice, column_slice = divmod(tle_place, plan.column_slices)
        place, run = divmod(tlt, runs)
        row_part, column_part = divmod(place, plan.tlt_columns)
        tle_rows = slice_of(rows, plan.row_slices, min(row_slice, plan.row_slices))
        tle_columns = slice_of(columns, plan.column_slices, column_slice)
        tle_items = slice_of(items, plan.filter_slices, tle_run)
        has_work = min(tle_rows[1], tle_columns[1], tle_items[1]) > 0
        if tle >= used or not (has_work or needs_all):
            cores.append(NOTHING if needs_all else None)
            continue
        own_rows = share(tle_rows[1], plan.tlt_rows, row_part)
        own_columns = share(tle_columns[1], plan.tlt_columns, column_part)
        own_items = share(tle_items[1], runs, run)
        cores.append(
            CoreShare(
                tle_rows[0] + own_rows[0], own_rows[1],
                tle_columns[0] + own_columns[0], own_columns[1],
                tle_items[0] + own_items[0], own_items[1],
                place, run, tle_place, tle_run,
            )
        )  # fmt: skip
    return Shares(tuple(cores), tlts)
