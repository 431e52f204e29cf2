"""A kind of machine from a package of its own: tests/outside_kind, installed beside tvm-npu."""

from __future__ import annotations

import csv
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.patience import PATIENCE_S
from tvm_npu.models.shared import find_shared_models

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "tests" / "outside_kind"
MOST_LINES = 600
LOOP_PLANNERS = (
    "naive", "eplanner", "double-buffer", "exact", "zhang", "ma", "smartshuttle", "tso",
)  # fmt: skip


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the package as pip installs it."""
    source = tmp_path_factory.mktemp("source") / "loom"
    shutil.copytree(PACKAGE, source, ignore=shutil.ignore_patterns("__pycache__"))
    target = tmp_path_factory.mktemp("site")
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet", "install"]
    offline = ["--no-index", "--no-deps", "--no-build-isolation", "--target", str(target)]
    subprocess.run(
        [*pip, *offline, str(source)], check=True, capture_output=True, timeout=PATIENCE_S
    )
    return target


def run(site: Path, *command: str, expected: int = 0) -> str:
    """What ``python COMMAND`` prints where the package is installed."""
    paths = os.pathsep.join([str(site), str(ROOT)])
    environment = {**os.environ, "PYTHONPATH": paths, "TOPHUB_LOCATION": "NONE", "COLUMNS": "200"}
    result = subprocess.run(
        [sys.executable, *command], cwd=ROOT, env=environment, capture_output=True, text=True,
        timeout=PATIENCE_S,
    )  # fmt: skip
    assert result.returncode == expected, f"{command}:\n{result.stdout}\n{result.stderr}"
    return result.stdout + result.stderr


def rows(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines() if line.startswith("{")]


def test_the_package_is_small_and_the_project_does_not_know_it() -> None:
    files = [path for path in PACKAGE.rglob("*") if path.suffix in (".py", ".toml")]
    assert sum(len(path.read_text("utf-8").splitlines()) for path in files) <= MOST_LINES
    for folder in ("codegen", "runtime", "sim", "tvm_npu", "scripts"):
        for path in (ROOT / folder).rglob("*.py"):
            assert not re.search(r"\bloom", path.read_text("utf-8"), re.IGNORECASE), path


def test_layers_equal_the_reference_under_planners_of_loops(site: Path) -> None:
    found = rows(run(site, "-m", "tests.outside.run_loom", "planned", *LOOP_PLANNERS))
    assert {row["planner"] for row in found} == set(LOOP_PLANNERS)
    assert all(row["wrong"] == 0 and row["macs"] and row["events"] for row in found), found
    # The cost model knows transfers and MACs; what it leaves out is setting registers.
    assert all(row["predicted"] <= 1.01 * row["cycles"] for row in found), found


def test_its_events_tell_where_stores_write(site: Path) -> None:
    found = rows(run(site, "-m", "tests.outside.run_loom", "stores"))
    assert len(found) == 3
    for row in found:
        assert row["told"] and row["whole"] and row["tiles"] and row["makers"] == ["lanes"], row


@pytest.mark.relay
def test_networks_through_relay_build(site: Path) -> None:
    pytest.importorskip("tvm", reason="the relay extra is not installed")
    names = ["digits_lenet"]
    if find_shared_models() is not None:
        names.append("resnet8_cifar10")
    found = rows(run(site, "-m", "tests.outside.run_loom", "built", *names))
    assert [row["model"] for row in found] == [name for name in names for _ in range(2)]
    for row in found:
        assert row["regions"] == 1 and row["runs"] >= 3 and row["wrong"] == 0, row


def test_command_line_knows_it(site: Path, tmp_path: Path) -> None:
    cli = "tvm_npu.cli"
    machines = run(site, "-m", cli, "machines")
    assert re.search(r"loom-16\b.*\bloom\b", machines)
    assert "nmp-4x8" in machines
    for planner in ("naive", "eplanner", "double-buffer"):
        assert re.search(rf"^\W*{planner}\b", run(site, "-m", cli, "planners"), re.MULTILINE)
    listed = run(site, "-m", cli, "machines", "loom-16")
    assert "lanes" in listed


def test_planted_faults_are_named(site: Path) -> None:
    told = rows(run(site, "-m", "tests.outside.run_loom", "mutants", "20"))
    found = [row["outcome"] for row in told]
    assert len(found) == 20 and found.count("harmless") <= 10
    assert set(found) <= {"named", "effect", "harmless"}, found


def _check_reports(files: dict[str, Path]) -> None:
    """They say the same of each layer; the lanes of the trace are the machine's units and links."""
    layers = json.loads(files["json"].read_text())["layers"]
    table = list(csv.DictReader(files["csv"].read_text().splitlines()))
    assert [row["layer"] for row in table] == [layer["name"] for layer in layers]
    page = files["html"].read_text()
    trace = json.loads(files["trace"].read_text())["traceEvents"]
    lanes = {one["args"]["name"] for one in trace if one["name"] == "thread_name"}
    assert lanes == {"control", "lanes", "mover"} | {"DRAM", "loaded", "stored"}
    drawn = re.findall(r'id="timelines">(.*?)</script>', page, re.DOTALL)
    pictures = [share for one in json.loads(drawn[0]) for share in one["shares"]]
    assert len(pictures) >= len(layers) and all(one["makers"] == ["lanes"] for one in pictures)
    for row, layer in zip(table, layers, strict=True):
        assert float(row["cycles"]) == layer["cycles"] > 0
        assert int(row["dram_live_bytes"]) == layer["dram_live_bytes"] > 0
        assert f"{layer['cycles']:,.0f}" in page and layer["name"] in page
        busy = [one for one in trace if one["ph"] == "X" and one["name"].startswith(layer["name"])]
        spent = sum(one["dur"] for one in busy)  # one unit works at a time
        assert abs(spent - layer["time_us"]) < 0.01 * layer["time_us"] + 0.01 * len(busy)


