"""The NMP as a kind of machine: what `tvm_npu.sim.kinds` knows of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tvm_npu.sim.kinds import FileReader
from tvm_npu.sim.nmp.machine import NmpMachine


@dataclass(frozen=True)
class NmpKind:
    description: type[NmpMachine] = NmpMachine
    hidden_locations: tuple[str, ...] = ()
    readers: Mapping[str, FileReader] = field(default_factory=dict)
    machines: None = None

    def drop_alternatives(self, base: dict[str, Any], values: Mapping[str, Any]) -> None:
        """No table of an NMP excludes another."""


KIND = NmpKind()
