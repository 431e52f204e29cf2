"""Tuning logs: round trips, crashes in the middle of a line, and lines that are no trials."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.codegen.tune.fake_space import Counting, Grid
from tests.examples import examples
from tvm_npu.codegen.tune import log as log_module
from tvm_npu.codegen.tune.errors import TuningLogError, TuningLogWarning
from tvm_npu.codegen.tune.log import LogWriter, Run, Subject, Trial, read_log, trial_of
from tvm_npu.codegen.tune.tune import tune

NAMES = st.text(min_size=1, max_size=8)
SCALARS = st.none() | st.booleans() | st.integers() | st.text(max_size=8)
COLUMNS = st.dictionaries(NAMES, SCALARS, min_size=1, max_size=4).map(
    lambda columns: tuple(sorted(columns.items()))
)
OUTCOMES = st.one_of(
    st.tuples(st.floats(min_value=1e-9, max_value=1e300), st.none()),
    st.tuples(st.none(), st.text(max_size=30)),
)


@st.composite
def trials(draw: st.DrawFn) -> Trial:
    cycles, error = draw(OUTCOMES)
    return Trial(
        Subject(draw(NAMES), draw(NAMES), draw(COLUMNS)), draw(NAMES),
        Run(draw(NAMES), draw(st.booleans()), draw(st.integers(0, 2**40))),
        draw(st.integers(0, 10**6)), draw(COLUMNS), cycles, error,
    )  # fmt: skip


@given(trials())
def test_trials_round_trip(trial: Trial) -> None:
    line = trial.to_line()
    assert line.endswith(b"\n") and line.count(b"\n") == 1
    assert all(not isinstance(value, list | dict) for value in json.loads(line).values())
    assert trial_of(line[:-1], Path("x"), 0) == trial


def make_log(path: Path, number: int = 12) -> bytes:
    with LogWriter(path) as log:
        tune(Grid(), Run("random", False, 0), number, Counting(), log)
    return path.read_bytes()


def test_logs_are_bounded_in_bytes_lines_and_bytes_of_a_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before a line is parsed; and nothing is written that nobody could read."""
    path = tmp_path / "t.jsonl"
    content = make_log(path, 4)
    trial, *_ = trials = read_log(path)
    assert len(trials) == 4
    with monkeypatch.context() as bounded:
        bounded.setattr(log_module, "MOST_TRIALS", 4)
        assert read_log(path) == trials
        with LogWriter(path) as log, pytest.raises(TuningLogError, match="is full: .* 4 trials"):
            log.append(trial)
        path.write_bytes(content + b"\n")
        with pytest.raises(TuningLogError, match="more than 4 lines; keep those"):
            read_log(path)
    path.write_bytes(content)
    with monkeypatch.context() as bounded:
        bounded.setattr(log_module, "MOST_TEXT_BYTES", len(content))
        assert read_log(path) == trials
        with LogWriter(path) as log, pytest.raises(TuningLogError, match="name another log"):
            log.append(trial)
        path.write_bytes(content + b"\n")
        with pytest.raises(TuningLogError, match=f"such a file may have {len(content)}"):
            read_log(path)
    monkeypatch.setattr(log_module._Line, "model_validate_json", None)
    path.write_bytes(b'{"problem_a": [' + b"[]," * 30_000 + b"\n")
    with pytest.raises(TuningLogError, match="line 1: 90015 bytes; a trial has at most 65536"):
        read_log(path)


