"""``tvm-npu pipeline`` and ``tvm-npu platform``: results, and one clear line for every mistake."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console

from studies.report.trace_format import faults
from tests.cli.test_cli_errors import failing
from tests.pipelines.chains_made_up import chain, simulated
from tvm_npu.cli.pipeline_report import print_simulated, simulated_json
from tvm_npu.cli.pipeline_stream import simulated_frames
from tvm_npu.cli.terminal import Terminal
from tvm_npu.pipelines.platform_file import load_platform, platform_names
from tvm_npu.pipelines.search import run_search
from tvm_npu.pipelines.simulated_stream import simulate_stream
from tvm_npu.pipelines.times import SimulatedMeasure, simulated_table
from tvm_npu.sim.machine_file import load_machine
from tvm_npu.sim.units import Unit

pytest.importorskip("tvm", reason="neither the relay nor the relax extra is installed")

CORES = sorted(os.sched_getaffinity(0))


def platform_file(folder: Path, *cores: int, extra: str = "") -> Path:
    places = "".join(
        f'[[places]]\nkind = "real"\nname = "p{n}"\ncore_ids = [{core}]\n{extra}\n'
        for n, core in enumerate(cores)
    )
    path = folder / "platform.toml"
    path.write_text(f'name = "test"\n{places}')
    return path


@pytest.fixture
def here(tmp_path: Path) -> Path:
    """A place on the first core, and one on the last if there are two."""
    return platform_file(tmp_path, *dict.fromkeys((CORES[0], CORES[-1])))


def test_a_processor_that_is_none_here(run, lenet: Path, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    path = platform_file(tmp_path, CORES[0], extra='mcpu = "nosuchcpu"')
    code, out, err = run("pipeline", lenet, "--platform", path)
    assert code == 1 and "platform test: place p0: mcpu 'nosuchcpu' is none of the " in err
    assert "unexpected" not in err and not out


def test_a_stream(run, lenet: Path, here: Path, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    digits = tmp_path / "digits.npz"
    np.savez(digits, image=np.random.default_rng(0).standard_normal((3, 1, 8, 8)).astype("f4"))
    code, out, err = run(
        "pipeline", lenet, "--platform", here, "--search", "shisha-h3", "--frames", 30,
        "--input", digits, "--json", tmp_path / "run.json", "--trace", tmp_path / "trace.json",
    )  # fmt: skip
    assert code == 0, err
    report = json.loads((tmp_path / "run.json").read_text())
    count = len(report["stages"])
    assert report["layers"] == 6 and sum(stage["layers"] for stage in report["stages"]) == 6
    assert report["space"] == (6 + 6 if len(CORES) > 1 else 1)  # 1 or 2 stages on 2 places
    assert report["frames"] == 30 and report["throughput"] > 0
    assert report["trials"][0].keys() == {"stages", "places", "stage_s"}
    assert all(sum(trial["stages"]) == 6 for trial in report["trials"])
    assert [layer["name"] for layer in report["chain"]] == [
        "conv1", "pool1", "conv2", "pool2", "fc1", "logits",
    ]  # fmt: skip
    assert out.count("p0") + out.count("p1") == count
    assert "30 frames, " in out and " a second; latency " in out
    total = 30 + report["tuning_frames"]
    assert f"all {total:,} results are in order and, to the bit, those of the serial model" in out
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    worked = [event for event in events if event["ph"] == "X" and event["tid"] == 0]
    last = {event["args"]["frame"] for event in worked}
    assert set(range(total - 30, total)) <= last <= set(range(total))
    assert "not been tuned" not in err


@pytest.mark.parametrize("machine", ["nmp-4x8", "snowflake-2cc"])
def test_npu_regions_are_stages(  # type: ignore[no-untyped-def]
    run, make_onnx: Callable[..., Path], here: Path, tmp_path: Path, machine: str
) -> None:
    model = make_onnx(["Conv", "Cos", "Conv", "Relu"])
    code, out, err = run(
        "pipeline", model, "--platform", here, "--search", "shisha-h1", "--frames", 3,
        "--budget", 1, "--machine", machine, "--json", tmp_path / "run.json",
        "--limits", "work=1g,host_bytes=8g", "--trace", tmp_path / "trace.json",
    )  # fmt: skip
    assert code == 0, err
    _check_trace((tmp_path / "trace.json").read_bytes(), machine)
    report = json.loads((tmp_path / "run.json").read_text())
    assert [layer["source"] for layer in report["chain"]] == [["conv0"], ["conv2", "relu3"]]
    assert "all " in out and "to the bit, those of the serial model" in out
    assert len(report["stages"]) == len({CORES[0], CORES[-1]})


def _check_trace(content: bytes, machine: str) -> None:
    """Stages, layers, units, links and operators of the CPU: each a process, none in another."""
    assert faults(content) == []
    trace = json.loads(content)
    events = trace["traceEvents"]
    named = [one for one in events if one["name"] == "process_name"]
    names = {one["pid"]: one["args"]["name"] for one in named}
    assert len(names) == len(named)
    places = [name for name in names.values() if name.startswith("place ")]
    simulated = [name for name in names.values() if name.endswith(f"({machine}, simulated time)")]
    assert places and len(simulated) >= 4 and len({*places, *simulated}) == len(names)
    kinds = {(one["cat"], names[one["pid"]]) for one in events if "cat" in one}
    assert {kind for kind, name in kinds if name in simulated} >= {"layer", "work", "link", "cpu"}
    assert {kind for kind, name in kinds if name in places}.isdisjoint({"layer", "work", "link"})
    lanes = {one["args"]["name"] for one in events if one["name"] == "thread_name"}
    assert {"computes", "waits", "DRAM", *(unit.name for unit in _units(machine))} <= lanes
    clock = trace["otherData"]["clock"]
    assert "wall clock" in clock and f"simulated time of {machine}" in clock


def _units(machine: str) -> list[Unit]:
    return [unit for unit in load_machine(machine).units() if unit.role != "memory"]


def test_what_regions_may_take(run, make_onnx: Callable[..., Path], here: Path) -> None:  # type: ignore[no-untyped-def]
    code, _, err = run(
        "pipeline", make_onnx(["Conv"]), "--platform", here, "--machine", "nmp-4x8",
        "--limits", "work=1k",
    )  # fmt: skip
    assert code == 1 and "more than 1024 products, elements and bytes in a run" in err
    assert "unexpected" not in err


def test_one_layer_and_more_places_than_layers(  # type: ignore[no-untyped-def]
    run, make_onnx: Callable[..., Path], here: Path, tmp_path: Path
) -> None:
    model = make_onnx(["Conv", "Relu"])
    arguments = ("--frames", 2, "--search", "guided", "--json", tmp_path / "run.json")
    code, _, err = run("pipeline", model, "--platform", here, *arguments)
    assert code == 0, err
    report = json.loads((tmp_path / "run.json").read_text())
    assert report["layers"] == 1 and len(report["stages"]) == 1
    model = make_onnx(["Conv", "Conv"])
    for search in ("guided", "shisha-h1", "exact"):
        code, out, err = run(
            "pipeline", model, "--platform", "shisha-c5", "--search", search,
            "--json", tmp_path / "run.json",
        )  # fmt: skip
        assert code == 0, err
        report = json.loads((tmp_path / "run.json").read_text())
        assert report["simulated"] and report["layers"] == 2
        assert 1 <= len(report["stages"]) <= 2
        assert "frames a second, simulated" in out


def test_simulated_frames(run, lenet: Path, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    code, out, err = run(
        "pipeline", lenet, "--platform", "shisha-c5", "--simulate", "--frames", 300, "--noise", 0.1,
        "--seed", 4, "--json", tmp_path / "run.json", "--trace", tmp_path / "trace.json",
    )  # fmt: skip
    assert code == 0, err
    report = json.loads((tmp_path / "run.json").read_text())
    stage_s = [stage["busy_s"] for stage in report["stages"]]
    stream = report["stream"]
    assert (stream["frames"], stream["noise"], stream["seed"]) == (300, 0.1, 4)
    assert stream["throughput"] == pytest.approx(report["throughput"], rel=0.05)
    expected = simulate_stream(stage_s, 300, noise=0.1, seed=4)
    latency = stream["latency_s"]
    assert latency["first"] == expected.latency_s[0] != sum(stage_s)
    assert latency["mean"] == expected.latency_s.mean()
    assert latency["99"] == pytest.approx(np.percentile(expected.latency_s, 99))
    for paper_s, stage in zip(stage_s, stream["stages"], strict=True):
        assert stage["busy_s"] == pytest.approx(paper_s, rel=0.03)
        share = paper_s * report["throughput"]
        assert stage["utilization"] == pytest.approx(share, rel=0.05, abs=0.01)
    assert f"300 frames, simulated with 10.0% noise: {stream['throughput']:.4g} a second" in out
    assert f"{stream['throughput']:.4g} a second (on paper: {report['throughput']:.4g})" in out
    first = f"{latency['first'] * 1e3:.4g} ms (on paper: {sum(stage_s) * 1e3:.4g})"
    assert f"latency: first frame {first}, mean {latency['mean'] * 1e3:.4g} ms" in out
    content = (tmp_path / "trace.json").read_bytes()
    assert faults(content) == [] and "simulated time" in json.loads(content)["otherData"]["clock"]
    events = json.loads(content)["traceEvents"]
    worked = [event for event in events if event["ph"] == "X" and event["tid"] == 0]
    assert len(worked) == 300 * len(stage_s)
    end_us = max(event["ts"] + event["dur"] for event in worked)
    assert end_us == pytest.approx(expected.stage_ns.max() / 1e3, abs=0.01)


def test_a_thousand_layers_on_256_places(capsys: pytest.CaptureFixture[str]) -> None:
    """Behind the model's file: what is searched, simulated, printed and written."""
    long, platform = chain([10**9] * 1000), simulated([2e9, 1e9] * 128)
    measure = SimulatedMeasure(simulated_table(long, platform))
    found = run_search("shisha-h1", long, platform, measure, budget=3)
    frames = simulated_frames(platform, found.best, 400, 0.0, 0)
    print_simulated(long, platform, found, frames, Terminal(Console(width=200), Console()))
    text = capsys.readouterr().out
    stages = len(found.best.configuration)
    assert stages == 256 and len(frames.as_json()["stages"]) == stages
    written = simulated_json(long, platform, found, frames)
    paper = found.best.times.throughput
    assert written["stream"]["throughput"] == pytest.approx(paper)
    assert f"400 frames, simulated with 0.0% noise: {paper:.4g} a second" in text
    assert text.count("layer") > 2 * stages


