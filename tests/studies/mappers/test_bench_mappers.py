"""The comparison of mappers: questions, recorded answers, what is left out, rows."""

from __future__ import annotations

import io
import json
import sys
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace

import pytest
from rich.console import Console

pytest.importorskip("onnx", reason="the relay extra is not installed")

from studies.harness.command import main
from studies.harness.errors import StudyError
from studies.mappers import peers, study
from studies.mappers.layers import NETWORKS, Case, Layer, problem_of
from studies.mappers.own import FUSED_NOTES, own
from studies.mappers.peers import PEERS, left_out, python_of
from studies.mappers.question import Row, Totals, compulsory_bytes, question, read_answer
from studies.mappers.runners import accelforge_runner, zigzag_runner
from studies.mappers.study import STUDY
from studies.mappers.tables import print_rows
from tvm_npu.sim.machine_file import load_machine
from tvm_npu.sim.tiles.machine import TileMachine

LAST = Layer("last", 512, 512, 1, 7, 7, (3, 3), (1, 1))
RECORDED = {
    "accelforge": '{"version": "1.0.467", "cpu_s": 3.83, "totals": {"Total energy": 77627392.0}}',
    "zigzag": '{"version": "3.9.1", "cpu_s": 4.5, "totals": '
    '{"energy": 9703326.25, "latency": 456117.0}}',
}
"""What the runners answered about `LAST` on set-up A."""
TIMED = '{"version": "1.0.467", "cpu_s": 5.18, "totals": {"Total latency": 451584.0}}'
"""What AccelForge's answered when asked for the least time."""
FUSED = 1346560
"""Bytes that AccelForge's runner answered about MobileNetV2's block 160-960-160."""


def machine() -> TileMachine:
    loaded = load_machine("setup-a")
    assert isinstance(loaded, TileMachine)
    return loaded


def test_recorded_answers_count_the_same_bytes() -> None:
    """Every tensor of this layer crosses once under all three."""
    least = compulsory_bytes(Case("one", (LAST,)), machine())
    assert own(Case("one", (LAST,)), machine(), "bytes").dram_bytes == least == 9703424
    answers = {
        name: read_answer(text, name, PEERS[name].units["bytes"]) for name, text in RECORDED.items()
    }
    assert answers["accelforge"].dram_bytes == least
    assert answers["accelforge"].cycles is None
    assert answers["zigzag"].dram_bytes == pytest.approx(least, rel=1e-4)
    assert (answers["zigzag"].cycles, answers["zigzag"].cpu_s) == (456117.0, 4.5)


def test_recorded_times_keep_the_array_busy() -> None:
    """AccelForge's array works all the time; ours and ZigZag's are a little later."""
    busy = 512 * 512 * 9 * 49 / (16 * 16)
    answer = read_answer(TIMED, "accelforge", PEERS["accelforge"].units["cycles"])
    assert (answer.cycles, answer.dram_bytes) == (busy, None)
    found = own(Case("one", (LAST,)), machine(), "cycles").cycles
    assert found is not None and busy < found < 1.1 * busy


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"version": 1, "cpu_s": 2, "totals": {}}'])
def test_what_is_no_answer_is_named(text: str) -> None:
    with pytest.raises(StudyError, match="zigzag answered .*expected an object with version"):
        read_answer(text, "zigzag", PEERS["zigzag"].units["bytes"])


def test_layers_are_those_of_the_networks() -> None:
    layers = [case.layers for case in NETWORKS["resnet18"]()]
    assert len(layers) == len(set(layers)) == 12
    assert layers[0][0].name == "64x3 112x112 k7 s2"


