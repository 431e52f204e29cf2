"""What a peer's runner is asked and what it answers, as JSON.

A question has `machine` (`facts`: bytes of the three memories, PEs on channels and filters, bytes
of an element, bytes a cycle to the memory outside), `goal` (``bytes`` or ``cycles``) and `layers`
(a `layers.Layer`, or those that are fused). An answer has `version`, `cpu_s` (the mapping alone,
after imports and one tiny layer) and `totals`, the peer's own names and numbers.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

from studies.harness.errors import StudyError
from studies.mappers.layers import PRECISION, Case
from tvm_npu.sim.tiles.machine import SplitMemories, TileMachine

Goal = Literal["bytes", "cycles"]
GOALS: tuple[Goal, ...] = ("bytes", "cycles")


@dataclass(frozen=True)
class Row:
    """One case under one mapper for one goal, as in the JSON file. ``cycles`` and ``dram_bytes``
    are the mapper's own count of the mapping that it found; None where it does not say. Biases are
    no part of the bytes. ``compulsory_bytes``: every value that is touched, once; of ``fused``
    layers without what lies between them."""

    mapper: str
    version: str
    goal: Goal
    model: str
    layer: str
    fused: bool
    cpu_s: float
    cycles: float | None
    dram_bytes: float | None
    compulsory_bytes: int
    notes: str = ""


@dataclass(frozen=True)
class Totals:
    """An answer in units of our own."""

    version: str
    cpu_s: float
    cycles: float | None
    dram_bytes: float | None


def facts(machine: TileMachine) -> dict[str, Any]:
    """What peers learn of the machine."""
    memories, array, mover = machine.memories, machine.array, machine.mover
    assert isinstance(memories, SplitMemories) and array is not None and mover is not None
    return {
        "input_bytes": memories.input_bytes,
        "weight_bytes": memories.weight_bytes,
        "output_bytes": memories.output_bytes,
        "array_channels": array.width,
        "array_filters": array.height,
        "element_bytes": machine.element_bytes(PRECISION),
        "dram_bytes_per_cycle": mover.bytes_per_cycle,
    }


def question(case: Case, machine: TileMachine, goal: Goal) -> dict[str, Any]:
    return {
        "machine": facts(machine), "goal": goal,
        "layers": [asdict(layer) for layer in case.layers],
    }  # fmt: skip


def read_answer(text: str, peer: str, units: Mapping[str, tuple[str, float]]) -> Totals:
    """``units``: for ``cycles`` and ``dram_bytes`` the peer's name of the total, and what to divide
    it by. Raises StudyError for what is no answer."""
    try:
        answer = json.loads(text)
        totals = answer["totals"]
        found = {
            ours: float(totals[theirs]) / per
            for ours, (theirs, per) in units.items()
            if totals.get(theirs) is not None
        }
        if not found:
            raise KeyError(*(name for name, _ in units.values()))
        return Totals(
            str(answer["version"]), float(answer["cpu_s"]), found.get("cycles"),
            found.get("dram_bytes"),
        )  # fmt: skip
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise StudyError(
            f"{peer} answered {text[:200]!r}, without {error}; expected an object with version, "
            "cpu_s and totals"
        ) from error


def compulsory_bytes(case: Case, machine: TileMachine) -> int:
    return case.elements * machine.element_bytes(PRECISION)
