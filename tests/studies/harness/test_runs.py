"""Runs of a study: files, exit codes, what a killed run leaves, and who goes on with it."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from studies.harness import parts as parts_module
from studies.harness import work
from studies.harness.command import FAILED, INTERRUPTED, TERMINATED, main
from studies.harness.processes import module_environment
from tests.patience import eventually
from tests.studies.harness.made_up_study import NAMES, MadeUpStudy

Run = Callable[..., tuple[int, str, str]]
ROOT = Path(__file__).parents[3]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Run:
    def call(*arguments: object) -> tuple[int, str, str]:
        capsys.readouterr()
        try:
            code = main(MadeUpStudy(tmp_path), [str(argument) for argument in arguments])
        except SystemExit as stop:
            code = int(stop.code or 0)
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return call


def computed(folder: Path) -> list[str]:
    file = folder / "computed"
    return file.read_text().split() if file.exists() else []


def start(folder: Path, *arguments: object) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "tests.studies.harness.made_up_study", str(folder),
         *map(str, arguments)],
        cwd=ROOT, env=module_environment(), text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip


def stopped_in(folder: Path, name: str, number: int, *arguments: object) -> tuple[int, str]:
    """Starts a run, sends it a signal while it computes the part ``name``; exit code, stderr."""
    gate = folder / f"wait-{name}"
    gate.touch()
    child = start(folder, *arguments)
    try:
        assert eventually(lambda: computed(folder)[-1:] == [name] or child.poll() is not None)
        child.send_signal(number)
        _, err = child.communicate()
    finally:
        child.kill()
    gate.unlink()
    return child.returncode, err


def test_files_table_and_drawing(run: Run, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="the plot extra is not installed")
    rows, values, drawing = (tmp_path / name for name in ("r.json", "v.json", "d.svg"))
    code, out, err = run("--json", rows, "--values", values, "--plot", drawing)
    assert (code, err) == (0, "")
    assert [row["name"] for row in json.loads(rows.read_text())] == list(NAMES)
    assert json.loads(values.read_text()) == [row["value"] for row in json.loads(rows.read_text())]
    assert drawing.read_bytes().startswith(b"<?xml")
    assert "three" in out and "0.250000" in out
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "computed", "d.svg", "r.json", "v.json",
    ]  # fmt: skip


def test_a_killed_run_goes_on(run: Run, tmp_path: Path) -> None:
    """SIGKILL while the third part runs: two are kept, with their scratch files, to the bit."""
    target = tmp_path / "rows.json"
    code, _ = stopped_in(tmp_path, "three", signal.SIGKILL, "--json", target)
    assert code == -signal.SIGKILL
    assert not target.exists() and computed(tmp_path) == ["one", "two", "three"]
    code, out, err = run("--json", target)
    assert code == 0 and "going on from an interrupted run: 2 parts are done" in err
    assert computed(tmp_path) == ["one", "two", "three", "three", "four"]
    rows = json.loads(target.read_text())
    assert [row["pid"] == os.getpid() for row in rows] == [False, False, True, True]
    assert [row["value"] for row in rows] == [(0.1 * len(name)) ** 2 for name in NAMES]
    assert not target.with_name("rows.json.work").exists()
    assert run("--json", target)[0] == 0
    assert len(computed(tmp_path)) == 9, "a finished run is not gone on with"


def test_parts_are_told_with_their_seconds_where_that_is_asked_for(run: Run) -> None:
    code, _, err = run("--verbose")
    assert code == 0 and re.findall(r"note: (\d) of 4: (\w+), square: \d+\.\d s\n", err) == [
        (str(number), name) for number, name in enumerate(NAMES, 1)
    ]


def test_scratch_files_of_finished_parts_are_there(run: Run, tmp_path: Path) -> None:
    (tmp_path / "fail-three").touch()
    target = tmp_path / "rows.json"
    assert run("--json", target)[0] == FAILED
    (found,) = target.with_name("rows.json.work").glob("*/left")
    assert found.read_text() == "ot"
    (tmp_path / "fail-three").unlink()
    assert run("--json", target)[0] == 0 and computed(tmp_path)[-2:] == ["three", "four"]


@pytest.mark.parametrize(
    ("number", "code", "message"),
    [
        (signal.SIGINT, INTERRUPTED, "made_up: interrupted; 1 parts are kept, the same command"),
        (signal.SIGTERM, TERMINATED, ""),
    ],
)
def test_interrupted(run: Run, tmp_path: Path, number: int, code: int, message: str) -> None:
    target = tmp_path / "rows.json"
    found, err = stopped_in(tmp_path, "two", number, "--json", target)
    assert found == code and message in err and "Traceback" not in err
    assert run("--json", target)[0] == 0
    assert computed(tmp_path) == ["one", "two", "two", "three", "four"]


def test_interrupted_without_a_file(run: Run, tmp_path: Path) -> None:
    (tmp_path / "interrupt-two").touch()
    assert run() == (INTERRUPTED, "", "made_up: interrupted\n")
    (tmp_path / "interrupt-two").unlink()
    assert run()[0] == 0 and computed(tmp_path)[2:] == list(NAMES)
    assert [path.name for path in tmp_path.iterdir()] == ["computed"]


def interrupted(run: Run, folder: Path, *arguments: object) -> None:
    """A run that ends in its third part."""
    (folder / "fail-three").touch()
    assert run(*arguments)[0] == FAILED
    (folder / "fail-three").unlink()
    (folder / "computed").unlink()


def test_other_options_are_another_run(run: Run, tmp_path: Path) -> None:
    target = tmp_path / "rows.json"
    interrupted(run, tmp_path, "--json", target)
    assert run("--json", target, "--power", 3)[0] == 0
    assert computed(tmp_path) == list(NAMES)
    assert run("--json", target)[0] == 0
    assert computed(tmp_path)[4:] == ["three", "four"], "the other run did no harm"
    assert not target.with_name("rows.json.work").exists()


def test_other_code_begins_anew(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = tmp_path / "rows.json"
    interrupted(run, tmp_path, "--json", target)
    monkeypatch.setattr(parts_module, "code_version", lambda study: "other")
    assert run("--json", target)[0] == 0 and computed(tmp_path) == list(NAMES)
    assert not target.with_name("rows.json.work").exists()


def test_the_version_of_code_is_that_of_its_files(tmp_path: Path) -> None:
    (tmp_path / "study.py").write_text("STUDY = 1")
    version = work.code_version(tmp_path)
    (tmp_path / "notes.txt").touch()
    assert work.code_version(tmp_path) == version
    (tmp_path / "study.py").write_text("STUDY = 2")
    assert work.code_version(tmp_path) != version


def test_restart(run: Run, tmp_path: Path) -> None:
    target = tmp_path / "rows.json"
    interrupted(run, tmp_path, "--json", target)
    assert run("--json", target, "--restart")[0] == 0 and computed(tmp_path) == list(NAMES)


WHOLE = b'{"key": ["four", "square"], "value": {"name": "", "value": 1, "nested": {}, "pid": 1}}'


@pytest.mark.parametrize(
    "tail", [b'{"key": ["three", "squ', b'{"key": 3}\n', b"\xff\xfe\n", b"{}", WHOLE]
)
def test_a_torn_end_is_cut_off(run: Run, tmp_path: Path, tail: bytes) -> None:
    target = tmp_path / "rows.json"
    interrupted(run, tmp_path, "--json", target)
    (log,) = target.with_name("rows.json.work").glob("*/parts.jsonl")
    with log.open("ab") as file:
        file.write(tail)
    (tmp_path / "fail-four").touch()
    assert run("--json", target)[0] == FAILED
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    assert [line["key"][0] for line in lines] == ["one", "two", "three"]


def test_two_runs_at_a_time(run: Run, tmp_path: Path) -> None:
    target, gate = tmp_path / "rows.json", tmp_path / "wait-one"
    gate.touch()
    child = start(tmp_path, "--json", target)
    try:
        assert eventually(lambda: computed(tmp_path) == ["one"])
        code, _, err = run("--json", target)
        assert code == FAILED and f"another run is writing {str(target)!r}" in err
        gate.unlink()
        assert child.wait() == 0 and target.exists()
    finally:
        child.kill()
        child.communicate()


@pytest.mark.parametrize("option", ["--json", "--values", "--plot"])
def test_files_are_checked_before_the_work(run: Run, tmp_path: Path, option: str) -> None:
    code, out, err = run(option, tmp_path / "no" / "such.png")
    assert (code, out) == (FAILED, "") and "there is no folder" in err
    code, _, err = run(option, tmp_path)
    assert code == FAILED and "it is a folder" in err
    code, _, err = run("--plot", tmp_path / "x.doc")
    assert code == FAILED and "its suffix must be one of .png, .svg, .pdf" in err
    assert computed(tmp_path) == []


def test_nothing_is_kept_beside_a_pipe(run: Run, tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with subprocess.Popen(["cat", str(pipe)], stdout=subprocess.PIPE, text=True) as reader:
        assert run("--json", pipe)[0] == 0
        assert reader.stdout is not None
        assert len(json.loads(reader.stdout.read())) == 4
    assert not (tmp_path / "pipe.work").exists()


def test_wrong_values_are_written_and_told(run: Run, tmp_path: Path) -> None:
    (tmp_path / "wrong").touch()
    code, out, err = run("--json", tmp_path / "rows.json")
    assert code == FAILED and err == "made_up: error: the squares are wrong\n"
    assert "three" in out and (tmp_path / "rows.json").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--names", "five"), "unknown name 'five'; known: one, two, three, four"),
        (("--power", "0"), "not an integer of at least 1"),
        (("--names",), "expected at least one argument"),
    ],
)
def test_wrong_command_line(run: Run, arguments: tuple[str, ...], message: str) -> None:
    code, out, err = run(*arguments)
    assert (code, out) == (2, "") and message in err


def test_names_are_taken_once_in_the_given_order(run: Run, tmp_path: Path) -> None:
    assert run("--names", "two", "one", "two")[0] == 0
    assert computed(tmp_path) == ["two", "one"]