def test_files_and_names(run, lenet: Path, here: Path, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    def message(code: int, *arguments: Any) -> str:
        return failing(run, code, "pipeline", *arguments)

    assert "--platform" in message(2, lenet)
    assert "invalid choice: 'best'" in message(2, lenet, "--platform", here, "--search", "best")
    assert "'shisha-h6'" in message(2, lenet, "--platform", here, "--search", "best")
    text = message(2, lenet, "--platform", here, "--frames", 0)
    assert "'0' is not an integer of at least 1" in text
    text = message(1, lenet, "--platform", "tx3")
    assert text.startswith("unknown platform 'tx3': neither a file nor one of shisha-c1")
    missing = platform_file(tmp_path, CORES[0], 4095)
    text = message(1, lenet, "--platform", missing)
    assert text.startswith("platform test: place p1 names core 4095; this process may use 0")
    broken = platform_file(tmp_path, CORES[0], extra="threads = 2")
    assert "threads = 2 is more than the 1 cores" in message(1, lenet, "--platform", broken)
    broken.write_text("places = [")
    assert "not TOML" in message(1, lenet, "--platform", broken)
    same = tmp_path / "a.json"
    text = message(2, lenet, "--platform", "shisha-c1", "--json", same, "--trace", same)
    assert text == "arguments --json and --trace name the same file"
    text = message(1, lenet, "--platform", "shisha-c1", "--trace", same)
    assert text.startswith("platform shisha-c1 is simulated: no frame flows")
    text = message(1, lenet, "--platform", platform_file(tmp_path, CORES[0]), "--simulate")
    assert text.startswith("platform test has real places: --simulate needs simulated ones")
    text = message(2, lenet, "--platform", "shisha-c1", "--noise", 0.1)
    assert text.startswith("argument --noise: only with --simulate")
    simulate = (lenet, "--platform", "shisha-c1", "--simulate")
    assert "'1.5' is not a number from 0 to 1" in message(2, *simulate, "--noise", 1.5)
    text = message(1, *simulate, "--frames", 1_000_001)
    assert text == "frames = 1000001; from 1 to 1,000,000, a whole number"
    text = message(1, *simulate, "--frames", 200_001, "--trace", same)
    assert text.startswith("a trace of 200,001 frames in ") and "at most 200,000 frames " in text
    assert "is a folder" in message(1, lenet, "--platform", "shisha-c1", "--json", tmp_path)
    assert not list(tmp_path.glob("*.json"))


def test_models_and_inputs(  # type: ignore[no-untyped-def]
    run, lenet: Path, here: Path, make_onnx: Callable[..., Path], tmp_path: Path
) -> None:
    def message(*arguments: Any) -> str:
        return failing(run, 1, "pipeline", *arguments, "--platform", here)

    damaged = tmp_path / "damaged.onnx"
    damaged.write_bytes(lenet.read_bytes()[:200])
    assert "is not an ONNX model" in message(damaged)
    assert "no such file" in message(tmp_path / "absent.onnx").lower()
    assert "there is no folder or file" in message(lenet, "--input", tmp_path / "x.npz")
    wrong = tmp_path / "wrong.npz"
    np.savez(wrong, image=np.zeros((1, 1, 9, 9), np.float32))
    assert "wrong.npz" in message(lenet, "--input", wrong)
    assert message(lenet, "--search", "exact").startswith(
        "search exact needs the times of every layer on every place, and those of platform test"
    )
    open_shape = make_onnx(["Conv"], (1, 3, "h", 8))
    assert "input 'x' has the open shape" in message(open_shape)


def test_budget(run, lenet: Path, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    code, out, _ = run(
        "pipeline", lenet, "--platform", "shisha-c1", "--search", "exhaustive", "--budget", 3
    )
    assert code == 0 and "exhaustive: 3 trials of 12 configurations" in out
    assert "the budget ended it" in out


def test_platforms(run, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    code, out, _ = run("platform", "list", "--json", tmp_path / "all.json")
    assert code == 0
    for name in platform_names():
        assert name in out
    listed = json.loads((tmp_path / "all.json").read_text())["platforms"]
    assert [one["name"] for one in listed] == list(platform_names())
    for name in platform_names():
        code, out, _ = run("platform", "show", name)
        assert code == 0
        assert all(place.name in out for place in load_platform(name).places)
    assert failing(run, 1, "platform", "show", "tx3").startswith("unknown platform 'tx3'")


def test_detect(run, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    code, out, _ = run("platform", "detect", "--by", "core", "--out", tmp_path / "here.toml")
    assert code == 0
    found = load_platform(tmp_path / "here.toml")
    assert sorted(core for place in found.places for core in place.core_ids) == CORES
    assert all(place.name in out for place in found.places)
    code, out, _ = run("platform", "detect", "--by", "core")
    assert code == 0 and out == (tmp_path / "here.toml").read_text()
    assert "is a folder" in failing(run, 1, "platform", "detect", "--out", tmp_path)
