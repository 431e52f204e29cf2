"""The space of tile plans, which is the one that `exact` searches on tile machines: drawing a plan
at random and changing one choice of a plan.

A draw is uniform over orders of the loops and buffers; tile extents are drawn as `extents` says,
and those of tiles that do not fit are halved, at random, until they do. A loop of one trip changes
nothing wherever it stands: here it stands outside of all others, so that plans that do the same
are equal.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any

import numpy as np

from tvm_npu.codegen.plan.faults import PlanFault
from tvm_npu.codegen.plan.loops.axes import can_keep_rows
from tvm_npu.codegen.plan.loops.plan import (
    LOOPS,
    RESIDENTS,
    Loop,
    LoopPlan,
    can_be_touched_only,
    extent,
    trips,
)
from tvm_npu.codegen.plan.loops.room import check_loop_plan
from tvm_npu.codegen.tiles.plan.loop_machine import loop_machine
from tvm_npu.codegen.tiles.tune.tile_columns import tile_plan_columns, tile_plan_of
from tvm_npu.codegen.tiles.tune.tile_features import FEATURE_NAMES, tile_features
from tvm_npu.codegen.tiles.tune.tile_room import excess_of
from tvm_npu.codegen.tune.drawn import DrawnSpace
from tvm_npu.codegen.tune.errors import EmptySpaceError
from tvm_npu.codegen.tune.extents import drawn_extent, moved_extent
from tvm_npu.codegen.tune.space import Columns, Features
from tvm_npu.sim.tiles.machine import TileMachine

GROUPED_SHARE = 0.5
"""Draws with several groups in a step, of a layer that has some."""


@dataclass(frozen=True)
class TileSpace(DrawnSpace[TileMachine, LoopPlan]):
    """Plans of one layer on a tile machine."""

    @property
    def kind(self) -> str:
        return "tiles-conv"

    @property
    def feature_names(self) -> tuple[str, ...]:
        return FEATURE_NAMES

    def features(self, plans: Sequence[LoopPlan]) -> Features:
        return tile_features(self.layer, plans, self.machine)

    def encode(self, plan: LoopPlan) -> Columns:
        return tile_plan_columns(plan)

    def _decoded(self, columns: Mapping[str, Any]) -> LoopPlan:
        return tile_plan_of(columns)

    # Drawing trusts `tile_room` for what fits, as `check_loop_plan` counts tile by tile.
    def _fault(self, plan: LoopPlan) -> PlanFault | None:
        return check_loop_plan(self.layer, plan, loop_machine(self.machine))

    def sample(self, generator: np.random.Generator) -> LoopPlan:
        if self.layer.window is not None:
            raise EmptySpaceError(f"machine {self.machine.name!r} runs no layer with a window")
        return super().sample(generator)

    def _drawn(self, generator: np.random.Generator) -> LoopPlan:
        m, n, r, c = (drawn_extent(self._top(loop), generator) for loop in LOOPS)
        groups = 1
        if self.layer.groups > 1 and generator.random() < GROUPED_SHARE:
            groups = drawn_extent(self.layer.groups, generator)
        order = tuple(LOOPS[at] for at in generator.permutation(len(LOOPS)))
        two = bool(generator.integers(2))
        return LoopPlan(m, n, r, c, order, groups, 2 if two else 1)

    def _changed(self, plan: LoopPlan, generator: np.random.Generator) -> LoopPlan:
        """One tile extent anew half of the time, else two loops change places, or the buffers, the
        number of groups in a step, what IN tiles take or which tiles stay change."""
        if generator.integers(2):
            loop = LOOPS[generator.integers(len(LOOPS))]
            moved = moved_extent(plan.tile(loop), self._top(loop), generator)
            # Several groups dictate the extents of filters and channels.
            groups = 1 if loop in ("M", "N") else plan.tile_groups
            return replace(plan, tile_groups=groups, **{f"tile_{loop.lower()}": moved})  # type: ignore[arg-type]
        choices = ["order", "order", "buffers", "resident"]
        if self.layer.groups > 1:
            choices.append("groups")
        if can_be_touched_only(self.layer):
            choices.append("touched_only")
        elif can_keep_rows(self.layer, plan):
            choices.append("keeps_rows")
        choice = choices[generator.integers(len(choices))]
        if choice == "order":
            order: list[Loop] = list(plan.order)
            one, other = generator.choice(len(order), 2, replace=False)
            order[one], order[other] = order[other], order[one]
            return replace(plan, order=tuple(order))
        if choice == "buffers":
            return replace(plan, buffers=1 if plan.buffers == 2 else 2)
        if choice == "resident":
            others = [one for one in RESIDENTS if one != plan.resident]
            which = others[generator.integers(len(others))]
            return replace(plan, resident=which, keeps_rows=False, touched_only=False)
        if choice in ("touched_only", "keeps_rows"):
            changed = {choice: not getattr(plan, choice), "resident": ""}
            return replace(plan, **changed)  # type: ignore[arg-type]
        groups = moved_extent(plan.tile_groups, self.layer.groups, generator)
        return replace(plan, tile_groups=groups)

    def _top(self, loop: Loop) -> int:
        return extent(self.layer, loop)

    def _fitted(self, plan: LoopPlan, generator: np.random.Generator) -> LoopPlan | None:
        """``plan`` with what follows from its choices, its tiles halved until they fit; None where
        even the smallest do not."""
        plan = self._whole_groups(plan)
        while (choices := excess_of(self.layer, plan, self.machine)) is not None:
            able = [name for name in choices if getattr(plan, name) > 1]
            if plan.tile_groups > 1:
                able = [name for name in able if name not in ("tile_m", "tile_n")]
            if not able:
                return None
            name = able[generator.integers(len(able))]
            plan = self._whole_groups(replace(plan, **{name: getattr(plan, name) // 2}))
        counts = {loop: trips(self.layer, plan, loop) for loop in LOOPS}
        still = tuple(loop for loop in LOOPS if counts[loop] == 1)
        taps = loop_machine(self.machine).best_taps(plan.tile_n, prod(self.layer.kernel))
        order = (*still, *(x for x in plan.order if counts[x] > 1))
        resident = plan.resident if counts["N"] > 1 else ""
        plan = replace(plan, order=order, taps_at_once=taps, resident=resident)
        return replace(plan, keeps_rows=plan.keeps_rows and can_keep_rows(self.layer, plan))

    def _whole_groups(self, plan: LoopPlan) -> LoopPlan:
        """Several groups in a step take all their filters and channels."""
        if plan.tile_groups == 1:
            return plan
        return replace(plan, tile_m=self._top("M"), tile_n=self._top("N"))
