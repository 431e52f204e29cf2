"""What a page says about a plan: its fields one by one, those of the plans in it, too."""

from __future__ import annotations

from dataclasses import replace

from tests.report.small_runs import profiled
from tvm_npu.codegen.program.tables import plain
from tvm_npu.codegen.tiles.plan.chain import ChainPlan
from tvm_npu.codegen.tiles.plan.run import RunPlan
from tvm_npu.report.page.words import layer_words


def test_plans_in_a_plan_have_fields_of_their_own() -> None:
    profile = profiled("setup-a")
    plan = RunPlan((ChainPlan(7, 8, 2, 100), ChainPlan(14, 16, 2, 50)), 150, "exact")
    row = replace(profile.layers[0], plan=plain(plan))
    said = dict(layer_words(row, profile)["plan"])
    assert said["plans 0: tile rows"] == "7" and said["plans 1: tile channels"] == "16"
    assert said["moved bytes"] == "150" and said["planner"] == "exact"
