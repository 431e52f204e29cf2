"""``scripts/interrupts [COMMAND...] --count N --json FILE``: Ctrl-C at random moments of commands
that work for a while. Each must end within a second with exit code 130 and one line, leave no
process and no temporary file, and nothing half-written."""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import asdict, dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
MODEL = ROOT / "tvm_npu" / "models" / "data" / "digits_lenet.onnx"
LATEST_S = 1.0
LOST_S = 60.0
PYTHON_STARTS_S = 0.15
"""Before Python itself has started no program can hear anything."""


@dataclass
class Row:
    """Interrupted ``at_s`` behind its start, over ``took_s`` later; ``faults`` is empty if good."""

    command: str
    at_s: float
    took_s: float
    code: int
    faults: list[str]


def _programs(folder: Path) -> list[str]:
    from tvm_npu.codegen.program.format import Program

    for path in folder.glob("**/*.npu"):
        Program.from_file(path)
    return [str(path) for path in folder.glob("**/.*")]


def _log(folder: Path) -> list[str]:
    from tvm_npu.codegen.tune.log import read_log

    for path in folder.glob("*.jsonl"):
        read_log(path)
    return []


def _json(folder: Path) -> list[str]:
    for path in folder.glob("*.json"):
        json.loads(path.read_bytes())
    return [str(path) for path in folder.glob("**/.*")]


def _store(folder: Path) -> list[str]:
    from tvm_npu.sweep.outcome import Outcome

    for path in folder.glob("*.sweep/*.sqlite"):
        with closing(sqlite3.connect(path)) as store:
            if (said := store.execute("PRAGMA integrity_check").fetchone()[0]) != "ok":
                return [f"{path}: {said}"]
            tables = store.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
            for (text,) in store.execute("SELECT outcome FROM results") if tables else ():
                Outcome(**json.loads(text))
    return [str(path) for path in folder.glob("**/.*")]


COMMANDS: dict[str, tuple[list[str], Callable[[Path], list[str]]]] = {
    "profile": (["profile", str(MODEL), "--json", "out.json"], _json),
    "compile": (["compile", str(MODEL), "--planner", "exact", "-o", "programs"], _programs),
    "tune": (["tune", str(MODEL), "--log", "log.jsonl", "--trials", "6"], _log),
    "pipeline": (["pipeline", str(MODEL), "--platform", "here.toml", "--json", "out.json"], _json),
    "sweep": (["sweep", "spec.toml", "--workers", "2", "--json", "out.json"], _store),
}
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


def _prepare(command: str, folder: Path) -> None:
    """The files that a command reads."""
    if command == "sweep":
        (folder / "spec.toml").write_text(SPEC, "utf-8")
    if command == "pipeline":
        _detect(folder)


def _detect(folder: Path) -> None:
    command = [sys.executable, "-m", "tvm_npu.cli", "platform", "detect", "--out", "here.toml"]
    subprocess.run(command, cwd=folder, check=True, capture_output=True, env=_environment(folder))


def _environment(folder: Path) -> dict[str, str]:
    temporary = folder / "tmp"
    temporary.mkdir(exist_ok=True)
    paths = [str(ROOT), os.environ.get("PYTHONPATH", "")]
    return dict(os.environ, PYTHONPATH=os.pathsep.join(paths), TMPDIR=str(temporary))


def _start(arguments: list[str], folder: Path) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-W", "ignore", "-m", "tvm_npu.cli", *arguments], cwd=folder,
        stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, env=_environment(folder),
        start_new_session=True,
    )  # fmt: skip


def _session(leader: int) -> list[int]:
    """Processes of a session that are there."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rsplit(")", 1)[1].split()
        except OSError:
            continue
        if int(fields[3]) == leader and fields[0] != "Z":
            found.append(int(path.parent.name))
    return found


def interrupted(command: str, at_s: float) -> Row:
    arguments, check = COMMANDS[command]
    with tempfile.TemporaryDirectory(prefix="interrupts-") as name:
        folder = Path(name)
        _prepare(command, folder)
        process = _start(arguments, folder)
        time.sleep(at_s)
        sent = time.monotonic()
        process.send_signal(signal.SIGINT)
        faults = []
        try:
            _, said = process.communicate(timeout=LOST_S)
        except subprocess.TimeoutExpired:
            process.kill()
            _, said = process.communicate()
            faults.append("hangs")
        took = time.monotonic() - sent
        every = said.decode("utf-8", "replace").splitlines()
        lines = [line for line in every if not line.startswith("note: ")]
        if process.returncode != 0 or lines:
            faults += _ended(process.returncode, lines)
        done = process.returncode == 0  # it was ending anyway
        if took > LATEST_S and not done:
            faults.append(f"ends after {took:.2f} s")
        time.sleep(0.2)
        if left := _session(process.pid):
            faults.append(f"{len(left)} processes are left")
        faults += [f"left: {path.name}" for path in (folder / "tmp").iterdir()]
        try:
            faults += [f"left: {path}" for path in check(folder)]
        except Exception as error:
            faults.append(f"half-written: {type(error).__name__}: {error}")
        return Row(command, round(at_s, 3), round(took, 3), process.returncode, faults)


def _ended(code: int, lines: list[str]) -> list[str]:
    if code == 130 and len(lines) == 1 and lines[0].endswith("interrupted"):
        return []
    return [f"exit code {code}, {len(lines)} lines: {' / '.join(lines[-2:])[:200]}"]


def _duration(command: str) -> float:
    """Seconds that a whole run takes now."""
    with tempfile.TemporaryDirectory(prefix="interrupts-") as name:
        _prepare(command, Path(name))
        begin = time.monotonic()
        process = _start(COMMANDS[command][0], Path(name))
        _, said = process.communicate()
        if process.returncode:
            raise SystemExit(f"{command} fails: {said.decode()}")
        return time.monotonic() - begin


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="interrupts", description=__doc__)
    parser.add_argument("commands", nargs="*", help=f"of {', '.join(COMMANDS)} (default: all)")
    parser.add_argument("--count", type=int, default=25, help="of each command (default: 25)")
    parser.add_argument("--json", type=Path, help="write the rows to a file, over what is there")
    args = parser.parse_args(argv)
    # A job in the background may ignore SIGINT, and its children would, too.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    rows: list[Row] = []
    for command in args.commands or COMMANDS:
        if command not in COMMANDS:
            parser.error(f"there is no command {command!r}")
        longest = _duration(command)
        for _ in range(args.count):
            row = interrupted(command, random.uniform(PYTHON_STARTS_S, longest))
            rows.append(row)
            print(f"{row.command:9} at {row.at_s:7.2f} s: code {row.code}, {row.took_s:5.2f} s "
                  f"{'; '.join(row.faults)}", flush=True)  # fmt: skip
    if args.json is not None:
        args.json.write_text(json.dumps([asdict(row) for row in rows], indent=1) + "\n", "utf-8")
    return 1 if any(row.faults for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
