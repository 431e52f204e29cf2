"""Planners that plan by a tuning log."""

from __future__ import annotations

import json
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest

from tests.codegen.nmp.plan import plan_reference as reference
from tvm_npu.codegen.compile import compile_fixed
from tvm_npu.codegen.errors import PlanningError
from tvm_npu.codegen.nmp.plan.check import check_plan
from tvm_npu.codegen.nmp.plan.conv_plan import ConvPlan
from tvm_npu.codegen.nmp.plan.cost import predict
from tvm_npu.codegen.nmp.plan.shortlist import shortlist
from tvm_npu.codegen.nmp.tune.conv_space import ConvSpace
from tvm_npu.codegen.plan import (
    TileLimits,
    planner,
    planner_fault,
    planner_names,
    tuned_planner_names,
)
from tvm_npu.codegen.plan.problem import ConvProblem, Infeasible
from tvm_npu.codegen.tune.errors import MissingPackageError, TuningLogError, UntunedWarning
from tvm_npu.codegen.tune.history import history
from tvm_npu.codegen.tune.log import LogWriter, Run
from tvm_npu.codegen.tune.planner import described
from tvm_npu.codegen.tune.residual import ResidualModel, examples_of
from tvm_npu.codegen.tune.space import check_tunable
from tvm_npu.codegen.tune.tune import tune
from tvm_npu.errors import TargetError
from tvm_npu.options import NpuOptions, make_options
from tvm_npu.sim.machine_file import load_machine
from tvm_npu.sim.nmp.machine import load_nmp_machine
from tvm_npu.tuning.measure import LayerMeasure, bare
from tvm_npu.tuning.single_layer import single_layer

