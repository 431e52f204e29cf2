"""Snowflake machines as a kind of machine: what `tvm_npu.sim.kinds` knows of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tvm_npu.sim.kinds import FileReader
from tvm_npu.sim.snowflake.machine import SnowflakeMachine


@dataclass(frozen=True)
class SnowflakeKind:
    description: type[SnowflakeMachine] = SnowflakeMachine
    hidden_locations: tuple[str, ...] = ()
    readers: Mapping[str, FileReader] = field(default_factory=dict)
    machines: None = None

    def drop_alternatives(self, base: dict[str, Any], values: Mapping[str, Any]) -> None:
        """It has none."""


KIND = SnowflakeKind()
