"""Plans of convolutions that nobody chose, on machines of any size."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from hypothesis import strategies as st

from tests.codegen.snowflake.snowflake_cases import machine
from tvm_npu.codegen.graph import FixedGraph
from tvm_npu.codegen.plan.layers import question_of
from tvm_npu.codegen.plan.problem import ConvProblem
from tvm_npu.codegen.snowflake.plan.refused import modes_of
from tvm_npu.codegen.snowflake.plan.tiling import SnowflakePlan, conv_shape, geometry, together
from tvm_npu.sim.snowflake.isa import LANES
from tvm_npu.sim.snowflake.machine import SnowflakeMachine


@dataclass(frozen=True)
class Given:
    """A planner that always answers the same."""

    answer: SnowflakePlan
    name: str = "given"

    def plan(self, problem: ConvProblem, machine: Any) -> SnowflakePlan:
        return self.answer


def problem_of(fixed: FixedGraph, on: SnowflakeMachine) -> ConvProblem:
    found = question_of(fixed.layers[0], fixed, on)
    assert isinstance(found, ConvProblem)
    return found


def with_buffers(mbuf_bytes: int, wbuf_bytes: int, cus: int = 4) -> SnowflakeMachine:
    """snowflake-1cc with other buffers."""
    described = machine("snowflake-1cc").model_dump()
    described["clusters"] |= {"mbuf_bytes": mbuf_bytes, "wbuf_bytes": wbuf_bytes, "cus": cus}
    return SnowflakeMachine.model_validate(described)


SIZES = st.integers(32, 2048).map(lambda lines: 32 * lines)
MACHINES = st.one_of(
    st.sampled_from(("snowflake-1cc", "snowflake-1cu")).map(machine),
    st.builds(with_buffers, SIZES, SIZES, st.integers(1, 4)),
)


def space(problem: ConvProblem, on: SnowflakeMachine) -> Iterator[SnowflakePlan]:
    """Every plan that `exact` is to choose from, sound or not."""
    shape = conv_shape(problem)
    for mode in modes_of(shape):
        unit = LANES if mode == "lane" else together(mode, on)
        sizes = {shape.filters, *range(unit, shape.filters + 1, unit)}
        for stays in ("maps", "kernels"):
            for m in sorted(sizes):
                for r in range(1, shape.rows.out + 1):
                    for c in range(1, shape.columns.out + 1):
                        yield SnowflakePlan(mode, m, r, c, stays)  # type: ignore[arg-type]


def fits(problem: ConvProblem, plan: SnowflakePlan, on: SnowflakeMachine) -> bool:
    return geometry(conv_shape(problem), plan, on).rooms is not None


@st.composite
def plan_of(draw: st.DrawFn, problem: ConvProblem, on: SnowflakeMachine) -> SnowflakePlan | None:
    """A plan that fits, with tiles of any size; None where a few draws find none."""
    shape = conv_shape(problem)
    for _ in range(6):
        mode = draw(st.sampled_from(modes_of(shape)))
        unit = LANES if mode == "lane" else together(mode, on)
        groups = draw(st.integers(1, -(-shape.filters // unit)))
        plan = SnowflakePlan(
            mode, min(shape.filters, unit * groups), draw(st.integers(1, shape.rows.out)),
            draw(st.integers(1, shape.columns.out)), draw(st.sampled_from(("maps", "kernels"))),
        )  # fmt: skip
        if fits(problem, plan, on):
            return plan
    return None
