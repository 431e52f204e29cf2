"""Tuning layers on tile machines, and the planners that use the log."""

from __future__ import annotations

import json
import warnings
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.codegen.plan.loops import tile_cases as cases
from tests.examples import examples
from tvm_npu.codegen.compile import compile_fixed
from tvm_npu.codegen.plan import TileLimits, planner, tuned_planner_names
from tvm_npu.codegen.plan.loops.plan import LoopPlan
from tvm_npu.codegen.plan.problem import ConvProblem, Infeasible
from tvm_npu.codegen.tiles.tune.tile_space import TileSpace
from tvm_npu.codegen.tune.errors import (
    EmptySpaceError,
    MeasureError,
    TuningLogError,
    UntunedWarning,
)
from tvm_npu.codegen.tune.log import LogWriter, Run
from tvm_npu.codegen.tune.space import space_of
from tvm_npu.codegen.tune.tune import Tuned, tune
from tvm_npu.sim.description import MachineDescription
from tvm_npu.sim.machine_file import load_machine, machine_from_dict
from tvm_npu.sim.tiles.traps import TileTrapCode
from tvm_npu.sim.traps import Place, Trap
from tvm_npu.tuning import measure as measuring
from tvm_npu.tuning.measure import LayerMeasure, WrongValuesError, bare
from tvm_npu.tuning.model import Question, questions, tune_layer, warm_plans
from tvm_npu.tuning.single_layer import layer_on

MACHINE = cases.setup("a")
LAYER = cases.layer(24, 16, 9)
OTHER = cases.layer(32, 16, 9, kernel=1)
TRIALS = 24
RANDOM, LEARNED = Run("random", False, 0), Run("learned", False, 0)


@pytest.fixture(scope="module")
def tuned(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Tuned[LoopPlan]]:
    path = tmp_path_factory.mktemp("logs") / "log.jsonl"
    with LogWriter(path) as log:
        found = tune(TileSpace(LAYER, MACHINE), LEARNED, TRIALS, LayerMeasure(LAYER, MACHINE), log)
    return path, found


def planned(name: str, problem: ConvProblem, log: Path, **limits: int) -> LoopPlan:
    plan = planner(name, TileLimits(**limits), log).plan(problem, MACHINE)  # type: ignore[arg-type]
    assert isinstance(plan, LoopPlan) and plan.prediction is not None
    return plan


@given(st.sampled_from(("setup-a", "setup-d", "zynq-7020")), st.integers(0, 99), st.data())
@settings(max_examples=examples(30), deadline=None)
def test_random_plans_run_to_the_bit(name: str, seed: int, data: st.DataObject) -> None:
    machine = load_machine(name)
    widths = data.draw(st.sampled_from(((4, 4), (4, 8))))
    problem = cases.layer(
        data.draw(st.sampled_from((4, 12))), data.draw(st.sampled_from((4, 8))), 6,
        kernel=data.draw(st.sampled_from((1, 3))), stride=data.draw(st.integers(1, 2)),
        groups=data.draw(st.sampled_from((1, 2, 4))),
        has_residual=data.draw(st.booleans()),
        element_bytes=widths[0], accumulator_bytes=widths[1],
    )  # fmt: skip
    try:
        plan = space_of(problem, machine).sample(np.random.default_rng(seed))
    except EmptySpaceError:
        return
    assert LayerMeasure(problem, machine)(plan) > 0


def test_the_best_is_no_slower_than_the_first(tuned: tuple[Path, Tuned[LoopPlan]]) -> None:
    _, found = tuned
    assert found.best is not None and found.cycles[0] is not None
    assert found.best[1] < max(cycles for cycles in found.cycles if cycles is not None)
    assert found.best[1] <= found.cycles[0]
    assert len(set(found.plans)) > TRIALS // 2


