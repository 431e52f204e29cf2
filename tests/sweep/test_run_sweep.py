"""Whole sweeps of a small network: what rows hold, what stores keep."""

from __future__ import annotations

import json
import re
import sqlite3
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import numpy as np
import pytest

pytest.importorskip("tvm", reason="the relay extra is not installed")

from tests.sweep.threads import Threads
from tvm_npu import models
from tvm_npu.cli import main
from tvm_npu.codegen.compile import compile_fixed
from tvm_npu.codegen.fixed_point import ELEMENT_TYPE
from tvm_npu.models.data import load_digits_lenet
from tvm_npu.runtime.session import Session
from tvm_npu.sim.description import MachineDescription
from tvm_npu.sim.limits import LimitError
from tvm_npu.sweep import SweepError, SweepSpec, groups, run_sweep
from tvm_npu.sweep.designs import Design
from tvm_npu.sweep.engines import Processes
from tvm_npu.sweep.models import ModelSource
from tvm_npu.sweep.outcome import Outcome
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


def test_machines_with_energies(model: Path, tmp_path: Path) -> None:
    energy = '[energy]\nint16_mac_pj = {}\n[energy.link_byte_pj]\nring = 1.0\n'
    files = []
    for number, mac_pj in enumerate((1.0, 3.0)):
        files.append(tmp_path / f"{number}.toml")
        files[-1].write_text(
            f'extends = "nmp-4x8"\nname = "own{number}"\n{energy.format(mac_pj)}'
        )
    machine = {"files": list(map(str, files))}
    uj = {"formula": "energy.int16_mac_pj * macs / 1e6", "source": "the machine file"}
    asked = spec(model, machine=machine, fidelity=["predicted"], outcome={"area": uj})
    first, last = run_sweep(asked, tmp_path / "store").rows
    assert 0 < 3 * first["area"] == pytest.approx(last["area"])
    assert first["cycles"] == last["cycles"]


