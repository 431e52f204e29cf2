"""Tile plans as flat columns, and back; their layers are written as `tune.columns` has it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

from tvm_npu.codegen.plan.loops.plan import LoopPlan, Resident
from tvm_npu.codegen.tune.columns import checked_columns
from tvm_npu.codegen.tune.space import Columns


class _Choices(BaseModel):
    """``order``: one letter a loop, from the outermost in, as ``MNRC``. What is left out is as in
    logs that are older than the choice, and is left out where it says nothing."""

    model_config = ConfigDict(strict=True, extra="forbid")

    tile_m: int
    tile_n: int
    tile_r: int
    tile_c: int
    order: str
    tile_groups: int
    buffers: Literal[1, 2]
    keeps_rows: bool = False
    touched_only: bool = False
    taps_at_once: int = 1
    resident: Resident = ""


def tile_plan_columns(plan: LoopPlan) -> Columns:
    columns: Columns = {
        name: value
        for name, field in _Choices.model_fields.items()
        if (value := getattr(plan, name)) != field.default
    }
    return {**columns, "order": "".join(plan.order)}


def tile_plan_of(columns: Mapping[str, Any]) -> LoopPlan:
    """ValueError when a column is missing, foreign, or of a wrong type."""
    choices = checked_columns(_Choices, columns)
    return LoopPlan(**{**choices, "order": tuple(choices["order"])})