MACHINE = load_nmp_machine("nmp-4x8")
LAYER = reference.conv(24, 16, (9, 9), (3, 3), padding=(1, 1, 1, 1))
OTHER = reference.conv(32, 16, (9, 9), (1, 1))
TRIALS = 40


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Random trials of one layer."""
    path = tmp_path_factory.mktemp("logs") / "log.jsonl"
    with LogWriter(path) as writer:
        measure = LayerMeasure(LAYER, MACHINE)
        tune(ConvSpace(LAYER, MACHINE), Run("random", False, 0), TRIALS, measure, writer)
    return path


def best(log: Path, extent: str = "tile_r", most: int = 99) -> float:
    found = [
        trial["cycles"]
        for trial in map(json.loads, log.read_text().splitlines())
        if trial[f"plan_{extent}"] <= most and trial["cycles"] is not None
    ]
    return min(found)


def planned(name: str, problem: ConvProblem, log: Path, **limits: int) -> ConvPlan:
    plan = planner(name, TileLimits(**limits), log).plan(problem, MACHINE)
    assert isinstance(plan, ConvPlan) and plan.prediction is not None
    assert plan.planner == name or problem != LAYER
    return plan


def test_learned_takes_the_fastest_trial(log: Path) -> None:
    plan = planned("learned", LAYER, log)
    assert plan.prediction is not None
    assert plan.prediction.cycles == best(log) == LayerMeasure(LAYER, MACHINE)(bare(plan))
    program = compile_fixed(single_layer(LAYER), MACHINE, planner("learned", tuning_log=log))
    assert program.planner == "learned"
    assert program.layers[0].predicted_cycles == best(log)


def test_learned_keeps_to_limits(log: Path) -> None:
    free = planned("learned", LAYER, log)
    for extent in ("tile_m", "tile_n", "tile_r", "tile_c"):
        most = getattr(free, extent) - 1
        if most > 0:
            plan = planned("learned", LAYER, log, **{f"max_{extent}": most})
            assert getattr(plan, extent) <= most and plan.prediction is not None
            assert plan.prediction.cycles == best(log, extent, most) >= best(log)
            assert plan != free


def test_layers_without_trials_are_planned_by_exact(log: Path) -> None:
    with pytest.warns(UntunedWarning, match=r"no trial of convolution 32x16x1x1 of 16x9x9 on "
                      r"machine 'nmp-4x8'; it is planned by 'exact'"):  # fmt: skip
        plan = planned("learned", OTHER, log)
    assert plan == planner("exact").plan(OTHER, MACHINE)
    tiny = reference.machine(memories=(64, 64, 64, 64))
    nothing = reference.conv(8, 8, (9, 9), (7, 7))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for name in tuned_planner_names():
            answer = planner(name, tuning_log=log).plan(nothing, tiny)
            assert isinstance(answer, Infeasible)


def test_other_machines_have_no_trials(log: Path) -> None:
    dual = load_nmp_machine("nmp-4x8-dual")
    with pytest.warns(UntunedWarning, match="on machine 'nmp-4x8-dual'"):
        plan = planner("learned", tuning_log=log).plan(LAYER, dual)
    assert plan == planner("exact").plan(LAYER, dual)


def test_exact_tuned_is_never_behind_the_log_by_what_it_expects(log: Path) -> None:
    plan = planned("exact-tuned", LAYER, log)
    listed = shortlist(LAYER, MACHINE, 12)
    assert not isinstance(listed, Infeasible)
    assert plan.prediction is not None and plan.prediction.cycles <= best(log)
    logged = {one.plan for one in history(log).of(ConvSpace(LAYER, MACHINE))}
    assert bare(plan) in logged | {bare(one) for one in listed}
    assert check_plan(LAYER, plan, MACHINE) is None


def test_exact_tuned_takes_what_was_measured_to_be_faster(tmp_path: Path) -> None:
    """A log that says that the analytic model is wrong about its own best plan."""
    listed = shortlist(LAYER, MACHINE, 3)
    assert not isinstance(listed, Infeasible) and len(listed) == 3
    path = tmp_path / "log.jsonl"

    def claimed(plan: ConvPlan) -> float:
        return 500.0 if plan == bare(listed[1]) else 1e6

    with LogWriter(path) as writer:
        first = [bare(plan) for plan in listed]
        tune(ConvSpace(LAYER, MACHINE), Run("random", True, 0), 3, claimed, writer, first)
    with pytest.warns(UntunedWarning, match="too few trials"):
        plan = planned("exact-tuned", LAYER, path)
    assert bare(plan) == bare(listed[1])
    assert plan.prediction is not None and plan.prediction.cycles == 500.0


def test_a_residual_model_learns_a_bias(log: Path) -> None:
    """Of a machine that takes twice as long wherever weights go over the ring."""
    examples = examples_of(history(log), MACHINE)
    assert 20 < len(examples) <= TRIALS
    factors = {False: 1.0, True: 2.0}
    from dataclasses import replace

    biased = [
        replace(one, cycles=one.prediction.cycles * factors[one.plan.ring_weights])
        for one in examples
    ]
    model = ResidualModel(MACHINE, biased)
    for one in biased:
        got = model.cycles(LAYER, [one.plan])[0]
        assert got == pytest.approx(one.cycles, rel=0.25)


@pytest.mark.parametrize("name", ["nmp-4x8", "nmp-4x8-dual"])
@pytest.mark.parametrize(
    "problem", [LAYER, OTHER, reference.conv(16, 16, (8, 8), (3, 3), groups=16)]
)
def test_shortlists(problem: ConvProblem, name: str) -> None:
    machine = load_nmp_machine(name)
    listed = shortlist(problem, machine, 8, slack=0.3)
    assert not isinstance(listed, Infeasible) and 1 <= len(listed) <= 8
    assert listed[0] == planner("exact").plan(problem, machine)
    times = [plan.prediction.cycles for plan in listed if plan.prediction is not None]
    assert times == sorted(times) and times[-1] <= 1.3 * times[0]
    assert len({bare(plan) for plan in listed}) == len(listed)
    for plan in listed:
        assert check_plan(problem, plan, machine) is None
        assert predict(problem, plan, machine) == plan.prediction
    # Nothing drawn at random is faster than the first.
    space, generator = ConvSpace(problem, machine), np.random.default_rng(0)
    drawn = [predict(problem, space.sample(generator), machine).cycles for _ in range(60)]
    assert min(drawn) >= times[0] * (1 - 1e-9)


def altered(log: Path, path: Path, line: int, **changes: object) -> Path:
    lines = log.read_text().splitlines()
    lines[line - 1] = json.dumps({**json.loads(lines[line - 1]), **changes})
    path.write_text("\n".join(lines) + "\n")
    return path


def test_plans_of_a_log_that_are_none(log: Path, tmp_path: Path) -> None:
    trials = [json.loads(line) for line in log.read_text().splitlines()]
    line = 1 + next(at for at, one in enumerate(trials) if not one["plan_keeps_in"])
    bad = altered(log, tmp_path / "bad.jsonl", line, plan_tile_n=1000, cycles=1.0, error=None)
    for name in tuned_planner_names():
        with pytest.raises(
            TuningLogError, match=rf"line {line}: .*tile_n is 1000; it must be at most 16"
        ):
            planner(name, tuning_log=bad).plan(LAYER, MACHINE)
    bad = altered(log, tmp_path / "layer.jsonl", 1, problem_filters="many", cycles=1.0, error=None)
    with pytest.raises(TuningLogError, match=r"line 1: filters of the layer is 'many'"):
        planner("exact-tuned", tuning_log=bad).plan(LAYER, MACHINE)


def test_a_changed_log_is_read_again(log: Path, tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    path.write_bytes(log.read_bytes())
    before = planned("learned", LAYER, path)
    trials = [json.loads(line) for line in log.read_text().splitlines()]
    cycles = [one["cycles"] or 0.0 for one in trials]
    altered(log, path, 1 + cycles.index(max(cycles)), cycles=1.0, error=None)
    after = planned("learned", LAYER, path)
    assert after.prediction is not None and after.prediction.cycles == 1.0
    assert bare(after) != bare(before)


def test_names_and_logs_go_together(log: Path) -> None:
    assert not set(tuned_planner_names()) & set(planner_names())
    with pytest.raises(PlanningError, match="planner 'learned' plans by a tuning log, and none"):
        planner("learned")
    with pytest.raises(PlanningError, match="planner 'tso' takes no tuning log; 'learned' and"):
        planner("tso", tuning_log=log)
    with pytest.raises(TargetError, match="'learned' plans by a tuning log"):
        make_options(planner="learned")
    with pytest.raises(TargetError, match="cannot read tuning log .*none.jsonl"):
        make_options(planner="learned", tuning_log=log.parent / "none.jsonl")
    options = make_options(planner="learned", tuning_log=log)
    assert NpuOptions.from_json(options.to_json()) == options
    assert options.tuning_log == str(log)


def test_plans_of_logs_are_for_kinds_that_can_be_tuned(log: Path) -> None:
    snowflake, tiles = load_machine("snowflake-1cc"), load_machine("setup-a")
    assert tuned_planner_names(snowflake) == ()
    assert tuned_planner_names(tiles) == tuned_planner_names()
    assert planner_fault("snowflake", snowflake) is planner_fault("learned", tiles) is None
    for machine, name in (("snowflake-1cc", "learned"), ("setup-a", "snowflake")):
        asked = rf"planner '{name}' does not plan machine '{machine}' of isa .*; .*naive.* do$"
        given = log if name == "learned" else None
        with pytest.raises(TargetError, match=asked):
            make_options(machine, planner=name, tuning_log=given)
    with pytest.raises(PlanningError, match="'snowflake' cannot be tuned; those .* 'nmp', 'tiles'"):
        check_tunable(snowflake)
    check_tunable(tiles)


def test_without_xgboost(log: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "xgboost", None)
    path = tmp_path / "log.jsonl"
    path.write_bytes(log.read_bytes())
    assert planned("learned", LAYER, path), "needs no model"
    with pytest.raises(MissingPackageError, match="needs xgboost"):
        planned("exact-tuned", LAYER, path)


def test_layers_in_few_words() -> None:
    from dataclasses import replace

    from tvm_npu.codegen.plan.problem import Window

    assert described(reference.dense(10, 64)) == "fully connected layer 10x64"
    strided = reference.conv(8, 4, (9, 9), (3, 3), stride=(2, 2), has_residual=True)
    assert described(strided) == "convolution 8x4x3x3 of 4x9x9, stride 2x2 with residual"
    cascade = replace(LAYER, window=Window(9, 9, (3, 3), (1, 1), (1, 1), has_weights=True))
    assert described(cascade).endswith("and the depthwise convolution behind it")
