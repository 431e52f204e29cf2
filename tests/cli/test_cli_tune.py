"""`tvm-npu tune`, and the planners that take its log."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tvm_npu.cli.tune_job import columns
from tvm_npu.tuning.model import TunedLayer

TRIALS = 4


def test_machines_that_cannot_be_tuned_are_told_before_the_work(  # type: ignore[no-untyped-def]
    run, tmp_path: Path
) -> None:
    log = tmp_path / "log"
    asked = ("tune", "no-such.onnx", "--machine", "snowflake-1cc", "--tuner", "random")
    code, out, err = run(*asked, "--log", log)
    assert (code, out) == (1, "") and "of isa 'snowflake' cannot be tuned" in err
    assert not log.exists()


class TestWithTvm:
    @pytest.fixture(autouse=True)
    def _tvm(self) -> None:
        pytest.importorskip("tvm", reason="the relay extra is not installed")

    def test_tune_resume_and_compile(self, run, lenet: Path, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
        log, table = tmp_path / "lenet.jsonl", tmp_path / "table.json"
        tune = ("tune", lenet, "--log", log, "--tuner", "random", "--json", table)
        code, out, err = run(*tune, "--trials", TRIALS - 2)
        assert (code, err) == (0, ""), err
        first = log.read_bytes()
        code, out, err = run(*tune, "--trials", TRIALS)
        assert code == 0 and not err
        assert log.read_bytes().count(b"\n") == 2 * first.count(b"\n")
        rows = json.loads(table.read_text())
        assert [row["layer"] for row in rows] == [
            "conv1", "conv2", "fc1", "logits", "conv1+pool1", "conv2+pool2",
        ]  # fmt: skip
        assert {row["trials"] for row in rows} == {TRIALS}
        assert f"{6 * TRIALS} trials, {6 * 2} of them new" in out
        log.write_bytes(log.read_bytes()[:-30])
        code, again, err = run(*tune, "--trials", TRIALS)
        assert code == 0 and "cut off after" in err and ", 1 of them new" in again
        for name in ("learned", "exact-tuned"):
            code, out, err = run(
                "compile", lenet, "-o", tmp_path / "out", "--planner", name, "--tuning-log", log
            )
            assert code == 0 and "it is planned by" not in err, err
        code, out, err = run("profile", lenet, "--planner", "learned", "--tuning-log", log,
                             "--machine", "nmp-4x8-dual")  # fmt: skip
        assert code == 0 and err.count("it is planned by 'exact'") == 6

    def test_what_trials_may_take(  # type: ignore[no-untyped-def]
        self, run, make_onnx: Callable[..., Path], tmp_path: Path
    ) -> None:
        """A trial beyond a limit is none: a log that went on is as one that never met it."""
        model, log, other = make_onnx(["Conv"]), tmp_path / "log", tmp_path / "other"
        tune = ("tune", model, "--tuner", "random", "--trials", 2, "--log")
        for limits, message in (
            ("work=1k", "reached a limit: .* more than 1024 products"),
            ("instructions=9", "reached a limit: .* still running after 9 instructions"),
            ("dram_bytes=1k", "bytes, limit dram_bytes allows 1024; raise it"),
        ):
            code, _, err = run(*tune, log, "--limits", limits)
            assert code == 1 and re.search(message, err) and "unexpected" not in err
            assert log.read_bytes() == b""
        assert run(*tune, log, "--limits", "work=1g,instructions=100m,host_bytes=4g")[0] == 0
        assert run(*tune, other)[0] == 0 and log.read_bytes() == other.read_bytes() != b""

    def test_warm_runs_are_no_slower_than_exact(self, run, lenet: Path, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
        table = tmp_path / "table.json"
        code, _, _ = run("tune", lenet, "--log", tmp_path / "log", "--tuner", "annealing",
                         "--warm", "--trials", 2, "--json", table)  # fmt: skip
        assert code == 0
        for row in json.loads(table.read_text()):
            assert row["best_cycles"] <= row["exact_cycles"]

    def test_tuned_libraries_through_tvm(self, run, lenet: Path, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
        """Target options carry the log to the build."""
        from tvm import relay

        import tvm_npu
        from tvm_npu.codegen.program.format import Program
        from tvm_npu.models.data import load_digits_calibration, load_digits_lenet
        from tvm_npu.relay import partition_for_npu, region_programs

        log = tmp_path / "lenet.jsonl"
        run("tune", lenet, "--log", log, "--tuner", "random", "--trials", 2)
        target = tvm_npu.target("nmp-4x8", planner="learned", tuning_log=log)
        mod, params = relay.frontend.from_onnx(load_digits_lenet())
        mod = partition_for_npu(mod, params, target, load_digits_calibration()[:2])
        (program,) = (Program.from_bytes(one) for one in region_programs(mod).values())
        assert program.planner == "learned"

    def test_tile_machines(self, run, lenet: Path, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
        log, table = tmp_path / "log", tmp_path / "table.json"
        code, _, err = run("tune", lenet, "--log", log, "--machine", "setup-a", "--warm",
                           "--tuner", "random", "--trials", 2, "--json", table)  # fmt: skip
        assert (code, err) == (0, "")
        rows = json.loads(table.read_text())
        assert [row["layer"] for row in rows] == ["conv1", "conv2", "fc1", "logits"]
        assert all(row["best_cycles"] <= row["exact_cycles"] for row in rows)
        for name in ("learned", "exact-tuned"):
            compiled = ("compile", lenet, "-o", tmp_path / name, "--planner", name,
                        "--tuning-log", log, "--machine")  # fmt: skip
            code, _, err = run(*compiled, "setup-a")
            assert code == 0 and "it is planned by" not in err, err
            code, _, err = run(*compiled, "setup-b")
            assert code == 0 and err.count("it is planned by 'exact'") == 4, err


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"layer,cycles\n", "line 1: not JSON"),
        (b'{"input": 1}\n', "line 1: no trial: key 'version' is missing"),
    ],
)
def test_foreign_logs(run, lenet: Path, tmp_path: Path, content: bytes, message: str) -> None:  # type: ignore[no-untyped-def]
    log = tmp_path / "log.jsonl"
    log.write_bytes(content)
    for command in (
        ("tune", lenet, "--log", log),
        ("compile", lenet, "-o", tmp_path, "--planner", "learned", "--tuning-log", log),
    ):
        code, _, err = run(*command)
        assert code == 1 and message in err and err.count("\n") == 1
    assert log.read_bytes() == content


def test_options_that_do_not_go_together(run, lenet: Path, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    for options, message in (
        (("--planner", "learned"), "planner 'learned' plans by a tuning log, and none is given"),
        (("--tuning-log", tmp_path / "x"), "cannot read tuning log"),
        (("--planner", "exact-tuned", "--tuning-log", tmp_path), "Is a directory"),
    ):
        code, _, err = run("compile", lenet, "-o", tmp_path / "out", *options)
        assert code == 1 and message in err


def test_without_xgboost(run, lenet: Path, tmp_path: Path, monkeypatch) -> None:  # type: ignore[no-untyped-def]
    monkeypatch.setitem(sys.modules, "xgboost", None)
    code, _, err = run("tune", lenet, "--log", tmp_path / "log")
    assert code == 1 and err.startswith("tvm-npu tune: error: the learned cost model needs xgboost")
    assert not (tmp_path / "log").exists()


def test_layers_that_could_not_be_measured() -> None:
    cells = [column.cells for column in columns([TunedLayer("a", 1, 8, 8, 8, None, 5.0)])]
    assert cells == [("a",), ("1",), ("8",), ("8",), ("none",), ("5",), ("",)]
