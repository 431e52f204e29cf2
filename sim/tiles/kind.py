"""Tile machines as a kind of machine: what `tvm_npu.sim.kinds` knows of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tvm_npu.sim.kinds import FileReader
from tvm_npu.sim.tiles.eplanner_json import eplanner_machine
from tvm_npu.sim.tiles.machine import SHARED, SPLIT, TileMachine, without_alternatives


@dataclass(frozen=True)
class TilesKind:
    description: type[TileMachine] = TileMachine
    hidden_locations: tuple[str, ...] = (SPLIT, SHARED)
    readers: Mapping[str, FileReader] = field(
        default_factory=lambda: {".json": (eplanner_machine, "setup-a")}
    )
    machines: None = None

    def drop_alternatives(self, base: dict[str, Any], values: Mapping[str, Any]) -> None:
        without_alternatives(base, values)


KIND = TilesKind()
