"""What the comparison with other mappers has to show."""

from __future__ import annotations

from dataclasses import replace

import pytest

from studies.harness.errors import StudyError
from studies.mappers.question import Row
from studies.mappers.study import STUDY, Compared

OURS = Row("exact-traffic", "1", "bytes", "resnet18", "conv1", False, 0.01, None, 100.0, 90)
BEST = replace(OURS, mapper="accelforge", cpu_s=0.5)


@pytest.mark.parametrize(
    ("rows", "missed"),
    [
        ((OURS, BEST), None),
        ((OURS,), None),
        ((replace(OURS, goal="cycles", dram_bytes=101.0), replace(BEST, goal="cycles")), None),
        ((replace(OURS, model="mobilenet_v2", dram_bytes=101.0),
          replace(BEST, model="mobilenet_v2")), None),
        ((replace(OURS, dram_bytes=101.0), BEST),
         "resnet18 conv1: 101 bytes, accelforge moves 100"),
        ((replace(OURS, model="mobilenet_v2", fused=True, dram_bytes=102.0),
          replace(BEST, model="mobilenet_v2", fused=True)),
         "mobilenet_v2 conv1, fused: 102 bytes, accelforge moves 100"),
        ((OURS, replace(BEST, cpu_s=0.49)),
         "resnet18 is planned 49 times faster than by accelforge, the goal is 50"),
    ],
)  # fmt: skip
def test_what_misses_a_goal_is_named(rows: tuple[Row, ...], missed: str | None) -> None:
    found = Compared(rows, {})
    if missed is None:
        STUDY.check(found)
        return
    with pytest.raises(StudyError) as told:
        STUDY.check(found)
    assert str(told.value) == f"below the goal: {missed}"
