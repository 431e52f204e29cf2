"""The pipeline benchmark: its order test for real, its summaries on made rows, its errors."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import fields, replace
from pathlib import Path

import pytest

from studies.harness.command import main
from studies.pipeline import study
from studies.pipeline.errors import BenchError
from studies.pipeline.rows import CutRow, OrderRow, RetuneRow, StreamRow
from studies.pipeline.tables import misses, print_rows, wrong
from tests.runtime.pipeline.stages import CORES
from tvm_npu.cli.terminal import open_terminal

Run = Callable[..., tuple[int, str, str]]
needs_two_cores = pytest.mark.skipif(len(CORES) < 2, reason="the benchmark needs two cores")

STREAM = StreamRow(
    "stream", "net", layers=9, configurations=16, slow_core=1, duty=1 / 3,
    best="7+2 on cores 0, 1", best_throughput=10.0, tuned="6+3 on cores 0, 1",
    tuned_throughput=9.8, tuned_share=0.98, trials=4, tuning_frames=40,
    layer_parallel_throughput=5.0, layer_parallel_bound_throughput=4.0,
    fast_core_throughput=7.5, over_layer_parallel=1.96, bits_equal=True,
)  # fmt: skip
RETUNE = RetuneRow(
    "retune", "net", noticed_frames=6, retuned_frames=30, finished_frames=44, trials=2,
    before="6+3 on cores 0, 1", after="6+3 on cores 1, 0", before_throughput=9.8,
    stuck_throughput=4.2, after_throughput=9.9, best="7+2 on cores 1, 0", best_throughput=10.0,
    after_share=0.99, lost=0, bits_equal=True,
)  # fmt: skip
ORDER = OrderRow(
    "order", "small", frames=1000, exchanges=3, lost=0, repeated=0, out_of_order=0, wrong=0,
    throughput=2000.0, latency_p50_s=0.001, latency_p99_s=0.002,
)  # fmt: skip


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


@pytest.mark.relay
@needs_two_cores
def test_the_long_stream(run: Run, tmp_path: Path) -> None:
    pytest.importorskip("tvm", reason="the relay extra is not installed")
    path = tmp_path / "rows.json"
    code, out, err = run("--models", "--frames", 1000, "--json", path)
    assert code == 0, err
    assert "lenet: 1,000 frames, stages exchanged 4 times: 0 lost, 0 repeated, 0 out of" in out
    (row,) = json.loads(path.read_text())
    assert list(row) == [field.name for field in fields(OrderRow)]
    assert row["frames"] == 1000 and row["exchanges"] == 4 and row["throughput"] > 0
    assert [row[key] for key in ("lost", "repeated", "out_of_order", "wrong")] == [0] * 4


def test_tables(run: Run, capsys: pytest.CaptureFixture[str], monkeypatch) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    cut = CutRow("cut", "net", "1+8 on cores 0, 1", 3.0, 0.3)
    print_rows(open_terminal().out, [STREAM, RETUNE, ORDER, cut])
    out = capsys.readouterr().out
    for text in ("7+2 on cores 0, 1", "98.0%", "1.96", "99.0%", "core 1 works 33% of the time"):
        assert text in out
    assert "small: 1,000 frames, stages exchanged 3 times: 0 lost" in out
    assert not misses([STREAM, RETUNE, ORDER, cut]) and not wrong([STREAM, RETUNE, ORDER, cut])


def test_missed_goals_and_broken_promises() -> None:
    assert misses([replace(STREAM, tuned_share=0.9, over_layer_parallel=0.8)]) == [
        "net: tuned to 90.0% of the best cut",
        "net: 0.80 of stock TVM on all cores",
    ]
    assert misses([replace(RETUNE, retuned_frames=51, after_share=0.5)]) == [
        "net: tuned again only after 51 frames",
        "net: tuned again to 50.0% of the best cut",
    ]
    assert wrong([replace(ORDER, lost=2, wrong=1)]) == [
        "small: 3 frames lost, repeated, out of order or wrong"
    ]
    assert wrong([replace(STREAM, bits_equal=False), replace(RETUNE, lost=1)]) == [
        "net: results differ from the serial run's",
        "net: 1 frames lost while tuning",
    ]


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["--models", "no-such-net"], 2, "unknown model 'no-such-net'; known: "),
        (["--frames", "-3"], 2, "'-3' is not a whole number of at least 0"),
        (["--cores", "0", "4000"], 1, "error: core 4000 cannot be used; usable: "),
        (["--cores", str(CORES[0]), str(CORES[0])], 1, "two different cores are needed"),
        (["--json", "/no/such/folder/x"], 1, "there is no folder '/no/such/folder'"),
        (["--models", "--rounds", "0"], 1, "at least 1 round is needed"),
    ],
)
@needs_two_cores
def test_errors(run: Run, arguments: list[str], code: int, message: str) -> None:
    found, out, err = run(*arguments)
    assert (found, out) == (code, "")
    assert message in err


@needs_two_cores
def test_without_real_time_priority(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(study, "may_steal", lambda: False)
    code, _, err = run("--frames", 0)
    assert code == 1 and "run this as root" in err


def test_stock_tvm_that_dies_is_told(tmp_path: Path) -> None:
    from studies.pipeline.layer_parallel import FREE, LayerParallel

    begin = time.monotonic()
    with pytest.raises(BenchError, match=r"stock TVM \(free\) ended with exit code 1"):
        LayerParallel(tmp_path / "none.so", CORES[:1], FREE)
    assert time.monotonic() - begin < 60


@pytest.mark.relay
def test_a_stock_compilation_that_fails_is_told(tmp_path: Path) -> None:
    pytest.importorskip("tvm", reason="the relay extra is not installed")
    from studies.pipeline.stock import finish_stock, start_stock

    process = start_stock("no-such-net", "llvm", tmp_path / "x.so")
    with pytest.raises(BenchError, match="no-such-net: stock TVM's compilation ended with exit"):
        finish_stock(process, "no-such-net")