def test_fused_blocks() -> None:
    """Distinct ones, the first without expansion. Of all of them every value crosses once;
    AccelForge found as much for the last but one, with its memories as one."""
    cases = [case for case in NETWORKS["mobilenet_v2"]() if case.fused]
    assert [len(case.layers) for case in cases] == [2] + 3 * [3] + (len(cases) - 4) * [3]
    assert [case.name for case in cases][1] == "16-96-24 56x56 s2"
    for case in cases:
        found = own(case, machine(), "bytes")
        assert found.dram_bytes == compulsory_bytes(case, machine())
    expand, depthwise, project = cases[-2].layers
    assert (expand.rows, depthwise.rows, depthwise.groups) == (9, 7, 960)
    values = 160 * 81 + 160 * 49 + 2 * 160 * 960 + 9 * 960
    assert compulsory_bytes(cases[-2], machine()) == 4 * values == FUSED
    spelled = accelforge_runner.einsum(vars(depthwise), 1, "T1", "T2")
    data, weights, result = spelled["tensor_accesses"]
    assert data["projection"] == {"HT1": "p1 + r1", "WT1": "q1 + s1", "CT1": "c1"}
    assert list(weights["projection"].values()) == ["c1", "r1", "s1"]
    assert result["projection"]["CT2"] == "c1"
    assert spelled["renames"]["width"] == spelled["renames"]["height"] == accelforge_runner.NONE


def test_blocks_are_mapped_layer_by_layer_and_fused() -> None:
    """Apart, what lies between layers crosses twice; the time of a chain is that of its steps."""
    cases = NETWORKS["mobilenet_v2"]()
    apart = {case.name: case for case in cases if not case.fused}
    fused = {case.name: case for case in cases if case.fused}
    assert list(apart) == list(fused) and len(fused) == 12
    name = "16-96-24 56x56 s2"
    assert apart[name].layers == fused[name].layers
    between = sum(one.outputs + other.inputs for one, other in pairwise(apart[name].layers))
    assert apart[name].elements == fused[name].elements + between
    moved = {case.fused: own(case, machine(), "bytes").dram_bytes for case in cases[1::12]}
    assert moved[True] == 1137088 < moved[False]
    for case in (apart[name], fused[name]):
        alone = [own(Case("one", (layer,)), machine(), "cycles").cycles for layer in case.layers]
        found = own(case, machine(), "cycles").cycles
        assert found == sum(alone) if not case.fused else 0 < found < sum(alone)


def test_fused_rows_have_a_table_of_their_own() -> None:
    out = io.StringIO()
    rows = [
        Row("exact", "1", "cycles", "m", "b", fused, 0.1, cycles, None, 9, notes)
        for fused, cycles, notes in ((False, 8.0, "in turn"), (True, 5.0, "a chain"))
    ]
    print_rows(Console(file=out, width=120), rows)
    apart, fused = out.getvalue().split("m, fused, least cycles")
    assert "m, least cycles" in apart and "exact 1: in turn" in apart and "a chain" not in apart
    assert "exact 1: a chain" in fused and "5" in fused.split() and "8" not in fused.split()


def test_fused_rows_of_a_peer_that_cannot_fuse_are_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """ZigZag gets the layers in turn, and their sums are its row; AccelForge gets them at once."""
    layers = (LAST, replace(LAST, name="behind"))
    cases = tuple(Case("both", layers, fused) for fused in (False, True))
    monkeypatch.setitem(study.NETWORKS, "mobilenet_v2", lambda: cases)
    monkeypatch.setattr(study, "own", lambda *_: Totals("1", 0.1, 7.0, 8.0))
    monkeypatch.setattr(peers, "_fault", lambda python, peer: None)
    for name, recorded in RECORDED.items():
        (tmp_path / f"{name}_runner.py").write_text(
            "import json, sys\nasked = json.load(open(sys.argv[1]))\n"
            f"assert len(asked['layers']) in {(1, 2) if name == 'accelforge' else (1,)}\n"
            f"open(sys.argv[2], 'w').write({recorded!r})\n"
        )
    monkeypatch.setattr(peers, "RUNNERS", tmp_path)
    file = tmp_path / "rows.json"
    given = ["--zigzag", sys.executable, "--accelforge", sys.executable, "--json", str(file)]
    assert main(STUDY, ["--models", "mobilenet_v2", *given]) == 0
    assert "left out: zigzag, fused: maps one layer at a time" in capsys.readouterr().out
    rows = json.loads(file.read_text())
    found = {(row["mapper"], row["fused"]): row for row in rows}
    assert len(rows) == len(found) == 5 and ("zigzag", True) not in found
    assert found["zigzag", False]["cpu_s"] == 2 * 4.5
    assert found["accelforge", False]["dram_bytes"] == 2 * found["accelforge", True]["dram_bytes"]
    notes = {(mapper, fused): row["notes"] for (mapper, fused), row in found.items()}
    assert notes["exact-traffic", True] == FUSED_NOTES != notes["exact-traffic", False]
    assert notes["accelforge", True] == PEERS["accelforge"].fused_notes
    assert notes["accelforge", False] == PEERS["accelforge"].notes


