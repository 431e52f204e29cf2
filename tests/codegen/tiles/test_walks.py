"""Walks over the steps of plans of loops say what the clocks of emitted commands say, to the cycle
but for the words that issue, and the simulator near to it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.codegen.plan.loops.tile_cases import layer, plans, problems, setup, shared, small
from tests.codegen.tiles.tile_cases import Given
from tests.examples import examples
from tvm_npu.codegen.compile import compile_fixed
from tvm_npu.codegen.plan import planner, planner_names
from tvm_npu.codegen.plan.loops.cost import predicted
from tvm_npu.codegen.plan.loops.exact import LoopProof, prove
from tvm_npu.codegen.plan.loops.plan import LOOPS, LoopPlan, extent, seen, steps
from tvm_npu.codegen.plan.loops.room import biases_stay, check_loop_plan, tile_places
from tvm_npu.codegen.plan.loops.walked import can_be_walked, walked_cycles
from tvm_npu.codegen.plan.problem import ConvProblem
from tvm_npu.codegen.tiles.emit.actions import ActionSteps
from tvm_npu.codegen.tiles.emit.convolution import ConvCommands, stated_taps
from tvm_npu.codegen.tiles.emit.interlock import Clocks, TimedStep, timed_steps
from tvm_npu.codegen.tiles.emit.layer import Operands
from tvm_npu.codegen.tiles.emit.pipeline import TileStep
from tvm_npu.codegen.tiles.ir.run import random_layer
from tvm_npu.codegen.tiles.plan.loop_machine import loop_machine
from tvm_npu.runtime.session import Session
from tvm_npu.sim.tiles.machine import TileMachine

APART = 1 << 24
"""Bytes between tensors outside of the chip."""
MACHINES = (
    small(), small(4096, 4096, 4096, taps_at_once=3), small(512, 2048, 2048, setup_cycles=0.0),
    shared(8192),
)  # fmt: skip


def with_mover(machine: TileMachine, bytes_per_cycle: float, setup_cycles: float) -> TileMachine:
    assert machine.mover is not None
    changes = {"bytes_per_cycle": bytes_per_cycle, "setup_cycles": setup_cycles}
    return machine.model_copy(update={"mover": machine.mover.model_copy(update=changes)})


def emitted(problem: ConvProblem, plan: LoopPlan, machine: TileMachine) -> Iterator[TimedStep]:
    """The steps of commands that code generation makes of ``plan``, whose words take no time."""
    view = loop_machine(machine)
    (conv,) = random_layer(problem, 1, seed=0).layers
    operands = Operands((0, APART), 2 * APART, 3 * APART, 4 * APART, 5 * APART)
    made = ConvCommands(
        conv, problem, operands, plan.touched_only, stated_taps(plan.taps_at_once, machine)  # type: ignore[arg-type]
    )
    actions = ActionSteps(
        seen(problem, plan), steps(problem, plan), tile_places(problem, plan, view),
        biases_stay(problem, view), plan.keeps_rows, plan.resident,
    )  # fmt: skip
    commands = (
        TileStep(*(tuple(made.commands(part)) for part in (one.loads, one.work, one.stores)))
        for one in actions
    )
    for one in timed_steps(commands, machine, problem.element_bytes, plan.buffers):
        yield TileStep(
            *(
                tuple(replace(command, words=0) for command in part)
                for part in (one.loads, one.work, one.stores)
            )
        )


@settings(max_examples=examples(400), deadline=None)
@given(
    st.data(), st.sampled_from(MACHINES), st.sampled_from((0.7, 4.0, 60.0)), st.integers(0, 40)
)  # fmt: skip
def test_walks_are_the_clocks_of_emitted_commands(
    data: st.DataObject, machine: TileMachine, bytes_per_cycle: float, setup_cycles: int
) -> None:
    problem = data.draw(problems())
    plan = data.draw(plans(problem))
    machine = with_mover(machine, bytes_per_cycle, float(setup_cycles))
    view = loop_machine(machine)
    if check_loop_plan(problem, plan, view) is not None:
        return
    said = walked_cycles(problem, plan, view)
    steps_of_plan = emitted(problem, plan, machine)
    assert said == pytest.approx(Clocks().behind(steps_of_plan, plan.buffers).end, rel=1e-9)
    if can_be_walked(problem, view):
        assert predicted(problem, plan, view).cycles == said


@pytest.mark.parametrize("seed", range(12))
def test_plans_take_what_is_predicted(seed: int) -> None:
    """Random convolutions on set-up A, also with a slow mover, under `exact` and other planners: of
    none is the prediction far off, and by simulation `exact` is the fastest, too."""
    draw = np.random.default_rng(seed)
    kernel, stride = int(draw.choice((1, 3, 5))), int(draw.choice((1, 1, 2)))
    filters, channels, size = (int(draw.integers(*one)) for one in ((8, 64), (8, 64), (6, 30)))
    problem = layer(filters, channels, size, kernel, stride)
    machine = with_mover(setup("a"), (58.8, 8.0)[seed % 2], 32.0)
    took = {}
    for name in ("exact", "double-buffer", "eplanner"):
        plan = planner(name).plan(problem, machine)
        assert isinstance(plan, LoopPlan) and plan.prediction is not None
        program = compile_fixed(random_layer(problem, 1, seed=0), machine, Given(plan))
        session = Session(program)
        session.run_fixed([np.zeros((1, *one.shape), np.int8) for one in program.inputs])
        assert session.statistics is not None
        took[name] = session.statistics.cycles
        assert plan.prediction.cycles == pytest.approx(took[name], rel=0.01, abs=24), name
    assert took["exact"] <= 1.002 * min(took.values())


def test_long_plans_are_estimated(monkeypatch: pytest.MonkeyPatch) -> None:
    """In closed form, which takes all tiles to be of one size."""
    problem, machine = layer(6, 5, 6), loop_machine(small())
    plan = LoopPlan(4, 2, 4, 6, buffers=2)
    walked = predicted(problem, plan, machine)
    monkeypatch.setattr("tvm_npu.codegen.plan.loops.cost.MOST_WALKED", 1)
    estimated = predicted(problem, plan, machine)
    assert estimated.mac_cycles == walked.mac_cycles
    assert estimated.cycles == pytest.approx(walked.cycles, rel=0.2)
    assert estimated.cycles != walked.cycles


@pytest.mark.parametrize("seed", range(10))
def test_no_other_planner_and_no_other_size_is_faster(seed: int) -> None:
    """Of random convolutions on set-up A: than the plan of `exact`, which may change in a loop."""
    draw = np.random.default_rng(seed)
    kernel, stride = int(draw.choice((1, 3, 5))), int(draw.choice((1, 1, 2)))
    filters, channels, size = (int(draw.integers(*one)) for one in ((1, 100), (1, 100), (5, 33)))
    problem = layer(filters, channels, size, kernel, stride, has_residual=bool(seed % 2))
    machine, view = setup("a"), loop_machine(setup("a"))
    found = prove(problem, view)
    assert isinstance(found, LoopProof)
    for loop in LOOPS:
        for tile in range(1, extent(problem, loop) + 1):
            other = replace(found.plan, **{f"tile_{loop.lower()}": tile})  # type: ignore[arg-type]
            if check_loop_plan(problem, other, view) is None:
                assert predicted(problem, other, view).cycles >= found.value - 1e-6, other
    for name in planner_names(machine):
        plan = planner(name).plan(problem, machine)
        assert isinstance(plan, LoopPlan) and plan.prediction is not None
        assert plan.prediction.cycles >= found.value - 1e-6, name
