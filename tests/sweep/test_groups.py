"""Designs in groups: what is in one, and what a design that fails costs the others."""

from __future__ import annotations

from typing import Any

import pytest

from tests.sweep.threads import Threads
from tvm_npu.sim.limits import DEFAULT
from tvm_npu.sim.machine_file import load_machine
from tvm_npu.sweep import groups
from tvm_npu.sweep.designs import Design
from tvm_npu.sweep.engines import AHEAD
from tvm_npu.sweep.groups import Asked, evaluated
from tvm_npu.sweep.outcome import Outcome


def designs(count: int, bursts: int) -> list[Asked]:
    machine = load_machine("nmp-4x8")
    found = []
    for number in range(count):
        dram = machine.dram.model_copy(update={"burst_bytes": 64 << number % bursts})
        varied = machine.model_copy(update={"dram": dram})
        design = Design(str(number), varied, "exact", "int16", "nmp-4x8")
        found.append(Asked(number, design, ["a", "b"]))
    return found


def test_groups_are_alike_and_end_small(monkeypatch: pytest.MonkeyPatch) -> None:
    came: list[list[Design]] = []

    def seen(shared: Any, together: Any, *_: Any) -> list[list[Outcome]]:
        came.append(list(together))
        return [
            [Outcome(float(one.name)) for _ in models]
            for models, one in zip(shared, together, strict=True)
        ]

    monkeypatch.setattr(groups, "evaluate_all", seen)
    asked = designs(200, bursts=2)
    found = dict(evaluated(Threads(), asked, "predicted", DEFAULT))
    assert {number: [one.cycles for one in each] for number, each in found.items()} == {
        number: [float(number)] * 2 for number in range(200)
    }
    for group in came:
        assert len({one.machine.dram.burst_bytes for one in group}) == 1
    sizes = [len(group) for group in came]
    assert sizes[0] == groups.FIRST and sizes[-2:] == [1, 1]
    assert max(sizes) > groups.FIRST  # these are fast
    came.clear()
    monkeypatch.setattr(groups, "GROUP_S", 0.0)  # and slower than this: first ones are given ahead
    list(evaluated(Threads(), asked, "predicted", DEFAULT))
    sizes = [len(group) for group in came]
    assert set(sizes[AHEAD:]) == {1} and sum(sizes) == 200
    came.clear()
    assert len(list(evaluated(Threads(), asked[:6], "checked", DEFAULT))) == len(came) == 6


def test_a_design_that_fails_costs_itself_only(monkeypatch: pytest.MonkeyPatch) -> None:
    def one_fails(shared: Any, together: Any, *_: Any) -> list[list[Outcome]]:
        if any(one.name == "3" for one in together):
            raise RuntimeError("a fault of the code")
        return [[Outcome(1.0) for _ in models] for models in shared]

    monkeypatch.setattr(groups, "evaluate_all", one_fails)
    found = dict(evaluated(Threads(), designs(40, bursts=1), "predicted", DEFAULT))
    assert sorted(found) == list(range(40))
    failed = [number for number, result in found.items() if isinstance(result, Exception)]
    assert failed == [3] and "a fault of the code" in str(found[3])
