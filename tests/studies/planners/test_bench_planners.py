"""The benchmark of every planner on every machine: rows, tables, exit codes."""

from __future__ import annotations

import io
from pathlib import Path
from types import SimpleNamespace

import pytest
from rich.console import Console

from studies.harness.command import main
from studies.harness.errors import StudyError
from studies.planners import measuring
from studies.planners.measuring import LayerRow, Outcome, Row
from studies.planners.study import STUDY
from studies.planners.tables import print_errors, print_rows
from tvm_npu.codegen.errors import PlanningError
from tvm_npu.sim import making_code
from tvm_npu.sim.machine_file import load_machine

GOOD = Row("lenet", "setup-a", "exact", "int8", 0, 12.5, 12.0, 100, 0.1, 0.1)
OFF = Row("lenet", "setup-a", "tso", "int8", 3, 13.5, 12.0, 100, 0.1, 0.1)
FAILED = Row("lenet", "setup-a", "ma", "int8", None, None, None, None, 0.1, 0.0, "PlanningError: x")


def test_table_shows_times_bits_and_failures() -> None:
    out = io.StringIO()
    print_rows(Console(file=out, width=120), [GOOD, OFF, FAILED])
    text = out.getvalue()
    assert "2 of 3 combinations ran; 3 bits off in all" in text
    assert "did not run: lenet, setup-a, ma: PlanningError: x" in text
    assert "12.5" in text


def test_errors_of_predictions_by_class() -> None:
    """Of two small layers 10 and 20 %, of a large one 5 %; one has no prediction."""
    out = io.StringIO()
    layers = [
        LayerRow("lenet", "setup-a", "exact", "a", 9, simulated, predicted)
        for simulated, predicted in ((500.0, 550.0), (600.0, 480.0), (2e5, 2.1e5), (700.0, None))
    ]
    print_errors(Console(file=out, width=120), layers)
    (row,) = (line for line in out.getvalue().splitlines() if "setup-a" in line)
    assert row.split()[2:] == ["11.7", "(3)", "15.0", "(2)", "-", "-", "5.0", "(1)"]
    print_errors(Console(file=out, width=120), layers[3:])


def test_anything_wrong_is_an_error() -> None:
    STUDY.check([Outcome(GOOD)])
    with pytest.raises(StudyError, match="1 of 3 combinations did not run, 1 have bits off"):
        STUDY.check([Outcome(row) for row in (GOOD, OFF, FAILED)])


def test_unknown_model_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(STUDY, ["--models", "lenett"]) == 2
    assert "unknown model 'lenett'; known: " in capsys.readouterr().err


@pytest.mark.relay
def test_planners_run_to_the_bit(tmp_path: Path) -> None:
    file = tmp_path / "rows.json"
    layers = tmp_path / "layers.json"
    options = ["--quick", "--models", "digits_lenet", "--json", str(file), "--layers", str(layers)]
    assert main(STUDY, [*options, "--planners", "tso", "exact", "eplanner", "naive"]) == 0
    assert file.exists() and layers.exists()


def test_machine_code_is_neither_compiling_nor_simulating(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0

    def compile_slowly(*arguments: object) -> None:
        nonlocal now
        now += 2.0
        with making_code.making_code():
            now += 60.0
        raise PlanningError("too large")

    monkeypatch.setattr(making_code.time, "perf_counter", lambda: now)
    monkeypatch.setattr(measuring, "compile_fixed", compile_slowly)
    region = SimpleNamespace(fixed=None)
    monkeypatch.setattr(
        measuring, "_network", lambda *_: SimpleNamespace(model="m", regions=[region])
    )
    row = measuring.measure("m", load_machine("setup-a"), "naive").row
    assert (row.compile_s, row.simulate_s) == (2.0, 0.0)
    assert row.error == "PlanningError: too large"
