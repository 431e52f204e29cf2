"""The e-PlaNNer reproduction: its arithmetic, its questions, its command."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from studies.eplanner import measuring
from studies.eplanner.layers import Workload, tensor_bytes, workload
from studies.eplanner.measuring import Row, Simulations, reductions, setup_machine, speed_ups
from studies.eplanner.space import kept_space, whole_space
from studies.eplanner.study import STUDY
from studies.eplanner.tables import average, print_measured
from studies.harness.command import main
from studies.harness.errors import StudyError
from tvm_npu.codegen.plan import planner
from tvm_npu.codegen.plan.problem import ConvProblem
from tvm_npu.models.eplanner import NETWORKS

SMALL = ConvProblem(
    filters=24, channels=20, groups=1, rows=9, columns=9, in_rows=9, in_columns=9, kernel=(3, 3),
    stride=(1, 1), dilation=(1, 1), padding=(1, 1, 1, 1), element_bytes=4, accumulator_bytes=4,
)  # fmt: skip


@pytest.fixture(autouse=True)
def forgotten() -> None:
    """What another test made of a network's layers."""
    measuring.checked_workload.cache_clear()
    measuring._kept.cache_clear()


def row(model: str, setup: str, name: str, moved: int, time: float) -> Row:
    return Row(model, setup, name, moved, time, time, 0.01, 1000, 10, 26, 18, 50)


ROWS = (
    row("squeezenet", "A", "eplanner", 100, 10),
    row("squeezenet", "A", "zhang", 125, 20),
    row("squeezenet", "A", "ma", 200, 10),
    row("squeezenet", "A", "smartshuttle", 100, 30),
    row("squeezenet", "A", "exact-traffic", 90, 15),
)


def test_averages() -> None:
    found = reductions(ROWS)
    assert found == {("squeezenet", "A"): pytest.approx({"zhang": 20, "ma": 50, "smartshuttle": 0})}
    assert average(list(found.values())) == pytest.approx(70 / 3)
    assert speed_ups(ROWS) == {("squeezenet", "A"): pytest.approx(2.0)}


def test_tables_have_paper_ours_and_ratio() -> None:
    out = io.StringIO()
    timed = (measuring.Timed(100.0, 10, 101.0), measuring.Timed(200.0, 10, 198.0))
    print_measured(Console(file=out, width=160), measuring.Measured(ROWS, timed))
    text = out.getvalue()
    assert "21.14" in text
    assert "23.33" in text
    assert "1.10" in text  # 23.33 / 21.14
    assert "9.450" in text
    assert "cases in which exact-traffic moves least: 1 of 1" in text


def test_layers_are_those_of_the_thesis() -> None:
    load = workload("squeezenet", NETWORKS[3], setup_machine("A"))
    assert (load.layers, load.distinct) == (26, 18)
    assert sum(count for _, count in load.problems) == 26
    problem = load.problems[0][0]
    assert (problem.filters, problem.channels, problem.kernel) == (64, 3, (3, 3))
    assert (problem.element_bytes, problem.accumulator_bytes) == (4, 4)
    assert load.compulsory_bytes > 4.698 * 2**20


def test_spaces() -> None:
    kept = kept_space(SMALL, setup_machine("A"))
    assert kept > 0 and kept % 3 == 0
    point = replace(SMALL, filters=3, channels=2, rows=1, columns=1, kernel=(1, 1))
    assert whole_space(point) == 3 * 2 * 720  # 1, 2 or 3 tiles of filters, 1 or 2 of channels
    assert tensor_bytes(SMALL) == 4 * (20 * 81 + 24 * 20 * 9 + 24 * 81)


def test_a_simulation_runs_once_and_moves_what_was_predicted() -> None:
    machine, simulations = setup_machine("A"), Simulations()
    plan = planner("eplanner").plan(SMALL, machine)  # type: ignore[arg-type]
    timed = simulations.run(SMALL, plan, machine)  # type: ignore[arg-type]
    again = replace(plan, planner="another")
    assert simulations.run(SMALL, again, setup_machine("B")) is timed  # type: ignore[arg-type]
    assert timed.moved_bytes == measuring.moved_bytes(plan.prediction)  # type: ignore[arg-type, union-attr]
    assert timed.cycles == pytest.approx(timed.predicted_cycles, rel=0.1)


def test_wrong_values_stop_the_reproduction() -> None:
    machine, simulations = setup_machine("A"), Simulations()
    plan = planner("exact").plan(SMALL, machine)  # type: ignore[arg-type]
    simulations.run(SMALL, plan, machine)  # type: ignore[arg-type]
    simulations.done.clear()
    simulations._expected[SMALL] = simulations._expected[SMALL] + 1
    with pytest.raises(StudyError, match="elements differ from the reference; the limit"):
        simulations.run(SMALL, plan, machine)  # type: ignore[arg-type]


def test_the_command_writes_json(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tiny = Workload("squeezenet", 26, 18, ((SMALL, 2),))
    monkeypatch.setattr(measuring, "workload", lambda *_: tiny)
    file = tmp_path / "cells.json"
    options = ["--json", str(file), "--models", "squeezenet", "--setups", "A", "D"]
    assert main(STUDY, options) == 0
    cells = json.loads(file.read_text())
    assert len(cells) == 2 * len(measuring.PLANNERS)
    wanted = {"model", "setup", "planner", "offchip_bytes", "simulated_us", "plan_s", "space"}
    assert all(wanted | {"space_kept"} <= set(cell) for cell in cells)
    least = {cell["setup"]: cell["offchip_bytes"] for cell in cells
             if cell["planner"] == "exact-traffic"}  # fmt: skip
    assert all(cell["offchip_bytes"] >= least[cell["setup"]] for cell in cells)


def test_distinct_layers_must_be_as_published(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measuring, "workload", lambda *_: Workload("alexnet", 8, 7, ((SMALL, 1),)))
    assert main(STUDY, ["--models", "alexnet", "--setups", "A"]) == 1
