"""What a plan is expected to cost."""

from __future__ import annotations

from tvm_npu.codegen.plan.problem import ConvProblem, Prediction
from tvm_npu.codegen.snowflake.plan.greedy import moved_words
from tvm_npu.codegen.snowflake.plan.tiling import SnowflakePlan, conv_shape, geometry
from tvm_npu.sim.snowflake.isa import WORD_BYTES
from tvm_npu.sim.snowflake.machine import SnowflakeMachine


def predict(problem: ConvProblem, plan: SnowflakePlan, machine: SnowflakeMachine) -> Prediction:
    """A first estimate: MACs at the peak, or what memory takes."""
    shape = geometry(conv_shape(problem), plan, machine)
    macs = problem.macs / machine.macs_per_cycle(WORD_BYTES)
    moved = WORD_BYTES * moved_words(shape)
    out = WORD_BYTES * problem.filters * problem.rows * problem.columns
    load = moved / machine.memory_bytes_per_cycle
    store = out / machine.memory_bytes_per_cycle
    return Prediction(
        max(macs, load + store), macs, load, store, moved, 0, out,
        bound="mac" if macs > load + store else "dram",
    )