def test_our_question_has_the_input_that_peers_count() -> None:
    problem = problem_of(Layer("x", 8, 4, 1, 5, 6, (3, 1), (2, 3)), machine())
    assert (problem.in_rows, problem.in_columns, problem.padding) == (11, 16, (0, 0, 0, 0))
    strided = Layer("x", 8, 4, 1, 5, 6, (3, 1), (2, 3))
    assert strided.inputs == 4 * 11 * 6  # two of three columns touch no window


def test_runners_describe_machine_and_layer() -> None:
    asked = question(Case("one", (LAST,)), machine(), "bytes")
    (layer,) = json.loads(json.dumps(asked))["layers"]
    spelled = accelforge_runner.workload([layer], 32)["einsums"][0]
    data, weights, result = spelled["tensor_accesses"]
    assert data["projection"] == {"HT0": "p0 + r0", "WT0": "q0 + s0", "CT0": "c0"}
    assert result["output"] and list(weights["projection"].values()) == ["m0", "c0", "r0", "s0"]
    assert "0 <= c0 < 512" in spelled["iteration_space_shape"]
    assert (spelled["renames"]["width"], spelled["renames"]["height"]) == ("c0", "m0")
    width, height = accelforge_runner.array(asked["machine"])
    assert (width["fanout"], height["fanout"]) == (16, 16)
    assert width["loop_bounds"] == [{"expression": "~width", "operator": "==", "value": 1}]
    described = zigzag_runner.accelerator(asked["machine"])
    sizes = {name: memory["size"] for name, memory in described["memories"].items()}
    assert list(sizes) == ["input", "weight", "output", "dram"]  # inner ones first
    assert (sizes["input"], sizes["weight"]) == (262144 * 8, 131072 * 8)
    dram = described["memories"]["dram"]
    assert dram["r_cost"] * 8 == dram["ports"][0]["bandwidth_max"] == 470
    (sized,) = zigzag_runner.workload(layer, 32)
    assert dict(zip(sized["loop_dims"], sized["loop_sizes"], strict=True))["C"] == 512


def test_accelforge_gets_an_array_and_a_wire_for_time_only(monkeypatch: pytest.MonkeyPatch) -> None:
    parts = {name: dict for name in ("Arch", "Compute", "Container", "Memory")}
    monkeypatch.setitem(sys.modules, "accelforge.frontend.arch", SimpleNamespace(**parts))
    facts = question(Case("one", (LAST,)), machine(), "cycles")["machine"]
    for fused, memories in (
        (False, ["Dram", "Input", "Weight", "Output"]),
        (True, ["Dram", "Chip"]),
    ):
        speeds = {}
        for goal, more in (("bytes", ["Mac"]), ("cycles", ["Array", "Mac"])):
            nodes = accelforge_runner.architecture(facts, goal, fused)["nodes"]
            assert [node["name"] for node in nodes] == [*memories, *more]
            speeds[goal] = [
                {action["throughput"] for action in nodes[at]["actions"]} for at in (0, 1, -1)
            ]
        assert speeds["bytes"] == [{"inf"}, {"inf"}, {"inf"}]
        assert speeds["cycles"] == [{58.8 * 8}, {"inf"}, {1}]