@pytest.mark.relay
def test_command_line_profiles_compiles_and_disassembles(site: Path, tmp_path: Path) -> None:
    pytest.importorskip("tvm", reason="the relay extra is not installed")
    model = str(ROOT / "tvm_npu" / "models" / "data" / "digits_lenet.onnx")
    files = {name: tmp_path / f"report.{name}" for name in ("json", "csv", "trace", "html")}
    asked = [part for name, path in files.items() for part in (f"--{name}", str(path))]
    text = run(site, "-m", "tvm_npu.cli", "profile", model, "--machine", "loom-16", *asked)
    assert "loom-16" in text and "cycles" in text
    _check_reports(files)
    verified = run(site, "-m", "tvm_npu.cli", "verify", model, "--machine", "loom-16")
    layers = len(json.loads(files["json"].read_text())["layers"])
    assert f"all tensors of {layers} layers are what the reference computes" in verified
    folder = tmp_path / "made"
    run(site, "-m", "tvm_npu.cli", "compile", model, "--machine", "loom-16", "-o", str(folder))
    (program,) = folder.rglob("*.npu*")
    code = run(site, "-m", "tvm_npu.cli", "disasm", str(program))
    for mnemonic in ("set", "load", "mac", "finish", "max", "store", "halt"):
        assert re.search(rf"\b{mnemonic}\b", code), mnemonic


SWEEP = """\
models = ["{model}"]
planners = ["exact", "double-buffer"]
precisions = ["int16", "int8"]
fidelity = ["predicted", "simulated", "checked"]
[machine]
base = "loom-16"
[machine.keys]
"engine.lanes" = [8, 16]
"scratchpads.input_bytes" = [16, 24576]
[outcome.lanes]
formula = "engine.lanes"
source = "the machine file"
[search]
objectives = ["cycles", "dram_bytes", "lanes"]
promote = 1.0
"""


