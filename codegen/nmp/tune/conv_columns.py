"""Plans of NMPs as flat columns, and back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any, get_type_hints

from pydantic import BaseModel, ConfigDict, create_model

from tvm_npu.codegen.nmp.plan.conv_plan import ConvPlan
from tvm_npu.codegen.tune.columns import checked_columns
from tvm_npu.codegen.tune.space import Columns

PLAN_FIELDS = tuple(
    field.name for field in fields(ConvPlan) if field.name not in ("prediction", "planner")
)
_HINTS = get_type_hints(ConvPlan)
_Choices: type[BaseModel] = create_model(
    "_Choices",
    __config__=ConfigDict(strict=True, extra="forbid"),
    **{name: (_HINTS[name], ...) for name in PLAN_FIELDS},
)  # type: ignore[call-overload]


def plan_columns(plan: ConvPlan) -> Columns:
    return {name: getattr(plan, name) for name in PLAN_FIELDS}


def plan_of(columns: Mapping[str, Any]) -> ConvPlan:
    """ValueError when a column is missing, foreign, or of a wrong type or value."""
    return ConvPlan(**checked_columns(_Choices, columns))