@given(st.data())
@settings(max_examples=examples(20), deadline=None)
def test_a_torn_line_is_dropped_and_tried_again(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    path = tmp_path_factory.mktemp("logs") / "log.jsonl"
    whole = make_log(path)
    cut = data.draw(st.integers(0, len(whole)))
    zeros = data.draw(st.sampled_from((0, 0, 40)))  # a crash can leave blocks that never came
    zeros *= cut > 0
    path.write_bytes(whole[:cut] + bytes(zeros))
    torn = bool(zeros) or (cut > 0 and whole[cut - 1 : cut] != b"\n")
    kept = whole[:cut].count(b"\n")
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        assert len(read_log(path)) == kept
    assert [one.category for one in said] == [TuningLogWarning] * torn
    if torn:
        assert f"line {kept + 1}: cut off after" in str(said[0].message)
    measure = Counting()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", TuningLogWarning)
        with LogWriter(path) as log:
            tune(Grid(), Run("random", False, 0), 12, measure, log)
    assert path.read_bytes() == whole


@contextmanager
def disk_with(size: int) -> Iterator[None]:
    """Files cannot grow beyond ``size`` bytes, as on a full disk."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.parametrize("room", [0, 1, 40])
def test_a_full_disk_leaves_whole_lines_and_tuning_goes_on_later(tmp_path: Path, room: int) -> None:
    path, again = tmp_path / "log.jsonl", tmp_path / "again.jsonl"
    whole = make_log(again)
    begin = whole[: whole.index(b"\n", len(whole) // 2) + 1]
    with pytest.raises(TuningLogError, match=f"cannot write tuning log '{path}': File too large"):
        with disk_with(len(begin) + room):
            make_log(path)
    assert path.read_bytes() == begin
    assert make_log(path) == whole


GOOD: dict[str, object] = json.loads(
    Trial(
        Subject("grid", "0" * 16, (("name", "a"),)), "m", Run("random", False, 0), 0,
        (("x", 1), ("y", 2)), 5.0,
    ).to_line()
)  # fmt: skip


def without(key: str) -> dict[str, object]:
    return {name: value for name, value in GOOD.items() if name != key}


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("", "not JSON"),
        ("{", "not JSON"),
        ("\x00\x00", "not JSON"),
        ("input,config,result", "not JSON .*'input,config,result'"),
        ("[1, 2]", "a trial is an object, not '\\[1, 2\\]'"),
        ("7", "an object, not '7'"),
        ("null", "an object, not 'None'"),
        ("[" * 10_000, "not JSON .recursion limit"),
        (json.dumps({"input": ["llvm"], "v": 0.2}), "no trial: key 'version' is missing"),
        (json.dumps({**GOOD, "version": 2}), "version is 2; this tvm-npu reads version 1"),
        (json.dumps(without("cycles")), "key 'cycles' is missing"),
        (json.dumps(without("plan_x") | {"plan_y": [1]}), "plan_y is \\[1\\]: a trial is flat"),
        (json.dumps({**GOOD, "colour": 1}), "unknown key 'colour'"),
        (json.dumps({**GOOD, "seed": "0"}), "seed is '0': Input should be a valid integer"),
        (json.dumps({**GOOD, "seed": True}), "seed is True: Input should be a valid integer"),
        (json.dumps({**GOOD, "warm": 1}), "warm is 1: Input should be a valid boolean"),
        (json.dumps({**GOOD, "trial": -1}), "trial is -1: .*greater than or equal to 0"),
        (json.dumps({**GOOD, "cycles": 0}), "cycles is 0: .*greater than 0"),
        (json.dumps({**GOOD, "cycles": 1e400}), "cycles is inf"),
        (json.dumps({**GOOD, "cycles": None}), "exactly one must be null"),
        (json.dumps({**GOOD, "error": "both"}), "exactly one must be null"),
        (json.dumps({k: v for k, v in GOOD.items() if not k.startswith("plan_")}), "'plan_'"),
    ],
)
def test_lines_that_are_no_trials(tmp_path: Path, line: str, message: str) -> None:
    path = tmp_path / "log.jsonl"
    make_log(path, 3)
    with path.open("a", encoding="utf-8") as file:
        file.write(line + "\n")
    before = path.read_bytes()
    for use in (read_log, lambda path: LogWriter(path).__enter__()):
        with pytest.raises(TuningLogError, match=rf"log.jsonl', line 4: .*{message}"):
            use(path)
    assert path.read_bytes() == before, "a foreign file is not touched"


@pytest.mark.parametrize("lines", [0, 3])
@pytest.mark.parametrize(
    "last",
    [
        b"this is no log at all",
        b"[project]",
        b'{"version": 1.0}',
        b'{"version": 2, "space": "grid"',
        b'{"input": ["llvm"',
        b"\0\0{",
    ],
)
def test_last_lines_that_no_trial_begins(tmp_path: Path, lines: int, last: bytes) -> None:
    """Without a newline, as a torn line has none: still another file, of which nothing is cut."""
    path = tmp_path / "log.jsonl"
    if lines:
        make_log(path, lines)
    before = (path.read_bytes() if lines else b"") + last
    path.write_bytes(before)
    for use in (read_log, lambda path: LogWriter(path).__enter__()):
        with pytest.raises(TuningLogError, match=f"line {lines + 1}: .* do not begin a trial: '"):
            use(path)
    assert path.read_bytes() == before


def test_zeros_are_no_log(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    path.write_bytes(bytes(7))
    for use in (read_log, lambda path: LogWriter(path).__enter__()):
        with pytest.raises(TuningLogError, match="line 1: 7 bytes without a line's end"):
            use(path)
    assert path.read_bytes() == bytes(7)


def test_logs_without_an_end(tmp_path: Path) -> None:
    for use in (read_log, lambda path: LogWriter(path).__enter__()):
        with pytest.raises(TuningLogError, match="tuning log '/dev/zero': a device"):
            use(Path("/dev/zero"))


def test_no_text_at_all(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    path.write_bytes(b"\x93NUMPY\x01\xff\n\xfe\n")
    with pytest.raises(TuningLogError, match="line 1: not JSON"):
        read_log(path)


def test_files_that_cannot_be_had(tmp_path: Path) -> None:
    with pytest.raises(TuningLogError, match="cannot read.*No such file"):
        read_log(tmp_path / "none.jsonl")
    with pytest.raises(TuningLogError, match="cannot read.*Is a directory"):
        read_log(tmp_path)
    with pytest.raises(TuningLogError, match="cannot write.*No such file"):
        LogWriter(tmp_path / "no" / "log.jsonl").__enter__()


def test_one_writer_at_a_time(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    with LogWriter(path):
        with pytest.raises(TuningLogError, match="being written by another process"):
            LogWriter(path).__enter__()
    with LogWriter(path) as log:
        assert log.trials == ()


def test_a_killed_process_leaves_whole_lines(tmp_path: Path) -> None:
    """Every trial that was reported is on the disk when the process dies without a word."""
    path = tmp_path / "log.jsonl"
    program = f"""
import os
from pathlib import Path
from tests.codegen.tune.fake_space import Counting, Grid
from tvm_npu.codegen.tune.log import LogWriter, Run
from tvm_npu.codegen.tune.tune import tune

def after(number, cycles):
    if number == 6:
        os.kill(os.getpid(), 9)

with LogWriter(Path({str(path)!r})) as log:
    tune(Grid(), Run("random", False, 0), 12, Counting(), log, after=after)
"""
    root = Path(__file__).parents[3]
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=root, env={**os.environ, "PYTHONPATH": str(root)}
    )
    assert done.returncode == -9
    assert [trial.number for trial in read_log(path)] == list(range(7))
