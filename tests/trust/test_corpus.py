"""Cases that fuzzing found, and some of each target: accepted, or a typed error."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

pytest.importorskip("tvm", reason="the readers of calibration files need the door")

from fuzzing import command  # noqa: E402
from fuzzing.command import main, worker  # noqa: E402
from fuzzing.parsers import seeds  # noqa: E402
from fuzzing.rows import Kept, Row, rows_in, write_rows  # noqa: E402
from fuzzing.targets import TARGETS, Target, case_of, outcome  # noqa: E402

CORPUS = Path(__file__).with_name("corpus")
PARSERS = [name for name, target in TARGETS.items() if not target.compiled]
COUNT = 4


def test_rows_of_runs_are_added(tmp_path: Path) -> None:
    path = tmp_path / "rows.json"
    one = Row("elf", cases=3, accepted=1, typed_errors=1, bad=1, cpu_s=0.5, faults=["a"])
    two = Row("elf", cases=2, accepted=2, cpu_s=0.25)
    write_rows(path, [*rows_in(path), one])
    write_rows(path, [*rows_in(path), Row("limits", cases=1), two])
    whole = Row("elf", cases=5, accepted=3, typed_errors=1, bad=1, cpu_s=0.75, faults=["a"])
    assert rows_in(path) == [whole, Row("limits", cases=1)]
    path.write_text('{"elf": 3}')
    with pytest.raises(SystemExit):
        main(["limits", "--minutes", "0", "--json", str(path)])


def test_runs_at_once_add_to_one_file(tmp_path: Path) -> None:
    """And what a run has done so far is in the file: it may be killed."""
    path = tmp_path / "rows.json"
    runs = [(Kept(path), Row("elf", code=[code])) for code in ("a", "b")]
    for number in range(3):
        for kept, row in runs:
            row.count("accepted" if number else "bad", 0.5, checked=True)
            row.faults += [] if number else ["f"]
            kept.add(row)
    assert rows_in(path) == [
        Row("elf", 6, 4, 0, 2, cpu_s=3.0, bounds_checked=6, faults=["f", "f"], code=["a", "b"])
    ]
    kept.add(row, now=False)
    assert rows_in(path)[0].cases == 6


@pytest.mark.parametrize("name", PARSERS)
def test_cases_are_made_of_good_files(name: str) -> None:
    """Mutated rubbish is refused at the door, and nothing behind it is tried."""
    found = {outcome(TARGETS[name], seed) for seed in seeds(name)}
    assert found - {"typed Trap RUNAWAY"} == {"accepted"}


def test_a_run_that_accepts_nothing_is_bad(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "rows.json"

    def nothing(target: Target, row: Row, *_: object) -> None:
        row.count("typed error", 0.1, checked=False)

    monkeypatch.setattr(command, "_fuzz", nothing)
    assert main(["limits", "--json", str(path)]) == 1
    (row,) = rows_in(path)
    assert row.bad == 1 and row.code and "no case was accepted" in capsys.readouterr().out


def test_there_is_a_corpus() -> None:
    assert {folder.name for folder in CORPUS.iterdir()} <= set(TARGETS)


@pytest.mark.parametrize("name", PARSERS)
def test_parsers(name: str) -> None:
    target = TARGETS[name]
    found = [path.read_bytes() for path in sorted((CORPUS / name).glob("*"))]
    for data in [*found, *(case_of(target, seed) for seed in range(COUNT))]:
        assert not outcome(target, data).startswith("bad")


@pytest.mark.parametrize("name", [name for name in TARGETS if (CORPUS / name).exists()])
def test_kept_cases_in_their_own_process(name: str) -> None:
    if not TARGETS[name].compiled:
        return
    process = worker(name, 0, 0, str(CORPUS / name), False)
    lines = [json.loads(line) for line in process.communicate(timeout=120)[0].splitlines()]
    found = [line["found"] for line in lines if "end" in line]
    assert len(found) == len(list((CORPUS / name).iterdir())) and process.returncode == 0
    assert not [one for one in found if one.startswith("bad")]