def test_machines_that_have_work_in_common_come_one_after_the_other(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    came: list[Design] = []

    def seen(shared: Any, together: Any, *_: Any) -> list[list[Outcome]]:
        came.extend(together)
        return [
            [Outcome(float(one.name.count("=2")), 1.0, 1, 1) for _ in models]
            for models, one in zip(shared, together, strict=True)
        ]

    keys = {"memories.ports": [1, 2], "dram.burst_bytes": [128, 64], "cores.tles": [2, 1]}
    asked = spec(model, machine={"base": "nmp-4x8", "keys": keys}, fidelity=["predicted"])
    monkeypatch.setattr(groups, "evaluate_all", seen)
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


def test_a_batch_takes_what_a_session_takes_for_it(model: Path, tmp_path: Path) -> None:
    """On one device, and on two whose second has nothing to do in the last round."""
    (tmp_path / "two.toml").write_text('extends = "snowflake-1cc"\nname = "two"\ndevices = 2\n')
    machines = {"files": [str(tmp_path / "two.toml"), "setup-a"]}
    result = run_sweep(
        spec(model, machine=machines, fidelity=["predicted", "simulated"], batches=[5, 1],
             planners=["naive"], outcome={"frames": {"formula": "batch", "source": "itself"}},
             search={"objectives": ["frames_per_s", "time_us"], "promote": 1.0}),
        tmp_path, Threads(),
    )  # fmt: skip
    assert result.evaluated == 4  # each frame once a fidelity
    graphs = {}
    for row in result.rows:
        graphs[row["machine"], row["fidelity"], row["batch"]] = row
    for file, devices in (("two", 2), ("setup-a", 1)):
        for fidelity in ("predicted", "simulated"):
            one, five = graphs[file, fidelity, 1], graphs[file, fidelity, 5]
            assert five["frames"] == 5.0 and one["frames"] == 1.0
            rounds = -(-5 // devices)
            assert five["cycles"] == one["cycles"] * rounds
            assert five["frames_per_s"] == pytest.approx(5e6 / five["time_us"])
            assert (five["dram_bytes"], five["macs"]) == (5 * one["dram_bytes"], 5 * one["macs"])
    designs = [one.design for one in result.stages[0] if one.design.batch == 5]
    assert [one.use for one in designs] == ["naive batch 5"] * 2
    for design in designs:
        machine = design.machine
        assert machine is not None
        session = Session(program(model, machine))
        number = ELEMENT_TYPE[session.program.inputs[0].element_bytes]
        images = np.zeros((5, *session.program.inputs[0].shape), number)
        session.run_fixed([images])
        ran, row = session.statistics, graphs[design.name, "simulated", 5]
        assert ran is not None and ran.cycles == pytest.approx(row["cycles"])
        assert ran.moved_bytes == row["dram_bytes"]
        assert row["macs"] == 5 * models.macs(models.build("lenet"))
        assert ran.time_us == pytest.approx(row["time_us"])
    speeds = [row["frames_per_s"] for row in result.rows if row["fidelity"] == "simulated"]
    assert max(row["frames_per_s"] for row in result.front()) == max(speeds) > min(speeds)


def program(model: Path, machine: MachineDescription) -> bytes:
    """Of the one region that a sweep makes."""
    source = ModelSource("small", model.read_bytes(), machine, machine.default_precision)
    partitioned = source.partitioned()[1]
    (symbol,) = partitioned.symbols
    return compile_fixed(partitioned.fixed_graph(symbol), machine, "naive").to_bytes()


def test_the_command_shows_batches_and_takes_budgets_from_below(
    model: Path, store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "s.toml"
    file.write_text(
        f'models = ["{model}"]\nbatches = [1, 3]\n[machine]\nbase = "nmp-4x8"\n'
        '[machine.keys]\n"cores.tles" = [1, 2]\n"memories.mb0_bytes" = [512]\n'
        '[search]\nobjectives = ["frames_per_s"]\n'
    )
    given = ["sweep", str(file), "--store", str(store)]
    assert main(given) == 0
    front = capsys.readouterr().out.split("\n\n")[0]
    assert "batch" in front
    assert main([*given, "--budget", "frames_per_s=1"]) == 0
    assert capsys.readouterr().out.split("\n\n")[0] == front
    assert main([*given, "--budget", "frames_per_s=1e9"]) == 0
    assert "No design has outcomes for all models within the budget" in capsys.readouterr().out


def test_a_genetic_search_finds_designs_that_meet_what_is_required(
    model: Path, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Which are the slowest: without the requirement none would be on the front."""
    pytest.importorskip("optuna", reason="the sweep extra is not installed")

    keys = {key: [1024, 2048, 4096, 8192] for key in (
        "memories.mb0_bytes", "memories.mb1_bytes", "memories.mb2_bytes")}  # fmt: skip
    keys |= {"cores.tles": [1, 2, 4, 8], "mac.setup_cycles": [1, 2, 3, 4]}

    def made_up(shared: Any, together: Any, *_: Any) -> list[list[Outcome]]:
        cycles = [
            1.0 + sum(keys[key].index(value) for key, value in one.changes) for one in together
        ]
        return [
            [Outcome(one, one, 1, 1) for _ in models]
            for models, one in zip(shared, cycles, strict=True)
        ]

    monkeypatch.setattr(groups, "evaluate_all", made_up)
    searched = spec(
        model, fidelity=["predicted"], machine={"base": "nmp-4x8", "keys": keys},
        search={"method": "nsga2", "designs": 120, "population": 12, "seed": 3,
                "objectives": ["cycles"], "require": ["cycles >= 12"]},
    )  # fmt: skip
    result = run_sweep(searched, store.parent / "made-up", Threads())
    tried = [row["cycles"] for row in result.rows]
    assert {row["cycles"] for row in result.front()} == {min(one for one in tried if one >= 12)}
    early, late = (np.mean([one >= 12 for one in part]) for part in (tried[:24], tried[-24:]))
    assert early < 0.2 < late


def test_an_objective_without_a_mean_over_the_models_is_a_reason(
    model: Path, tmp_path: Path
) -> None:
    """Of the design alone that has a value below 0: its rows say so, and others are judged."""
    other = tmp_path / "other.onnx"
    other.write_bytes(load_digits_lenet().SerializeToString())
    spare = {"formula": "macs - 50000 * cores.tles", "source": "made up for a test"}
    asked = spec(
        model, models=[str(model), str(other)], fidelity=["predicted"],
        machine={"base": "nmp-4x8", "keys": {"cores.tles": [1, 4]}}, outcome={"spare": spare},
        search={"objectives": ["spare"]},
    )  # fmt: skip
    rows = run_sweep(asked, tmp_path, Threads()).rows
    assert [row["on_front"] for row in rows] == [True, True, False, False]
    assert all(row["spare"] > 0 and row["fault"] is None for row in rows[:2])
    for row in rows[2:]:
        assert "objective 'spare' is -" in row["fault"] and "other.onnx'" in row["fault"]
        assert "geometric means, which need values of at least 0" in row["fault"]
        assert row["spare"] is None and row["cycles"] is None


def test_sweeps_of_nothing(model: Path, tmp_path: Path) -> None:
    given: Any
    for given in (None, 3, "x", {}):
        with pytest.raises(SweepError, match="a specification is .*; expected a SweepSpec"):
            run_sweep(given, tmp_path)
        with pytest.raises(LimitError, match="limits are a"):
            run_sweep(spec(model), tmp_path, limits=given)
    for given in (None, 3, b"x", "a\0b"):
        with pytest.raises(SweepError, match="the store of a sweep is"):
            run_sweep(spec(model), given)
    assert not list(tmp_path.iterdir())
