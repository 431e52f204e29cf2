"""The space of convolution plans on NMP machines, which is the one that `exact` searches: drawing
a plan at random and changing one choice of a plan.

A draw is uniform over spreads, schedules, ring, layouts and buffers; tile extents are drawn as
`extents` says, and those of tiles that do not fit are halved, at random, until they do.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from tvm_npu.codegen.nmp.plan.check import check_plan
from tvm_npu.codegen.nmp.plan.conv_plan import ConvPlan, split_of
from tvm_npu.codegen.nmp.tune.conv_columns import plan_columns, plan_of
from tvm_npu.codegen.nmp.tune.conv_features import FEATURE_NAMES, conv_features
from tvm_npu.codegen.nmp.tune.conv_room import Most, excess_of, has_empty_slice, most_of
from tvm_npu.codegen.plan.faults import PlanFault
from tvm_npu.codegen.tune.drawn import DrawnSpace
from tvm_npu.codegen.tune.extents import drawn_extent, moved_extent
from tvm_npu.codegen.tune.space import Columns, Features
from tvm_npu.sim.lazy import cached_property
from tvm_npu.sim.nmp.machine import NmpMachine

EXTENTS = ("tile_m", "tile_n", "tile_r", "tile_c")
FLOWS = ("IS", "OS", "KEEPS_IN", "WS")
"""Schedules; KEEPS_IN is OS that keeps its IN tile."""


@dataclass(frozen=True)
class ConvSpace(DrawnSpace[NmpMachine, ConvPlan]):
    """Plans of one layer, with a window behind it or not."""

    @property
    def kind(self) -> str:
        return "nmp-conv"

    @property
    def feature_names(self) -> tuple[str, ...]:
        return FEATURE_NAMES

    def features(self, plans: Sequence[ConvPlan]) -> Features:
        return conv_features(self.layer, plans, self.machine)

    def encode(self, plan: ConvPlan) -> Columns:
        return plan_columns(plan)

    def _decoded(self, columns: Mapping[str, Any]) -> ConvPlan:
        return plan_of(columns)

    # Drawing trusts `conv_room` for what fits; `check_plan` would take most of the time of tuning.
    def _fault(self, plan: ConvPlan) -> PlanFault | None:
        return check_plan(self.layer, plan, self.machine)

    # --- choices -----------------------------------------------------------------------------

    @cached_property
    def _can_group(self) -> bool:
        return self.layer.groups > 1 and self.layer.window is None

    def _slices(self, grouped: bool) -> list[tuple[int, int, int]]:
        """(row, column, filter) slices of which none is empty."""
        return self._grouped_slices if grouped else self._multicast_slices

    @cached_property
    def _multicast_slices(self) -> list[tuple[int, int, int]]:
        return self._slices_of(self.layer.filters // self.layer.groups, self.machine.cores.tles)

    @cached_property
    def _grouped_slices(self) -> list[tuple[int, int, int]]:
        return self._slices_of(self.layer.groups, 1)

    def _slices_of(self, items: int, most_columns: int) -> list[tuple[int, int, int]]:
        tles, layer = self.machine.cores.tles, self.layer
        return [
            (row, column, item)
            for row in range(1, tles + 1)
            for column in range(1, most_columns + 1)
            for item in range(1, tles + 1)
            if row * column * item <= tles
            and not has_empty_slice(layer.out_rows, row)
            and not has_empty_slice(layer.out_columns, column)
            and not has_empty_slice(items, item)
        ]

    @cached_property
    def _grids(self) -> list[tuple[int, int]]:
        """(row, column) parts over the TLTs of a TLE."""
        tlts = self.machine.cores.tlts_per_tle
        sizes = range(1, tlts + 1)
        return [(row, column) for row in sizes for column in sizes if tlts % (row * column) == 0]

    def _drawn(self, generator: np.random.Generator) -> ConvPlan:
        grouped = self._can_group and bool(generator.integers(2))
        plan = ConvPlan("grouped" if grouped else "multicast", "KS", 1, 1, "OS", 1, 1, 1, 1)
        for choice in ("slices", "grid", "flow", "wires", "layout", "buffers"):
            plan = self._with(plan, choice, generator)
        most = most_of(self.layer, plan, self.machine)
        extents = {name: drawn_extent(_top(most, name), generator) for name in EXTENTS}
        return replace(plan, **extents)  # type: ignore[arg-type]

    def _changed(self, plan: ConvPlan, generator: np.random.Generator) -> ConvPlan:
        """One choice of ``plan`` anew: a tile extent half of the time."""
        if generator.integers(2):
            name = EXTENTS[generator.integers(len(EXTENTS))]
            top = _top(most_of(self.layer, plan, self.machine), name)
            moved = {name: moved_extent(getattr(plan, name), top, generator)}
            return replace(plan, **moved)  # type: ignore[arg-type]
        choices = ["slices", "grid", "flow", "wires", "layout"]
        if self.machine.memories.ports == 2:
            choices.append("buffers")
        if self._can_group:
            choices.append("mode")
        return self._with(plan, choices[generator.integers(len(choices))], generator)

    def _with(self, plan: ConvPlan, choice: str, generator: np.random.Generator) -> ConvPlan:
        """``plan`` with one choice drawn."""
        grouped = plan.mode == "grouped"

        def coin() -> bool:
            return bool(generator.integers(2))

        if choice == "slices":
            options = self._slices(grouped)
            row, column, item = options[generator.integers(len(options))]
            return replace(plan, row_slices=row, column_slices=column, filter_slices=item)
        if choice == "grid":
            row, column = self._grids[generator.integers(len(self._grids))]
            return replace(plan, tlt_rows=row, tlt_columns=column)
        if choice == "flow":
            flow = FLOWS[generator.integers(len(FLOWS))]
            keeps = flow == "KEEPS_IN"
            return replace(plan, schedule="OS" if keeps else flow, keeps_in=keeps)  # type: ignore[arg-type]
        if choice == "wires":
            return replace(plan, ring_in=coin(), ring_weights=coin())
        if choice == "layout":
            weights = ("filters", "tiles")[generator.integers(2)]
            return replace(plan, weights=weights, linear_maps=coin())  # type: ignore[arg-type]
        if choice == "buffers":
            both = self.machine.memories.ports == 2 and coin()
            return replace(plan, buffers=2 if both else 1)
        return replace(plan, mode="multicast" if grouped else "grouped")

    def _consistent(self, plan: ConvPlan) -> ConvPlan | None:
        """``plan`` with what follows from its choices: flags that mean nothing are off, extents
        that a choice dictates are so, none is above its most. None where a spread leaves a slice
        empty."""
        ring = self.machine.ring is not None
        slices = (plan.row_slices, plan.column_slices, plan.filter_slices)
        if plan.mode == "grouped":
            if slices not in self._grouped_slices:
                return None
            plan = replace(
                plan, schedule="WS" if plan.schedule == "WS" else "OS", tlt_rows=1, tlt_columns=1,
                keeps_in=False, ring_in=False, ring_weights=False, weights="filters", buffers=1,
            )  # fmt: skip
        elif slices not in self._multicast_slices:
            return None
        plan = replace(
            plan,
            split=split_of(plan.row_slices * plan.column_slices, plan.filter_slices),
            ring_in=plan.ring_in and ring and plan.filter_slices > 1,
            ring_weights=plan.ring_weights and ring and plan.row_slices * plan.column_slices > 1,
        )
        most = most_of(self.layer, plan, self.machine)
        if plan.row_slices * plan.column_slices * plan.filter_slices > self.machine.cores.tles:
            return None
        items = min(max(plan.tile_m // most.item_filters, 1), most.items)
        whole = plan.keeps_in or plan.mode == "grouped"
        return replace(
            plan,
            tile_m=(most.items if plan.schedule == "IS" else items) * most.item_filters,
            tile_n=most.channels if whole else min(plan.tile_n, most.channels),
            tile_r=min(plan.tile_r, most.rows),
            tile_c=min(plan.tile_c, most.columns),
        )

    def _fitted(self, plan: ConvPlan, generator: np.random.Generator) -> ConvPlan | None:
        """``plan`` made consistent, its tiles halved until they fit; None where that fails."""
        consistent = self._consistent(plan)
        if consistent is None:
            return None
        plan = consistent
        most = most_of(self.layer, plan, self.machine)
        dictated = set()
        if plan.schedule == "IS":
            dictated.add("tile_m")
        if plan.keeps_in or plan.mode == "grouped":
            dictated.add("tile_n")
        least = {"tile_m": most.item_filters, "tile_n": 1, "tile_r": 1, "tile_c": 1}
        while (excess := excess_of(self.layer, plan, self.machine, most)) is not None:
            able = [
                name
                for name in excess.extents
                if getattr(plan, name) > least[name] and name not in dictated
            ]
            if not able:
                return None
            name = able[generator.integers(len(able))]
            unit = least[name]
            units = getattr(plan, name) // unit
            plan = replace(plan, **{name: max(1, units // 2) * unit})
        return plan


def _top(most: Most, name: str) -> int:
    return {
        "tile_m": most.items * most.item_filters, "tile_n": most.channels,
        "tile_r": most.rows, "tile_c": most.columns,
    }[name]  # fmt: skip
