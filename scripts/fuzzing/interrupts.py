"""``scripts/interrupts [COMMAND...] --count N --json FILE``: Ctrl-C at random moments of commands
that work for a while. Each must end within a second with exit code 130 and one line, leave no
process and no temporary file, and nothing half-written. On a busy machine the time that a process
waits for a core is not its own: it is told, and taken off the second."""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path

from fuzzing.interrupted import COMMANDS, Command

LATEST_S = 1.0
LOST_S = 60.0
LOOKS_EVERY_S = 0.01
TICKS_PER_S = os.sysconf("SC_CLK_TCK")
PYTHON_STARTS_S = 0.08
"""CPU time. Before Python itself has started no program can hear anything."""


@dataclass
class Row:
    """Interrupted after ``at_s`` of CPU time, over ``took_s`` later, in which all its processes had
    ``cpu_s`` of CPU time and the thread that waited longest for a core had none for ``waited_s``.
    ``lines`` stand on stderr; ``faults`` is empty if good."""

    command: str
    at_s: float
    took_s: float
    cpu_s: float
    waited_s: float
    code: int
    lines: int
    faults: list[str]

    @property
    def own_s(self) -> float:
        return self.took_s - self.waited_s


def _start(command: Command, folder: Path) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-W", "ignore", "-m", "tvm_npu.cli", *command.arguments], cwd=folder,
        stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, env=command.environment(folder),
        start_new_session=True,
    )  # fmt: skip


def _fields(stat: Path) -> list[bytes]:
    """Of a process, from its state on: behind "pid (name)"."""
    return stat.read_bytes().rsplit(b")", 1)[1].split()


def _session(leader: int) -> list[int]:
    """Processes of a session that are there."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = _fields(path)
        except OSError:
            continue
        if int(fields[3]) == leader and fields[0] != b"Z":
            found.append(int(path.parent.name))
    return found


@dataclass
class _Use:
    """Of cores, by the processes of a session and their children that have ended, in seconds."""

    cpu_s: float = 0.0
    waited_s: dict[str, float] = field(default_factory=dict)
    """By thread."""

    def since(self, before: _Use) -> tuple[float, float]:
        waits = (now - before.waited_s.get(name, 0.0) for name, now in self.waited_s.items())
        return max(0.0, self.cpu_s - before.cpu_s), max(waits, default=0.0)


def _use(leader: int) -> _Use:
    found = _Use()
    for process in _session(leader):
        try:
            for path in Path("/proc", str(process), "task").glob("*/schedstat"):
                ran, waited, _ = map(int, path.read_text().split())
                found.cpu_s += ran / 1e9
                found.waited_s[path.parent.name] = waited / 1e9
            fields = _fields(Path("/proc", str(process), "stat"))
            found.cpu_s += sum(map(int, fields[13:15])) / TICKS_PER_S
        except OSError:  # the process, or a thread of it, has just ended
            continue
    return found


class _Watch:
    """Looks at what a session uses until it is over: the last look counts."""

    def __init__(self, leader: int) -> None:
        self._leader, self._over = leader, threading.Event()
        self.first = self.last = _use(leader)
        self._thread = threading.Thread(target=self._look, daemon=True)
        self._thread.start()

    def _look(self) -> None:
        while not self._over.wait(LOOKS_EVERY_S):
            now = _use(self._leader)
            if not now.waited_s:
                return
            self.last = _Use(max(now.cpu_s, self.last.cpu_s), self.last.waited_s | now.waited_s)

    def used(self) -> tuple[float, float]:
        self._over.set()
        self._thread.join()
        return self.last.since(self.first)


def interrupted(command: str, at_s: float) -> Row:
    found = COMMANDS[command]
    with tempfile.TemporaryDirectory(prefix="interrupts-") as name:
        folder = Path(name)
        found.prepare(folder)
        process = _start(found, folder)
        at_s = _wait(process, at_s)
        watch = _Watch(process.pid)
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
        cpu, waited = watch.used()
        every = said.decode("utf-8", "replace").splitlines()
        lines = [line for line in every if not line.startswith("note: ")]
        faults += _ended(process.returncode, lines)
        done = process.returncode == 0  # it was ending anyway
        if took - waited > LATEST_S and not done:
            faults.append(f"ends after {took:.2f} s, {waited:.2f} s without a core")
        time.sleep(0.2)
        if left := _session(process.pid):
            faults.append(f"{len(left)} processes are left")
        faults += [f"left: {path.name}" for path in (folder / "tmp").iterdir()]
        try:
            faults += [f"left: {path}" for path in found.left(folder)]
        except Exception as error:
            faults.append(f"half-written: {type(error).__name__}: {error}")
        return Row(
            command, round(at_s, 3), round(took, 3), round(cpu, 3), round(waited, 3),
            process.returncode, len(lines), faults,
        )  # fmt: skip


def _ended(code: int, lines: list[str]) -> list[str]:
    if code == 0 and all(line.startswith("wrote ") for line in lines):  # it was done
        return []
    if code == 130 and len(lines) == 1 and lines[0].endswith("interrupted"):
        return []
    return [f"exit code {code}, {len(lines)} lines: {' / '.join(lines[-2:])[:200]}"]


def _wait(process: subprocess.Popen[bytes], cpu_s: float) -> float:
    """Until its session has used so much CPU time, or it ends; the time that it has used."""
    used = 0.0
    while used < cpu_s and process.poll() is None:
        time.sleep(LOOKS_EVERY_S)
        used = max(used, _use(process.pid).cpu_s)
    return used


def _whole(command: str) -> float:
    """CPU time of a whole run. The first one may compile machine code."""
    used = []
    for _ in range(2):
        with tempfile.TemporaryDirectory(prefix="interrupts-") as name:
            COMMANDS[command].prepare(Path(name))
            process = _start(COMMANDS[command], Path(name))
            watch = _Watch(process.pid)
            _, said = process.communicate()
            used.append(watch.used()[0])
            if process.returncode:
                raise SystemExit(f"{command} fails: {said.decode()}")
    return min(used)


def _summary(rows: list[Row]) -> list[str]:
    """A line for each command."""
    head = "command    moments  ended by it  done before  longest s  own s  CPU s  faults"
    lines = [head]
    for command in dict.fromkeys(row.command for row in rows):
        of = [row for row in rows if row.command == command]
        ended = [row for row in of if row.code != 0]
        longest, own, cpu = (
            max((getattr(row, name) for row in ended), default=0.0)
            for name in ("took_s", "own_s", "cpu_s")
        )
        lines.append(
            f"{command:9} {len(of):8} {len(ended):12} {len(of) - len(ended):12} {longest:10.2f} "
            f"{own:6.2f} {cpu:6.2f} {sum(bool(row.faults) for row in of):7}"
        )
    return lines


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
        whole = _whole(command)
        for _ in range(args.count):
            row = interrupted(command, random.uniform(PYTHON_STARTS_S, whole))
            rows.append(row)
            print(
                f"{row.command:9} at {row.at_s:7.2f} s CPU: code {row.code:3}, {row.lines} lines, "
                f"{row.took_s:5.2f} s ({row.cpu_s:4.2f} s CPU, {row.waited_s:4.2f} s without a "
                f"core) {'; '.join(row.faults)}", flush=True,
            )  # fmt: skip
    for line in _summary(rows):
        print(line)
    if args.json is not None:
        args.json.write_text(json.dumps([asdict(row) for row in rows], indent=1) + "\n", "utf-8")
    return 1 if any(row.faults for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
