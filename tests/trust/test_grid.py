"""A sample of the grid of forged operands ends in one of the ways that are allowed."""

from __future__ import annotations

import pytest
from fuzzing.codes import machines
from fuzzing.grid import EDGES, case, points
from fuzzing.targets import TARGETS, outcome

from tvm_npu.sim.kinds import machine_kind


@pytest.mark.parametrize("kind", machines())
def test_every_instruction_has_its_edges(kind: str) -> None:
    found = list(points(kind))
    fields = {(one.item.mnemonic, one.name) for one in found if one.register is None}
    isa = machine_kind(machines()[kind][0].isa).isa
    assert fields == {(item.mnemonic, one.name) for item in isa.instructions for one in item.fields}
    assert {one.value for one in found if one.register is not None} == set(EDGES[:5])


@pytest.mark.parametrize("kind", machines())
def test_forged_operands_end_soundly(kind: str) -> None:
    for point in list(points(kind))[3::331]:
        found = outcome(TARGETS[f"sim-{kind}"], case(kind, point))
        assert not found.startswith("bad"), (point, found)
