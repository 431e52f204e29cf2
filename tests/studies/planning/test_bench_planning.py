"""The benchmark on its smallest network: its files, its tables and its errors."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from studies.harness import options
from studies.harness.command import main
from studies.planning import measuring, study
from studies.planning.errors import ErrorRow
from studies.planning.errors_report import FARTHEST, farthest_lines, sizes_table
from tvm_npu.codegen.plan import planner
from tvm_npu.sim.machine_file import load_machine
from tvm_npu.sim.nmp.machine import load_nmp_machine

Run = Callable[..., tuple[int, str, str]]
KEYS = [
    "model", "machine", "planner", "simulated_us", "predicted_us", "bound_us", "plan_s",
    "brute_force_s", "dram_bytes", "graph_bound_us",
]  # fmt: skip


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    # pytest-xdist gives its workers the width of a terminal.
    monkeypatch.delenv("COLUMNS", raising=False)

    def call(*arguments: object) -> tuple[int, str, str]:
        capsys.readouterr()
        try:
            code = main(study.STUDY, [str(argument) for argument in arguments])
        except SystemExit as stop:
            code = int(stop.code or 0)
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return call


def machine_file(folder: Path, **changes: str) -> Path:
    """nmp-4x8 under another name, with some lines replaced."""
    from importlib import resources

    text = (resources.files("tvm_npu.sim") / "machines" / "nmp-4x8.toml").read_text()
    lines = []
    for line in text.splitlines():
        key = line.split(" =")[0]
        lines.append(f"{key} = {changes[key]}" if key in changes else line)
    path = folder / "machine.toml"
    path.write_text("\n".join(lines))
    return path


def test_help_loads_the_machines_of_the_default_alone(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[object] = []
    monkeypatch.setattr(
        options, "load_machine", lambda name: asked.append(name) or load_machine(name)
    )
    code, out, _ = run("--help")
    assert code == 0 and "nmp-4x8-paper" in out
    assert asked == list(study.MACHINES)


@pytest.mark.relay
def test_lenet_under_two_planners(run: Run, tmp_path: Path) -> None:
    pytest.importorskip("tvm", reason="the relay extra is not installed")
    path, layers = tmp_path / "rows.json", tmp_path / "layers.json"
    code, out, err = run(
        "--models", "lenet", "--machines", "nmp-4x8", "--planners", "tso", "exact", "tso",
        "--json", path, "--layers", layers,
    )  # fmt: skip
    assert (code, err) == (0, "")
    rows = json.loads(path.read_text())
    assert [list(row) for row in rows] == [KEYS] * 2
    assert [row["planner"] for row in rows] == ["tso", "exact"]
    for row in rows:
        assert 0 < row["graph_bound_us"] <= row["bound_us"] < row["simulated_us"]
        assert row["predicted_us"] == pytest.approx(row["simulated_us"], rel=0.1)
        assert row["plan_s"] > 0 and row["dram_bytes"] > 800_000
        assert row["brute_force_s"] is None or row["brute_force_s"] > 0
        assert f"{row['simulated_us']:,.0f}" in out
        own = [x for x in json.loads(layers.read_text()) if x["planner"] == row["planner"]]
        cascaded = sum("+" in layer["layer"] for layer in own)
        assert len(own) == 6 - cascaded and (row["planner"] == "exact" or not cascaded)
        for key in ("predicted_us", "bound_us", "dram_bytes"):
            assert sum(layer[key] for layer in own) == pytest.approx(row[key]), key
        assert sum(layer["simulated_us"] for layer in own) == pytest.approx(
            row["simulated_us"], rel=0.01
        )
        assert all(layer["bound_us"] <= layer["simulated_us"] for layer in own)
    assert "LeNet" in out and "Pearson" in out
    assert "geometric mean speed-up of exact on nmp-4x8 over tso nmp-4x8" in out


@pytest.mark.relay
def test_without_a_compiler(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("tvm", reason="the relay extra is not installed")
    monkeypatch.setenv("CC", "no-such-compiler")
    path = tmp_path / "rows.json"
    code, out, _ = run(
        "--models", "lenet", "--machines", "nmp-4x8", "--planners", "tso", "--json", path
    )
    assert code == 0
    assert [row["brute_force_s"] for row in json.loads(path.read_text())] == [None]
    assert "not measured: brute force needs a C compiler; not found: CC = 'no-such-" in out


@pytest.mark.relay
def test_bound_does_not_depend_on_the_planner_or_the_machines_memories(tmp_path: Path) -> None:
    pytest.importorskip("tvm", reason="the relay extra is not installed")
    smaller = load_nmp_machine(machine_file(tmp_path, name='"small"', mb0_bytes="1024"))
    one = measuring.prepare_case("lenet", load_nmp_machine("nmp-4x8")).case
    other = measuring.prepare_case("lenet", smaller).case
    assert one.bound_cycles() == other.bound_cycles() > 0
    assert [work.macs for work in one.layers] == [work.macs for work in other.layers]
    assert sum(work.macs for work in one.layers) == one.macs
    assert one.brute_force is None


@pytest.mark.relay
def test_machine_that_no_program_fits(run: Run, tmp_path: Path) -> None:
    pytest.importorskip("tvm", reason="the relay extra is not installed")
    path = machine_file(tmp_path, capacity_bytes="65536")
    code, out, err = run("--models", "lenet", "--machines", path, "--planners", "tso")
    assert (code, out) == (1, "")
    assert "bench_planning: error: model 'lenet', machine 'nmp-4x8', planner 'tso': program" in err
    assert "bytes of DRAM; machine 'nmp-4x8' has dram.capacity_bytes = 65536" in err


def test_two_machines_of_one_name(run: Run, tmp_path: Path) -> None:
    path = machine_file(tmp_path, mb0_bytes="4096")
    code, out, err = run("--models", "lenet", "--machines", "nmp-4x8", path)
    assert (code, out) == (1, "")
    assert "two different machines are called 'nmp-4x8'" in err


def test_a_planner_that_does_not_plan_a_machine(run: Run) -> None:
    code, out, err = run("--models", "lenet", "--planners", "tso", "snowflake")
    assert (code, out) == (1, "")
    assert "planner 'snowflake' does not plan machine 'nmp-4x8' of isa 'nmp'; tso, " in err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--models", "yolo"), "unknown model 'yolo'; known: "),
        (("--planners", "best"), "unknown planner 'best'; known: tso, "),
        (("--machines", "nmp-9x9"), "unknown machine 'nmp-9x9': neither a file nor one of"),
        (("--machines", "setup-a"), "machine 'setup-a' is of isa 'tiles'; this needs 'nmp'"),
        (("--models",), "expected at least one argument"),
    ],
)
def test_wrong_command_line(run: Run, arguments: tuple[str, ...], message: str) -> None:
    code, out, err = run(*arguments)
    assert (code, out) == (2, "")
    assert message in err


@pytest.mark.parametrize("option", ["--json", "--layers", "--plot"])
def test_files_are_checked_before_the_work(run: Run, tmp_path: Path, option: str) -> None:
    code, out, err = run("--models", "lenet", option, tmp_path / "no" / "such.json")
    assert (code, out) == (1, "")
    assert "there is no folder" in err


def test_help_names_what_there_is(run: Run) -> None:
    code, out, _ = run("--help")
    assert code == 0
    for word in ("--json", "--planners", "nmp-4x8", "tso-noburst", "squeezenet1.0", "exit codes"):
        assert word in out, word
    machines = " ".join(out.partition("--machines")[2].partition("--planners")[2].split())
    machines = machines.partition("machine files, or of: ")[2].partition(" (default")[0]
    assert {"nmp-4x8", "nmp-4x8-paper"} <= set(machines.split(", "))
    assert not {"setup-a", "zynq-7020", "snowflake-1cc"} & set(machines.split(", "))


def test_exact_cascades_layers_as_it_does_for_users() -> None:
    """What notes the planner's questions hides nothing of it."""
    prepared = measuring.prepare_case("lenet", load_nmp_machine("nmp-4x8"))
    measured, _ = measuring.run_case(prepared, planner("exact"))
    assert {"conv+max_pool"} <= {layer.kind for layer in measured.layers}


