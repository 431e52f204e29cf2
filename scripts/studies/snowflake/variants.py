"""Ways to compile a network: other planners, passes left out."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace

from tvm_npu.codegen.plan import Planner, planner
from tvm_npu.codegen.plan.problem import ConvProblem, Infeasible
from tvm_npu.codegen.snowflake.code.block import CodePasses
from tvm_npu.codegen.snowflake.emit.region import Passes
from tvm_npu.codegen.snowflake.plan.divide import predict
from tvm_npu.codegen.snowflake.plan.greedy import greedy
from tvm_npu.codegen.snowflake.plan.recurrent import WeightsChosen
from tvm_npu.codegen.snowflake.plan.tiling import SnowflakePlan, Stays, conv_shape
from tvm_npu.codegen.snowflake.steps.passes import StepPasses
from tvm_npu.sim.snowflake.machine import SnowflakeMachine


@dataclass(frozen=True)
class Reuse:
    """The paper's planner, held to one order of loads: the tile that ``stays`` is used with all
    tiles of the other kind, which come again for the next one. Where that order fits no layer, the
    planner's own."""

    name: str
    stays: Stays

    def plan(self, problem: ConvProblem, machine: SnowflakeMachine) -> SnowflakePlan | Infeasible:
        found = greedy(conv_shape(problem), machine, orders=(self.stays,))
        if found is None:
            return planner(PLANNER).plan(problem, machine)
        found = replace(found, planner=self.name)
        return replace(found, prediction=predict(problem, found, machine))


@dataclass(frozen=True)
class Variant:
    """``title`` is for people."""

    name: str
    title: str
    planner: Planner
    passes: Passes = Passes()


PLANNER = "snowflake"
DEFAULT = Variant("default", "all", planner(PLANNER))
EXACT = Variant("exact", "exact", planner("exact"))
REUSE = (
    Variant("reuse-kernels", "kernels", Reuse("reuse-kernels", "kernels")),
    Variant("reuse-maps", "maps", Reuse("reuse-maps", "maps")),
)
"""ReuseK and ReuseM of section 9.2."""


def _without() -> tuple[Variant, ...]:
    found = []
    for group in fields(Passes):
        for one in fields(getattr(Passes(), group.name)):
            left_out = replace(getattr(Passes(), group.name), **{one.name: False})
            passes = replace(Passes(), **{group.name: left_out})
            title = one.name.replace("_", " ")
            name = f"without-{one.name.replace('_', '-')}"
            found.append(Variant(name, title, DEFAULT.planner, passes))
    return tuple(found)


WITHOUT_A_PASS = _without()
"""Each pass of the compiler left out, one at a time."""
BEFORE = Variant(
    "before", "before", DEFAULT.planner,
    Passes(StepPasses(), CodePasses(**{one.name: False for one in fields(CodePasses)})),
)  # fmt: skip
"""No pass over instructions."""
EVERY_STEP = Variant(
    "weights-every-step", "every step", WeightsChosen(DEFAULT.planner, keeps_weights=False)
)
"""What the paper's times of recurrent layers fit."""
KEPT = Variant("weights-kept", "once", WeightsChosen(DEFAULT.planner, keeps_weights=True))
AFTER = replace(DEFAULT, name="after", title="after")