@pytest.mark.relay
def test_sweeps_vary_its_machine(site: Path, tmp_path: Path) -> None:
    """At every fidelity, here and in workers; machines without room are rows with the reason."""
    for library in ("tvm", "joblib"):
        pytest.importorskip(library, reason="the relay or the sweep extra is not installed")
    spec, table = tmp_path / "loom.toml", tmp_path / "points.json"
    model = ROOT / "tvm_npu" / "models" / "data" / "digits_lenet.onnx"
    spec.write_text(SWEEP.format(model=model))
    told = []
    for workers in ("1", "2"):
        store = str(tmp_path / workers)
        command = ["sweep", str(spec), "--store", store, "--workers", workers, "--json", str(table)]
        assert "The front" in run(site, "-m", "tvm_npu.cli", *command)
        told.append(json.loads(table.read_text()))
    assert told[0] == told[1]
    by_fidelity: dict[str, list[Any]] = {"predicted": [], "simulated": [], "checked": []}
    for row in told[0]:
        by_fidelity[row["fidelity"]].append(row)
    small = [row for row in by_fidelity["predicted"] if row["fault"] is not None]
    assert {row["keys"]["scratchpads.input_bytes"] for row in small} == {16}
    assert len(small) == 8 and all("input" in row["fault"] for row in small)
    ran = by_fidelity["simulated"]
    assert len(ran) == len(by_fidelity["checked"]) == 8
    assert all(row["wrong_elements"] == 0 for row in by_fidelity["checked"])
    assert all(row["wrong_elements"] is None and row["fault"] is None for row in ran)
    cycles = {(row["planner"], row["precision"], row["lanes"]): row["cycles"] for row in ran}
    assert all(cycles[p, q, 16] < cycles[p, q, 8] for p, q, _ in cycles)


def test_without_the_package_the_kind_is_unknown() -> None:
    text = (PACKAGE / "loom_npu" / "machines" / "loom-16.toml").read_text("utf-8")
    program = (
        "from tvm_npu.sim.machine_file import machine_from_toml\n"
        f"machine_from_toml({text!r}, 'loom-16.toml')"
    )
    result = subprocess.run(
        [sys.executable, "-c", program],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
    )
    assert result.returncode == 1
    last = result.stderr.strip().splitlines()[-1]
    assert "no such kind of machine (value: 'loom'); there are 'nmp', " in last
    assert "'tiles'" in last


PAGE = ROOT / "docs" / "your-own-npu.md"
BLOCK = re.compile(r"^```(?:py|toml)\n# (\S+\.(?:py|toml))\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def test_the_page_quotes_the_package() -> None:
    found = BLOCK.findall(PAGE.read_text("utf-8"))
    assert {Path(name).name for name, _ in found} == {
        "pyproject.toml", "machine.py", "loom-16.toml", "isa.py", "simulator.py", "kind.py",
        "backend.py", "emit.py",
    }  # fmt: skip
    for name, quoted in found:
        assert quoted in (PACKAGE / name).read_text("utf-8"), name


@pytest.mark.relay
def test_the_program_of_the_page_runs(site: Path) -> None:
    pytest.importorskip("tvm", reason="the relay extra is not installed")
    (program,) = re.findall(
        r"^```py\n# a program of your own\n(.*?)^```$", PAGE.read_text("utf-8"), re.M | re.S
    )
    assert "loom-16" in run(site, "-c", program)


def test_the_commands_of_the_page_run(site: Path) -> None:
    pytest.importorskip("tvm", reason="the relay extra is not installed")
    commands = re.findall(r"^tvm-npu (.*)$", PAGE.read_text("utf-8"), re.MULTILINE)
    assert len(commands) == 2
    for command in commands:
        assert "loom-16" in run(site, "-m", "tvm_npu.cli", *command.split())
