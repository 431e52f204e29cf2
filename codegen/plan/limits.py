"""Upper bounds on tile extents, to force many small tiles where a layer would fit in few."""

from __future__ import annotations

from dataclasses import dataclass, fields

from tvm_npu.codegen.errors import PlanningError
from tvm_npu.sim.numbers import is_whole
from tvm_npu.sim.texts import shown


@dataclass(frozen=True)
class TileLimits:
    """Largest T_M, T_N, T_R and T_C that a planner may use; None leaves one free."""

    max_tile_m: int | None = None
    max_tile_n: int | None = None
    max_tile_r: int | None = None
    max_tile_c: int | None = None

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if value is not None and not is_whole(value, 1):
                raise PlanningError(f"{field.name} = {shown(value)}; a tile limit must be >= 1")


NO_LIMITS = TileLimits()
