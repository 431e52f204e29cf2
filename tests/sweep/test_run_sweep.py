"""Whole sweeps of a small network: what rows hold, what stores keep."""

from __future__ import annotations

import json
import re
import sqlite3
from concurrent.futures import Executor, ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest

pytest.importorskip("tvm", reason="the relay extra is not installed")

from tvm_npu import models
from tvm_npu.cli import main
from tvm_npu.sweep import SweepError, SweepSpec, run_sweep
from tvm_npu.sweep import run as sweep_run
from tvm_npu.sweep.designs import Design
from tvm_npu.sweep.engines import Processes, Shared
from tvm_npu.sweep.evaluate import Outcome
from tvm_npu.sweep.profiles import write_profiles
from tvm_npu.sweep.spec import spec_from_dict

pytestmark = pytest.mark.relay


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("model") / "small.onnx"
    path.write_bytes(models.build("lenet").SerializeToString())
    return path


def spec(model: Path, **changes: Any) -> SweepSpec:
    keys = {"cores.tles": [1, 2], "memories.mb0_bytes": [512, 64, 8]}
    machine = {"base": "nmp-4x8", "keys": keys}
    area = {"formula": "cores.tles * 10", "source": "made up for a test"}
    values = {
        "models": [str(model)],
        "machine": machine,
        "fidelity": ["predicted", "checked"],
        "outcome": {"area": area},
        "search": {"objectives": ["cycles", "area"]},
    }
    return spec_from_dict({**values, **changes})


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("store")


def test_rows_and_front(model: Path, store: Path) -> None:
    seen: list[tuple[str, int, int]] = []
    result = run_sweep(spec(model), store, progress=lambda *step: seen.append(step))
    predicted = [row for row in result.rows if row["fidelity"] == "predicted"]
    checked = [row for row in result.rows if row["fidelity"] == "checked"]
    assert [row["keys"] for row in predicted] == [
        {"cores.tles": tles, "memories.mb0_bytes": mb0} for tles in (1, 2) for mb0 in (512, 64, 8)
    ]
    failed = [row for row in predicted if row["fault"] is not None]
    assert [row["keys"]["memories.mb0_bytes"] for row in failed] == [8, 8]
    assert all("mb0_bytes: Input should be greater" in row["fault"] for row in failed)
    assert [row["keys"]["cores.tles"] for row in checked] == [1, 2]  # neither dominates
    for row in checked:
        assert row["wrong_elements"] == 0 and row["on_front"] and row["area"] in (10.0, 20.0)
        before = next(one for one in predicted if one["keys"] == row["keys"])
        assert row["cycles"] == pytest.approx(before["cycles"], rel=0.35)
        assert row["dram_bytes"] == pytest.approx(before["dram_bytes"], rel=0.35)
    assert checked[0]["cycles"] > checked[1]["cycles"]
    assert result.sensitivity["cores.tles"][1] == pytest.approx(2.0)
    assert seen[0] == ("predicted", 2, 6) and seen[-1] == ("checked", 2, 2)


