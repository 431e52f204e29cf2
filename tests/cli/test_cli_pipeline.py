"""``tvm-npu pipeline`` and ``tvm-npu platform``: results, and one clear line for every mistake."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from studies.report.trace_format import faults
from tests.cli.test_cli_errors import failing
from tvm_npu.pipelines.platform_file import load_platform, platform_names
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
    assert "there is no calibration folder or file" in message(lenet, "--input", tmp_path / "x.npz")
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
