"""What `scripts/interrupts` interrupts: commands, the files that they read, and how what they have
written is looked at."""

from __future__ import annotations

import json
import os
import sqlite3
import struct
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
MODEL = str(ROOT / "tvm_npu" / "models" / "data" / "digits_lenet.onnx")
CACHE = "cache"
"""For numba, of a command that makes machine code."""
TURNS, TRIALS = 100_000_000, 120_000
"""Of a loop of two instructions; in a log of tuning."""
SPEC = f"""\
models = ["{MODEL}"]
planners = ["exact-layers"]
fidelity = ["predicted", "checked"]
[machine]
base = "nmp-4x8"
[machine.keys]
"cores.tles" = [1, 2, 4]
"memories.mb0_bytes" = [4096, 8192, 16384]
[search]
objectives = ["cycles", "dram_bytes"]
promote = "front"
"""


def nothing(folder: Path) -> None:
    """A command that reads no file of the folder."""


def programs(folder: Path) -> list[str]:
    from tvm_npu.codegen.program.format import Program

    for path in folder.glob("**/*.npu"):
        Program.from_file(path)
    return [str(path) for path in folder.glob("**/.*")]


def log(folder: Path) -> list[str]:
    from tvm_npu.codegen.tune.log import read_log

    for path in folder.glob("*.jsonl"):
        read_log(path)
    return []


def whole_json(folder: Path) -> list[str]:
    for path in folder.glob("*.json"):
        json.loads(path.read_bytes())
    return [str(path) for path in folder.glob("**/.*")]


def store(folder: Path) -> list[str]:
    from tvm_npu.sweep.outcome import Outcome

    for path in folder.glob("*.sweep/*.sqlite"):
        with closing(sqlite3.connect(path)) as store:
            if (said := store.execute("PRAGMA integrity_check").fetchone()[0]) != "ok":
                return [f"{path}: {said}"]
            tables = store.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
            for (text,) in store.execute("SELECT outcome FROM results") if tables else ():
                Outcome(**json.loads(text))
    return [str(path) for path in folder.glob("**/.*")]


def written(folder: Path) -> list[str]:
    """Of JSON, CSV, HTML and programs; what is not whole raises."""
    for pattern, end in (("*.html", b"</html>"), ("*.csv", b"\n")):
        for path in folder.glob(pattern):
            if not path.read_bytes().endswith((end, end + b"\n")):
                raise ValueError(f"{path} has no end")
    programs(folder)
    return whole_json(folder)


def machine_code(folder: Path) -> list[str]:
    """Of numba, which reads it when a command starts again: pickles, which end with a full stop."""
    files = [path for path in (folder / CACHE).glob("**/*") if path.is_file()]
    for path in files:
        if path.suffix in (".nbi", ".nbc") and not path.read_bytes().endswith(b"."):
            raise ValueError(f"{path} has no end")
    return [str(path) for path in files if ".tmp." in path.name]


def _detected_platform(folder: Path) -> None:
    command = [sys.executable, "-m", "tvm_npu.cli", "platform", "detect", "--out", "here.toml"]
    subprocess.run(command, cwd=folder, check=True, capture_output=True, env=environment(folder))


def _spec(folder: Path) -> None:
    (folder / "spec.toml").write_text(SPEC, "utf-8")


def _images(folder: Path) -> None:
    import numpy as np

    draw = np.random.default_rng(0)
    np.savez(folder / "images.npz", images=draw.random((256, 1, 8, 8), np.float32),
             labels=draw.integers(0, 10, 256))  # fmt: skip


def _executable(folder: Path) -> None:
    """Counts for a while, then exits."""
    from tvm_npu.sim.isa.assembler import assemble
    from tvm_npu.sim.nmp.xnmp import NMP_ISA

    base, head = 0x8000_0000, 52 + 32
    code = assemble(
        f"li t0, {TURNS}\nagain: addi t0, t0, -1\nbnez t0, again\n"
        "li a0, 0\nli a7, 93\necall\n", base, isa=NMP_ISA,
    ).tobytes()  # fmt: skip
    identity = b"\x7fELF" + bytes((1, 1, 1)) + bytes(9)
    (folder / "counts.elf").write_bytes(
        identity + struct.pack("<HHIIIIIHHHHHH", 2, 243, 1, base, 52, 0, 0, 52, 32, 1, 0, 0, 0)
        + struct.pack("<IIIIIIII", 1, head, base, base, len(code), len(code), 5, 4) + code
    )  # fmt: skip