def test_machines_that_have_work_in_common_come_one_after_the_other(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    came: list[Design] = []

    def seen(shared: Any, design: Design, *_: Any) -> list[Outcome]:
        came.append(design)
        return [Outcome(float(design.name.count("=2")), 1.0, 1, 1) for _ in shared]

    keys = {"memories.ports": [1, 2], "dram.burst_bytes": [128, 64], "cores.tles": [2, 1]}
    asked = spec(model, machine={"base": "nmp-4x8", "keys": keys}, fidelity=["predicted"])
    monkeypatch.setattr(sweep_run, "evaluate_all", seen)
    rows = run_sweep(asked, tmp_path, Threads()).rows
    common = [(one.machine.cores.tles, one.machine.dram.burst_bytes) for one in came]  # type: ignore[union-attr, attr-defined]
    assert len(common) == 8 and all(a == b for a, b in zip(common[::2], common[1::2], strict=True))
    assert [row["keys"]["memories.ports"] for row in rows] == [1] * 4 + [2] * 4  # as asked
    assert all(row["cycles"] == row["machine"].count("=2") for row in rows)


def test_what_is_stored_is_not_computed_again_and_workers_change_nothing(
    model: Path, store: Path, tmp_path: Path
) -> None:
    first = run_sweep(spec(model), store)
    again = run_sweep(spec(model), store)
    assert again.evaluated == 0 and again.rows == first.rows
    other = run_sweep(spec(model, fidelity=["predicted"]), tmp_path, Processes(2))
    assert other.evaluated == 4
    cut = [row for row in first.rows if row["fidelity"] == "predicted"]
    assert [{**row, "on_front": None} for row in other.rows] == [
        {**row, "on_front": None} for row in cut
    ]


def test_lost_results_are_computed_again(model: Path, store: Path) -> None:
    whole = run_sweep(spec(model), store)
    with sqlite3.connect(store / "results.sqlite") as database:
        database.execute("DELETE FROM results WHERE key IN (SELECT key FROM results LIMIT 3)")
    resumed = run_sweep(spec(model), store)
    assert resumed.evaluated == 3 and resumed.rows == whole.rows


def test_genetic_search(model: Path, store: Path) -> None:
    pytest.importorskip("optuna", reason="the sweep extra is not installed")
    keys = {"cores.tles": [1, 2], "mac.setup_cycles": [4, 8, 16], "mac.efficiency": [0.5, 0.75]}
    searched = spec(
        model,
        fidelity=["predicted"],
        machine={"base": "nmp-4x8", "keys": keys, "constraints": ["mac.setup_cycles < 16"]},
        search={"method": "nsga2", "designs": 24, "population": 6,
                "objectives": ["cycles", "area"]},
    )  # fmt: skip
    result = run_sweep(searched, store)
    assert run_sweep(searched, store).rows == result.rows
    names = [row["machine"] for row in result.rows]
    assert len(set(names)) == len(names) <= 8
    assert all(row["keys"]["mac.setup_cycles"] < 16 for row in result.rows)
    best = {tuple(row["keys"].values()) for row in result.front()}
    assert best <= {(1, 4, 0.75), (2, 4, 0.75)} and best


def test_profiles_of_the_front(
    model: Path, store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of fewer designs than asked for, into a folder with a page of more designs."""

    class Page:
        def write_html(self, path: Path) -> None:
            path.write_text("a page")

    monkeypatch.setattr("tvm_npu.report.measure.profile", lambda *_, **__: Page())
    folder, said = tmp_path / "mine #1?.profiles", list[str]()
    folder.mkdir()
    for name in ("3-1-small.html", "notes.html", "3-1-other.html"):
        (folder / name).touch()
    links = write_profiles(run_sweep(spec(model), store), 5, folder, said.append)
    assert [text.split(":")[0] for text in said] == [
        "profiling design 1 of 2", "profiling design 2 of 2",
    ]  # fmt: skip
    left = {path.name for path in folder.iterdir()}
    assert left == {"1-1-small.html", "2-1-small.html", "notes.html", "3-1-other.html"}
    for address in links.values():
        assert "?" not in address and "#" not in address
        assert (tmp_path / unquote(address)).read_text() == "a page"


class Threads:
    """One worker, a thread of this process."""

    workers = 1

    def share(self, file: Path) -> Shared:
        return str(file)

    def executor(self) -> Executor:
        return ThreadPoolExecutor(1)

    def stop(self) -> None:
        pass


def test_a_point_beyond_its_limits_is_a_row_and_stays_no_outcome_without(
    model: Path, store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tvm_npu.cli.sweep_command.engine_of", lambda *_: Threads())
    path, target = tmp_path / "own.toml", tmp_path / "rows.json"
    path.write_text(
        f'models = ["{model}"]\nfidelity = ["predicted", "simulated"]\n'
        '[machine]\nfiles = ["nmp-4x8"]'
    )

    def rows(*options: str) -> Any:
        command = ["sweep", str(path), "--store", str(tmp_path), "--json", str(target), *options]
        assert main(command) == 0
        return json.loads(target.read_text())

    predicted, beyond = rows("--limits", "work=9k")
    assert predicted["fault"] is None and beyond["cycles"] is None
    assert re.match("Trap: .* more than 9216 products, elements and bytes", beyond["fault"])
    within = rows("--limits", "work=1g,host_bytes=4g")
    assert within[1]["cycles"] > 0 and within == rows()
    assert rows("--limits", "work=9k") == [predicted, beyond]


def test_a_model_that_is_no_onnx_file(tmp_path: Path) -> None:
    path = tmp_path / "text.onnx"
    path.write_text("no model")
    with pytest.raises(SweepError, match="text.onnx': 8 bytes that are no ONNX model .*tvm_npu"):
        run_sweep(spec(path), tmp_path / "store")


def test_no_store(model: Path, tmp_path: Path) -> None:
    (tmp_path / "results.sqlite").write_text("no database" * 200)
    with pytest.raises(SweepError, match="is no store of sweeps"):
        run_sweep(spec(model), tmp_path)


def test_a_model_that_is_none(model: Path, tmp_path: Path) -> None:
    with pytest.raises(SweepError, match="model 'lenett': neither a file nor one of"):
        run_sweep(spec(Path("lenett")), tmp_path)


def test_command(
    model: Path, store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "s.toml"
    file.write_text(
        f"""
        models = ["{model}"]
        fidelity = ["predicted", "checked"]
        precisions = ["int16", "int8"]
        [machine]
        base = "nmp-4x8"
        [machine.keys]
        "cores.tles" = [1, 2]
        "memories.mb0_bytes" = [512, 64, 8]
        [outcome.area]
        formula = "cores.tles * 10"
        source = "made up for a test"
        [search]
        objectives = ["cycles", "area"]
        """
    )
    points, table = tmp_path / "p.json", tmp_path / "p.csv"
    given = ["sweep", str(file), "--store", str(store), "--json", str(points), "--csv", str(table)]
    assert main([*given, "--budget", "area=15"]) == 0
    said = capsys.readouterr()
    assert "The front" in said.out and "14 points" in said.out
    front = said.out.split("\n\n")[0]
    assert "10" in front.split() and "20" not in front.split()
    assert "precision" in front and {"int8"} == {"int8", "int16"} & set(front.split())
    assert "4 points have no outcome" in said.err
    page = tmp_path / "s.html"
    assert main([*given, "--profiles", "1"]) == 2
    assert "--profiles: only with --html" in capsys.readouterr().err
    given = ["sweep", str(file), "--store", str(store)]
    assert main([*given, "--html", str(page), "--profiles", "1"]) == 0
    assert "s.profiles/1-1-small.html" in page.read_text()
    assert "<title>lenet on nmp-4x8" in (tmp_path / "s.profiles" / "1-1-small.html").read_text()
    rows = json.loads(points.read_text())
    assert len(rows) == 14 and len(table.read_text().splitlines()) == 15
    assert main([*given, "--budget", "energy=1"]) == 1
    assert "no objective of the sweep; it has cycles, area" in capsys.readouterr().err
    assert main(["sweep", str(tmp_path / "none.toml")]) == 1
