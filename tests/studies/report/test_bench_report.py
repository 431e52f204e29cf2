"""The benchmark of reports and traces, and what it says of traces that are wrong."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("bokeh")
pytest.importorskip("tvm.relay", exc_type=ImportError)

from studies.harness.command import main  # noqa: E402
from studies.report.study import STUDY  # noqa: E402
from studies.report.trace_format import faults  # noqa: E402
from tests.report.small_runs import MACHINES, REFUSED, recorded  # noqa: E402
from tvm_npu.report.trace import make_trace  # noqa: E402


def test_rows_and_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out, kept = tmp_path / "rows.json", tmp_path / "kept"
    arguments = ["--models", "lenet", "--machines", "setup-a", "--json", str(out)]
    assert main(STUDY, [*arguments, "--keep", str(kept)]) == 0
    (row,) = json.loads(out.read_text())
    page, trace = kept / "lenet-setup-a.html", kept / "lenet-setup-a.trace.json"
    assert row["report_bytes"] == page.stat().st_size and row["trace_bytes"] == trace.stat().st_size
    slices = [one for one in json.loads(trace.read_text())["traceEvents"] if one["ph"] == "X"]
    assert row["slices"] == len(slices) > 0 and row["trace_faults"] == []
    assert row["coarse_layers"] == 0 and row["layers"] >= 4
    assert min(row["profile_cpu_s"], row["report_cpu_s"], row["trace_cpu_s"]) > 0
    text = capsys.readouterr().out
    assert "lenet" in text and f"{row['slices']:,}" in text


@pytest.mark.parametrize("name", MACHINES)
def test_traces_are_as_the_format_says(name: str) -> None:
    assert faults(make_trace([recorded(name)], [REFUSED]).content) == []


def first(entries: list[dict[str, Any]], phase: str) -> dict[str, Any]:
    return next(entry for entry in entries if entry["ph"] == phase)


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (lambda all_: first(all_, "X").update(ts="3"), "its time stamp is '3'"),
        (lambda all_: first(all_, "X").update(dur=-1), "its duration is -1"),
        (lambda all_: first(all_, "X").update(name=""), "it has no name"),
        (lambda all_: first(all_, "X").update(tid=10**6), "a lane without a name"),
        (lambda all_: first(all_, "X").update(pid=99), "process 99 has no name"),
        (lambda all_: first(all_, "X").update(ph="?"), "its phase is '?'"),
        (lambda all_: first(all_, "C").update(args={"value": "much"}), "it counts no numbers"),
        (lambda all_: all_.remove(first(all_, "e")), "does not begin and end"),
        (lambda all_: all_.clear(), "there is no list"),
    ],
)
def test_what_is_wrong_with_a_trace_is_told(
    damage: Callable[[list[dict[str, Any]]], Any], said: str
) -> None:
    trace = json.loads(make_trace([recorded("setup-a")]).content)
    damage(trace["traceEvents"])
    assert said in "; ".join(faults(json.dumps(trace).encode()))