def _plan(folder: Path) -> None:
    """Of a layer with half a billion products."""
    from tvm_npu.codegen.plan.loops.plan import LoopPlan
    from tvm_npu.codegen.plan.problem import ConvProblem
    from tvm_npu.codegen.tiles.ir.write import write_ir
    from tvm_npu.sim.machine_file import load_machine
    from tvm_npu.sim.tiles.machine import TileMachine

    machine = load_machine("setup-a")
    assert isinstance(machine, TileMachine)
    layer = ConvProblem(128, 128, 1, 56, 56, 56, 56, (3, 3), (1, 1), (1, 1), (1, 1, 1, 1), 4,
                        accumulator_bytes=4)  # fmt: skip
    text = write_ir(layer, LoopPlan(32, 16, 14, 28), machine)
    (folder / "layer.ir").write_text(text, "utf-8")


def _tuning_log(folder: Path) -> None:
    from fuzzing.seed_files import tuning_log

    (lines,) = tuning_log()
    with (folder / "long.jsonl").open("wb") as file:
        file.writelines(lines for _ in range(TRIALS // 2))


def environment(folder: Path, **more: str) -> dict[str, str]:
    temporary = folder / "tmp"
    temporary.mkdir(exist_ok=True)
    paths = [str(ROOT), os.environ.get("PYTHONPATH", "")]
    return dict(os.environ, PYTHONPATH=os.pathsep.join(paths), TMPDIR=str(temporary), **more)


@dataclass(frozen=True)
class Command:
    """``prepare`` writes what it reads; ``left`` tells what it should not have left, and raises
    for what is half-written. ``makes_code``: machine code, which is not there before."""

    arguments: tuple[str, ...]
    left: Callable[[Path], list[str]]
    prepare: Callable[[Path], None] = nothing
    makes_code: bool = False

    def environment(self, folder: Path) -> dict[str, str]:
        more = {"NUMBA_CACHE_DIR": str(folder / CACHE)} if self.makes_code else {}
        return environment(folder, **more)


COMMANDS: dict[str, Command] = {
    "profile": Command(("profile", MODEL, "--json", "out.json"), whole_json),
    "compile": Command(("compile", MODEL, "--planner", "exact", "-o", "programs"), programs),
    "tune": Command(("tune", MODEL, "--log", "log.jsonl", "--trials", "6"), log),
    "pipeline": Command(
        ("pipeline", MODEL, "--platform", "here.toml", "--json", "out.json"), whole_json,
        _detected_platform,
    ),
    "sweep": Command(
        ("sweep", "spec.toml", "--workers", "2", "--json", "out.json"), store, _spec
    ),
    "accuracy": Command(
        ("accuracy", MODEL, "--images", "images.npz", "--simulated", "8", "--workers", "2",
         "--json", "out.json"), written, _images,
    ),
    "compare": Command(
        ("compare", MODEL, "--images", "images.npz", "--repeats", "3", "--json", "out.json",
         "--csv", "out.csv", "--html", "out.html"), written, _images,
    ),
    "verify": Command(("verify", MODEL, "--samples", "8", "--json", "out.json"), written),
    "run-elf": Command(
        ("run-elf", "counts.elf", "--budget", "1000000000", "--registers", "--trace", "20",
         "--json", "out.json"), written, _executable,
    ),
    "run-ir": Command(("run-ir", "layer.ir", "--program", "layer.npu"), written, _plan),
    "warmup": Command(("warmup", "setup-a"), machine_code, makes_code=True),
    "check": Command(("check", "long.jsonl", "--json", "out.json"), written, _tuning_log),
}  # fmt: skip