def test_a_peer_that_cannot_be_had_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = python_of(PEERS["accelforge"], Path(sys.executable), tmp_path)
    assert isinstance(found, str) and "cannot import accelforge: ModuleNotFoundError" in found
    nowhere = python_of(PEERS["zigzag"], tmp_path / "python", tmp_path)
    assert nowhere == f"{tmp_path / 'python'} does not start: No such file or directory"
    monkeypatch.setenv("PATH", str(tmp_path))
    made = python_of(PEERS["accelforge"], None, tmp_path)
    assert made == "no python3.12 here to make an environment with; --accelforge names one"
    assert left_out("zigzag", nowhere).startswith("left out: zigzag: ")


def test_rows_with_a_peer_and_without(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A runner that answers what was recorded stands for ZigZag; AccelForge is not there."""
    monkeypatch.setitem(study.NETWORKS, "resnet18", lambda: (Case("last", (LAST,)),))
    runner = tmp_path / "zigzag_runner.py"
    runner.write_text(
        'import sys\nassert \'"goal": "bytes"\' in open(sys.argv[1]).read()\n'
        f"open(sys.argv[2], 'w').write({RECORDED['zigzag']!r})\n"
    )
    monkeypatch.setattr(peers, "RUNNERS", tmp_path)
    monkeypatch.setattr(peers, "_fault", lambda python, peer: None if "bin" in str(python) else "x")
    file = tmp_path / "rows.json"
    options = ["--zigzag", sys.executable, "--accelforge", "nowhere", "--json", str(file)]
    assert main(STUDY, options) == 0
    text = capsys.readouterr().out
    assert "left out: accelforge: x" in text and "left out: timeloop: " in text
    rows = json.loads(file.read_text())
    assert [row["mapper"] for row in rows] == ["exact-traffic", "zigzag"]
    assert [row["dram_bytes"] for row in rows] == [9703424, 9703326.25]
    assert rows[1]["cpu_s"] == 4.5 and not rows[1]["fused"]


def test_a_runner_that_fails_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "zigzag_runner.py").write_text("raise ValueError('too small')")
    monkeypatch.setattr(peers, "RUNNERS", tmp_path)
    asked = question(Case("one", (LAST,)), machine(), "bytes")
    with pytest.raises(StudyError, match="zigzag: exit code 1: ValueError: too small"):
        PEERS["zigzag"].ask(Path(sys.executable), asked, tmp_path)


def test_tables_sum_only_what_is_whole() -> None:
    out = io.StringIO()
    console = Console(file=out, width=160)
    totals = [read_answer(RECORDED[name], name, PEERS[name].units["bytes"]) for name in RECORDED]
    case = Case("last", (LAST,))
    rows = [
        study._row(name, "", "resnet18", "bytes", case, one)
        for name, one in zip(RECORDED, totals, strict=True)
    ]
    other = Case("more", (LAST,))
    rows.append(study._row("accelforge", "", "resnet18", "bytes", other, totals[0]))
    study.print_rows(console, rows)
    last = next(line for line in out.getvalue().splitlines() if line.startswith("all"))
    assert last.split() == ["all", "19,406,848", "19,406,848", "7.660", "-", "-"]


def test_an_interpreter_that_makes_no_environment_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As version managers leave them in the path: a name that starts nothing."""
    shim = tmp_path / "python3.12"
    text = "python3.12: command not found\n\nIt is in these versions:\n  3.12.1\n"
    shim.write_text(f"#!/bin/sh\ncat >&2 <<'END'\n{text}END\nexit 127\n")
    shim.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    said = str(python_of(PEERS["accelforge"], None, tmp_path / "cache"))
    assert said == (
        "python3.12 makes no environment (exit code 127: python3.12: command not found); "
        "--accelforge names one"
    )