def test_an_interrupted_run_ends_as_one_that_was_not(
    tuned: tuple[Path, Tuned[LoopPlan]], tmp_path: Path
) -> None:
    whole = tuned[0].read_bytes()
    path = tmp_path / "log.jsonl"
    path.write_bytes(b"".join(whole.splitlines(keepends=True)[: TRIALS // 2 + 3]))
    with LogWriter(path) as log:
        again = tune(TileSpace(LAYER, MACHINE), LEARNED, TRIALS, LayerMeasure(LAYER, MACHINE), log)
    assert path.read_bytes() == whole
    assert again.plans == tuned[1].plans and again.measured == TRIALS - TRIALS // 2 - 3


def test_planners_take_the_fastest_trial(tuned: tuple[Path, Tuned[LoopPlan]]) -> None:
    path, found = tuned
    assert found.best is not None
    for name in tuned_planner_names():
        plan = planned(name, LAYER, path)
        assert plan.prediction is not None and plan.planner == name
        assert (bare(plan), plan.prediction.cycles) == found.best
        graph, _ = layer_on(LAYER, MACHINE)
        program = compile_fixed(graph, MACHINE, planner(name, tuning_log=path))
        assert program.layers[0].predicted_cycles == found.best[1]
    limited = planned("learned", LAYER, path, max_tile_m=found.best[0].tile_m - 1)
    assert limited.tile_m < found.best[0].tile_m


def test_layers_without_trials_are_planned_by_exact(tuned: tuple[Path, Tuned[LoopPlan]]) -> None:
    path, _ = tuned
    exact = planner("exact")
    for name in tuned_planner_names():
        with pytest.warns(UntunedWarning, match=r"no trial of convolution 32x16x1x1 of 16x9x9 on "
                          r"machine 'setup-a'; it is planned by 'exact'"):  # fmt: skip
            assert planned(name, OTHER, path) == exact.plan(OTHER, MACHINE)  # type: ignore[arg-type]
        with pytest.warns(UntunedWarning, match="machine 'small'"):
            planner(name, tuning_log=path).plan(LAYER, cases.small(8192, 8192, 8192))  # type: ignore[arg-type]
        # Widths are part of a layer.
        with pytest.warns(UntunedWarning):
            planned(name, replace(LAYER, accumulator_bytes=8), path)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            large, tiny_machine = cases.layer(8, 8, 9, kernel=7), cases.small(64, 64, 64)
            tiny = planner(name, tuning_log=path).plan(large, tiny_machine)  # type: ignore[arg-type]
        assert isinstance(tiny, Infeasible)


def test_plans_of_a_log_that_are_none(tuned: tuple[Path, Tuned[LoopPlan]], tmp_path: Path) -> None:
    lines = tuned[0].read_text().splitlines()
    bad = tmp_path / "bad.jsonl"
    lines[4] = json.dumps({**json.loads(lines[4]), "plan_tile_n": 99, "cycles": 1.0, "error": None})
    bad.write_text("\n".join(lines) + "\n")
    for name in tuned_planner_names():
        with pytest.raises(TuningLogError, match=r"line 5: .*tile_n is 99; it must be .* to 16"):
            planned(name, LAYER, bad)


def test_what_cannot_be_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    measure = LayerMeasure(LAYER, MACHINE)
    for _ in range(2):
        with pytest.raises(MeasureError, match="tile_m is 25; it must be an integer from 1 to 24"):
            measure(LoopPlan(25, 16, 9, 9))
    with pytest.raises(MeasureError, match="plan makes 31,104 steps; at most 5,00"):
        measure(LoopPlan(1, 1, 1, 1))

    class Trapping:
        def __init__(self, *_: object, **__: object) -> None: ...

        def run_fixed(self, _: object) -> None:
            raise Trap(TileTrapCode(1), Place(position="instruction 3"), "the engine stops")

    monkeypatch.setattr(measuring, "Session", Trapping)
    with pytest.raises(MeasureError, match="instruction 3: the engine stops"):
        measure(LoopPlan(24, 16, 9, 9))


def test_wrong_values_are_no_bad_luck() -> None:
    measure = LayerMeasure(LAYER, MACHINE)
    measure._expected[0, 3, 2, 1] ^= 1
    with pytest.raises(WrongValuesError, match="1 of 1944 elements differ"):
        measure(LoopPlan(24, 16, 9, 9))


@pytest.mark.parametrize(("widths", "element_bytes", "bits"), [((4, 4), 1, 8), ((4, 8), 2, 16)])
def test_widths_in_memory_say_the_precision(
    widths: tuple[int, int], element_bytes: int, bits: int
) -> None:
    problem = replace(LAYER, element_bytes=widths[0], accumulator_bytes=widths[1])
    graph, found = layer_on(problem, MACHINE)
    assert (graph.element_bytes, found) == (element_bytes, bits)


def test_widths_that_a_machine_does_not_have() -> None:
    with pytest.raises(ValueError, match="elements of 2 bytes with sums of 8: machine 'setup-a'"):
        layer_on(replace(LAYER, element_bytes=2, accumulator_bytes=8), MACHINE)


def test_narrow_accumulators_get_narrow_values() -> None:
    """16-bit values at full range would overflow sums of 4 bytes, which traps."""
    values = MACHINE.model_dump()
    values["words"] = {**values["words"], "int8_bytes": 1, "int16_accumulator_bytes": 4}
    machine: MachineDescription = machine_from_dict(values)
    graph, bits = layer_on(LAYER, machine)
    assert graph.element_bytes == 2 and 8 < bits < 16
    assert LayerMeasure(LAYER, machine)(LoopPlan(24, 16, 9, 9)) > 0


def test_questions_and_warm_runs(tmp_path: Path) -> None:
    graph, _ = layer_on(LAYER, MACHINE)
    (question,) = questions([graph, graph], MACHINE)
    assert question == Question(LAYER, "layer", 2)
    first = warm_plans(LAYER, MACHINE)
    assert first and first[0] == bare(planner("exact").plan(LAYER, MACHINE))  # type: ignore[arg-type, type-var]
    with LogWriter(tmp_path / "log") as log:
        outcome = tune_layer(question, MACHINE, Run("random", True, 0), len(first), log)
    assert outcome.best_cycles is not None and outcome.exact_cycles is not None
    assert outcome.best_cycles <= outcome.exact_cycles


def test_questions_are_those_of_compiled_layers() -> None:
    """Without taps that meet nothing but padding."""
    wide = replace(LAYER, kernel=(3, 3), dilation=(9, 40), padding=(9, 40, 9, 40), in_rows=9,
                   in_columns=9)  # fmt: skip
    graph, _ = layer_on(wide, MACHINE)
    (question,) = questions([graph], MACHINE)
    assert question.problem.kernel == (1, 1)
    graph, _ = layer_on(replace(wide, dilation=(4, 40), padding=(4, 40, 4, 40)), MACHINE)
    (question,) = questions([graph], MACHINE)
    assert (question.problem.kernel, question.problem.padding) == ((3, 1), (4, 0, 4, 0))