def test_best_of_several() -> None:
    calls = []
    assert measuring.best_seconds(lambda: calls.append(1)) >= 0
    assert len(calls) == measuring.REPEATS


@pytest.mark.relay
def test_scaling_of_lenet(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("tvm", reason="the relay extra is not installed")
    pytest.importorskip("matplotlib", reason="the plot extra is not installed")
    path, drawing = tmp_path / "rows.json", tmp_path / "rows.svg"
    monkeypatch.setattr(study, "SIZES", (28, 56))
    monkeypatch.setattr(study, "WIDTHS", (0.5, 1.0))
    code, out, err = run(
        "--scaling", "lenet", "--models", "lenet", "--machines", "nmp-4x8", "--planners", "tso",
        "--json", path, "--plot", drawing,
    )  # fmt: skip
    assert (code, err) == (0, "")
    rows = json.loads(path.read_text())
    assert [(row["input_size"], row["width"]) for row in rows] == [
        (28, 0.5), (56, 0.5), (28, 1.0), (56, 1.0), (None, 1.0),
    ]  # fmt: skip
    small, large, planned = rows[2], rows[3], rows[4]
    assert small["simulated_cycles"] < large["simulated_cycles"]
    assert rows[0]["macs"] < small["macs"] < large["macs"]
    assert small["predicted_cycles"] == pytest.approx(small["simulated_cycles"], rel=0.1)
    assert small["bound_cycles"] < small["simulated_cycles"]
    assert planned["simulated_cycles"] is None and planned["macs"] == small["macs"]
    assert planned["distinct_layers"] == small["distinct_layers"] == 4
    assert "simulated cycles grow as MACs" in out and "LeNet" in out
    assert drawing.read_text().startswith("<?xml")


def test_layers_are_not_for_scaling(run: Run, tmp_path: Path) -> None:
    code, out, err = run("--scaling", "--layers", tmp_path / "x.json")
    assert (code, out) == (1, "")
    assert "--layers is not for --scaling" in err


def test_unknown_plot_format(run: Run, tmp_path: Path) -> None:
    code, _, err = run("--plot", tmp_path / "plans.doc")
    assert code == 1
    assert "its suffix must be one of .png, .svg, .pdf" in err


@pytest.mark.relay
def test_plans_over_the_graph_on_other_kinds(run: Run, tmp_path: Path) -> None:
    pytest.importorskip("tvm", reason="the relay extra is not installed")
    path = tmp_path / "rows.json"
    code, out, err = run(
        "--joined", "snowflake-1cc", "setup-a", "zynq-7020-uncached", "--models", "lenet",
        "--json", path,
    )  # fmt: skip
    assert (code, err) == (0, "")
    rows = json.loads(path.read_text())
    assert [row["planner"] for row in rows] == ["exact", "exact-layers"] * 3
    weights = 20 * 25 + 50 * 20 * 25 + 500 * 800 + 10 * 500
    for row in rows:
        stored_bytes = 2 if row["machine"] == "snowflake-1cc" else 4
        assert row["compulsory_bytes"] == (28 * 28 + weights + 10) * stored_bytes
        assert row["dram_bytes"] > row["compulsory_bytes"]
        assert row["predicted_us"] == pytest.approx(row["simulated_us"], rel=0.002)
        assert 0 < row["bound_us"] < row["simulated_us"]
    joined, apart = rows[:2]
    assert joined["layers"] < apart["layers"] and joined["dram_bytes"] < apart["dram_bytes"]
    assert "setup-a: exact is" in out and "snowflake-1cc: exact is" in out


@pytest.mark.relay
def test_planners_beside_the_one_of_layers_alone(run: Run, tmp_path: Path) -> None:
    """Those that are named, each once, and what they are compared with."""
    pytest.importorskip("tvm", reason="the relay extra is not installed")
    path = tmp_path / "rows.json"
    code, out, err = run(
        "--joined", "setup-a", "nmp-4x8", "--models", "lenet", "--json", path,
        "--planners", "exact-traffic", "exact-layers", "exact",
    )  # fmt: skip
    assert (code, err) == (0, "")
    rows = json.loads(path.read_text())
    named = ["exact-traffic", "exact", "exact-layers"]
    assert [row["planner"] for row in rows] == named * 2
    least, fastest, _ = rows[:3]
    assert least["dram_bytes"] < fastest["dram_bytes"]
    assert least["simulated_us"] > fastest["simulated_us"]
    assert all(0 < row["bound_us"] < row["simulated_us"] for row in rows)
    for row in (least, fastest):
        assert f"setup-a: {row['planner']} is " in out and f"{row['simulated_us']:,.0f}" in out
    assert "exact-layers is" not in out


def test_nothing_to_compare(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(study, "joined_row", lambda *_: pytest.fail("work"))
    code, out, err = run("--joined", "setup-a", "--planners", "exact-layers")
    assert (code, out) == (1, "")
    assert "--planners for --joined: name planners to compare with exact-layers" in err
    code, out, err = run("--joined", "setup-a", "--planners", "snowflake")
    assert (code, out) == (1, "")
    assert "planner 'snowflake' does not plan machine 'setup-a'" in err


@pytest.mark.parametrize("option", ["--joined", "--errors"])
def test_machines_stand_behind_what_takes_all_kinds(run: Run, option: str) -> None:
    code, out, err = run(option, "setup-a", "--machines", "nmp-4x8", "--models", "lenet")
    assert (code, out) == (1, "")
    assert f"--machines is not for {option}, behind which its own machines stand" in err


@pytest.mark.parametrize("option", [("--scaling",), ("--layers", "x.json"), ("--plot", "x.png")])
def test_what_joined_has_not(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, option: tuple[str, ...]
) -> None:
    monkeypatch.chdir(tmp_path)
    code, out, err = run("--joined", *option)
    assert (code, out) == (1, "")
    assert f"{option[0]} is not for --joined" in err


@pytest.mark.relay
def test_errors_of_predictions_on_every_kind(run: Run, tmp_path: Path) -> None:
    pytest.importorskip("tvm", reason="the relay extra is not installed")
    layers, path = tmp_path / "layers.json", tmp_path / "rows.json"
    code, out, err = run(
        "--errors", "snowflake-4cc", "setup-a", "nmp-4x8", "--models", "lenet", "--layers", layers,
        "--json", path,
    )  # fmt: skip
    assert (code, err) == (0, "")
    rows = json.loads(layers.read_text())
    assert rows == json.loads(path.read_text())
    by_machine = {name: [row for row in rows if row["machine"] == name] for name in (
        "snowflake-4cc", "setup-a", "nmp-4x8",
    )}  # fmt: skip
    for name, own in by_machine.items():
        assert len(own) >= 4 and sum(row["dram_bytes"] for row in own) > 800_000
        for row in own:
            assert row["predicted_us"] == pytest.approx(row["simulated_us"], rel=0.1), row
        assert f"{sum(row['simulated_us'] for row in own):,.0f}" in out
        assert f"{name}, exact: " in out
    assert "10 us" in out and "1 ms" in out and "LeNet" in out


@pytest.mark.parametrize("option", [("--scaling",), ("--joined",), ("--plot", "x.png")])
def test_what_errors_has_not(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, option: tuple[str, ...]
) -> None:
    monkeypatch.chdir(tmp_path)
    code, out, err = run("--errors", "setup-a", *option)
    assert (code, out) == (1, "")
    assert f"{option[0]} is not for --errors" in err


def test_errors_under_a_planner_that_does_not_plan_the_machine(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Told before the work."""
    monkeypatch.setattr(study, "error_rows", lambda *_: pytest.fail("work"))
    code, out, err = run("--errors", "setup-a", "--planners", "snowflake", "--models", "lenet")
    assert (code, out) == (1, "")
    assert "planner 'snowflake' does not plan machine 'setup-a'" in err


def error_row(simulated_us: float, predicted_us: float | None, layer: str = "conv") -> ErrorRow:
    return ErrorRow("lenet", "m", "exact", layer, "conv", 0, simulated_us, predicted_us, 0)


def test_errors_by_size() -> None:
    """Layers without a prediction count in no mean; those without time have an error, too."""
    rows = [
        error_row(5.0, 6.0), error_row(9.999, 9.999), error_row(10.0, 5.0), error_row(50.0, None),
        error_row(2000.0, 2100.0), error_row(0.0, 0.0), error_row(0.0, 3.0, "late"),
    ]  # fmt: skip
    assert [one.error for one in rows] == pytest.approx([0.2, 0.0, -0.5, None, 0.05, 0.0, 1.0])
    cells = [column.cells for column in sizes_table(rows).columns]
    assert [cell for (cell,) in cells] == [
        "m", "exact", "6: 29.2%", "4: 30.0%", "1: 50.0%", "-", "1: 5.0%",
    ]  # fmt: skip
    assert farthest_lines(rows)[0] == "m, exact: +100.0% of 0.0 us, LeNet late"
    assert len(farthest_lines(rows)) == FARTHEST
