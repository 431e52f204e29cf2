"""What `scripts/interrupts` looks at: half-written files are seen, those to read are good."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from fuzzing import interrupted, interrupts
from fuzzing.interrupted import CACHE, COMMANDS

from tvm_npu.cli.check_command import checked
from tvm_npu.codegen.tiles.ir.read import read_ir
from tvm_npu.sim.limits import Limits
from tvm_npu.sim.nmp.elf import read_elf


@pytest.mark.parametrize(
    ("command", "name", "whole"),
    [("accuracy", "out.json", b'{"a": [1, 2]}'), ("compare", "out.csv", b"a,b\n1,2\n"),
     ("compare", "out.html", b"<html></html>\n"), ("check", "out.json", b"[]"),
     ("warmup", f"{CACHE}/x_1/a.py310.nbi", b"\x80\x04N."), ("run-elf", "out.json", b"[{}]")],
)  # fmt: skip
def test_half_written_files_are_seen(
    tmp_path: Path, command: str, name: str, whole: bytes
) -> None:
    path = tmp_path / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(whole)
    assert COMMANDS[command].left(tmp_path) == []
    path.write_bytes(whole[: -2 if path.suffix == ".html" else -1])
    with pytest.raises(ValueError):
        COMMANDS[command].left(tmp_path)


@pytest.mark.parametrize(
    ("command", "name"),
    [("verify", ".out.json.x"), ("run-ir", ".layer.npu.x"), ("warmup", f"{CACHE}/a.1.nbc.tmp.x")],
)
def test_temporary_files_are_seen(tmp_path: Path, command: str, name: str) -> None:
    path = tmp_path / name
    path.parent.mkdir(exist_ok=True)
    path.touch()
    assert COMMANDS[command].left(tmp_path) == [str(path)]


def test_the_files_that_commands_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(interrupted, "TRIALS", 4)
    for name in ("check", "run-elf", "run-ir", "accuracy", "sweep"):
        COMMANDS[name].prepare(tmp_path)
        assert (tmp_path / COMMANDS[name].arguments[1]).exists() or name == "accuracy"
    assert "4 trials" in checked(tmp_path / "long.jsonl", Limits())
    assert read_elf(tmp_path / "counts.elf").entry == 0x8000_0000
    assert read_ir((tmp_path / "layer.ir").read_text())
    assert (tmp_path / "images.npz").exists()


def test_time_of_ended_children_counts() -> None:
    """Commands that start a process for each part would seem to do nothing else."""
    burns = "import time\nwhile time.process_time() < 0.5: pass"
    script = (
        f"import subprocess, sys, time; subprocess.run([sys.executable, '-c', {burns!r}]); "
        "print('done', flush=True); time.sleep(600)"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", script], stdout=subprocess.PIPE, start_new_session=True
    )
    try:
        assert process.stdout is not None and process.stdout.readline() == b"done\n"
        assert interrupts._use(process.pid).cpu_s >= 0.45
    finally:
        process.kill()
        process.communicate()


def test_machine_code_is_made_anew(tmp_path: Path) -> None:
    made = COMMANDS["warmup"].environment(tmp_path)
    assert Path(made["NUMBA_CACHE_DIR"]).is_relative_to(tmp_path)
    assert made["NUMBA_CACHE_DIR"] != COMMANDS["check"].environment(tmp_path).get("NUMBA_CACHE_DIR")


@pytest.mark.parametrize(
    ("code", "lines", "is_good"),
    [
        (130, ["tvm-npu tune: interrupted"], True), (130, [], False),
        (130, ["wrote a.json (3 KB)", "tvm-npu tune: interrupted"], False),
        (0, [], True), (0, ["wrote a.json (3 KB)"], True), (0, ["error: no"], False),
        (1, ["tvm-npu tune: interrupted"], False),
    ],
)  # fmt: skip
def test_how_commands_may_end(code: int, lines: list[str], is_good: bool) -> None:
    assert (interrupts._ended(code, lines) == []) == is_good
