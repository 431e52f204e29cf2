"""bench_vs_tvm: a run of one model, what counts as the same through both doors, tuners' rows."""

from __future__ import annotations

import io
import json
import sys
from argparse import Namespace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console

from studies.harness.command import main
from studies.harness.errors import StudyError
from studies.vs_tvm import measuring, study
from studies.vs_tvm.measuring import Place
from studies.vs_tvm.searches import Exact, search_rows
from studies.vs_tvm.study import STUDY, Compared, through_both_doors
from studies.vs_tvm.tables import print_rows, print_searches, print_times
from tvm_npu.comparison import timing
from tvm_npu.sim.machine_file import load_machine

ISSUED = (
    "model", "door", "runner", "machine", "precision", "latency_us", "simulated", "trials",
    "compile_s", "library_bytes", "peak_rss_bytes", "sqnr_db", "program_sha256", "output_sha256",
)  # fmt: skip


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    pytest.importorskip("tvm", reason="the relay extra is not installed")
    pytest.importorskip("onnxruntime")
    target = tmp_path_factory.mktemp("vs") / "rows.json"
    arguments = ["--models", "digits_lenet", "--runners", "npu", "onnxruntime", "--machines",
                 "nmp-4x8", "--threads", "1", "--repeats", "1", "--json", str(target)]  # fmt: skip
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(study, "OTHER", target)  # not there: one door
        assert main(STUDY, arguments) == 0
    assert not target.with_name("rows.json.work").exists()
    found: list[dict[str, Any]] = json.loads(target.read_text())
    return found


def test_rows_have_what_was_promised(rows: list[dict[str, Any]]) -> None:
    reference, npu = rows
    assert set(ISSUED) <= npu.keys() and npu.keys() == reference.keys()
    assert (reference["runner"], reference["simulated"]) == ("onnxruntime", False)
    assert (npu["machine"], npu["precision"], npu["simulated"]) == ("nmp-4x8", "int16", True)
    assert npu["sqnr_db"] > 40 and npu["library_bytes"] > 10_000 and npu["error"] is None


def test_the_table_fits_80_columns(rows: list[dict[str, Any]]) -> None:
    console = Console(width=80, file=io.StringIO(), markup=False, highlight=False)
    print_rows(console, [*rows, {**rows[1], "error": "it broke"}])
    text = console.file.getvalue()  # type: ignore[attr-defined]
    assert "failed: digits_lenet, npu, relay: it broke" in text
    assert max(len(line) for line in text.splitlines()) <= 80


def row(door: str, **changed: Any) -> dict[str, Any]:
    values = {
        "model": "m", "machine": "a", "precision": "int16", "runner": "npu", "error": None,
        "program_sha256": "p", "output_sha256": "o",
    }  # fmt: skip
    return {**values, "door": door, **changed}


def test_programs_and_outputs_must_be_the_same_through_both_doors() -> None:
    relay = [row("relay"), row("relay", machine="b"), row("", runner="stock")]
    assert through_both_doors(relay) == (0, [])
    relax = [row("relax"), row("relax", machine="b", output_sha256="x")]
    same, differing = through_both_doors(relay + relax)
    assert (same, differing) == (1, ["output of m, b, int16"])
    with pytest.raises(StudyError, match="0 rows of the NPU failed, 1 differ"):
        STUDY.check(Compared(relay + relax, same, differing, []))
    with pytest.raises(StudyError, match="1 rows of the NPU failed"):
        STUDY.check(Compared([row("relay", error="no")], 0, [], []))


def test_the_reference_runs_first_and_every_door_runs_all() -> None:
    places = [Place("relay", sys.executable), Place("relax", "/other")]
    options = Namespace(
        runners=["npu", "stock"], trials=64, machines=[load_machine("setup-a")]
    )
    settings = study._settings("m", places, options)
    assert [setting.key for setting in settings] == [
        ("m", "stock", "relay"), ("m", "stock", "relax"),
        ("m", "stock-tuned", "relay"), ("m", "stock-tuned", "relax"),
        ("m", "npu", "relay", "setup-a"), ("m", "npu", "relax", "setup-a"),
    ]  # fmt: skip
    assert [setting.trials for setting in settings] == [0, 0, 64, 64, 0, 0]
    options.trials = None
    tuned = {
        model: [one.trials for one in study._settings(model, places, options) if one.trials]
        for model in ("lenet", "resnet50")
    }
    assert tuned == {"lenet": [study.SMALL_TRIALS] * 2, "resnet50": []}


def test_seconds_are_added_up_by_model_and_runner() -> None:
    rows = [
        {"model": model, "runner": runner, "whole_s": 10.0 * number}
        for number, (model, runner) in enumerate(
            (("m", "stock"), ("m", "npu"), ("m", "npu"), ("other", "npu")), 1
        )
    ]
    console = Console(width=80, file=io.StringIO(), markup=False, highlight=False)
    print_times(console, rows)
    text = console.file.getvalue()  # type: ignore[attr-defined]
    lines = [line.split() for line in text.splitlines()[-4:] if line.strip()]
    assert lines[-3:] == [["m", "10", "50", "60"], ["other", "0", "40", "40"],
                          ["all", "10", "90", "100"]]  # fmt: skip


def test_a_model_is_written_once_for_all_of_its_measurements(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    written = []
    monkeypatch.setattr(measuring, "cases", lambda: {"m": SimpleNamespace(
        inputs=lambda: SimpleNamespace(images=[], calibration=[]),
        model=lambda: written.append("m"),
    )})  # fmt: skip
    monkeypatch.setattr(measuring, "image_input", lambda _: SimpleNamespace(name="x"))
    monkeypatch.setattr(measuring, "prepared", lambda *_: object())
    first, again = (measuring._asked("m", tmp_path / "m", 1, 1) for _ in range(2))
    assert written == ["m"] and first is again
    measuring._asked.cache_clear()


def test_an_inference_of_minutes_is_its_own_measurement(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timing, "LONGEST_S", 0.0)
    runs: list[int] = []
    assert timing.measured_cost(lambda: runs.append(1), 5).repeats == len(runs) == 1
    monkeypatch.setattr(timing, "LONGEST_S", 60.0)
    assert timing.measured_cost(lambda: runs.append(1), 5).repeats == len(runs) - 2 == 5


def test_searches_are_shown_beside_exact(tmp_path: Path) -> None:
    machine = load_machine("setup-a")
    found = search_rows("m", machine, Exact(2.0, 3), {"random": [None, 5.0, 4.0]})
    assert [(one.tuner, one.trials, one.best_us) for one in found] == [
        ("exact", 1, 2.0), ("random", 1, None), ("random", 2, 5.0), ("random", 3, 4.0),
    ]  # fmt: skip
    console = Console(width=80, file=io.StringIO(), markup=False, highlight=False)
    print_searches(console, found)
    text = console.file.getvalue()  # type: ignore[attr-defined]
    assert "2.500" in text and "1.000" in text
