"""Cases that fuzzing found, and some of each target: accepted, or a typed error."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

pytest.importorskip("tvm", reason="the readers of calibration files need the door")

from fuzzing.command import Row, main, rows_in, worker, write_rows  # noqa: E402
from fuzzing.targets import TARGETS, case_of, outcome  # noqa: E402

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
