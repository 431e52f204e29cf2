"""The mappers of others: where they come from, what they model, how they are asked."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from studies.harness.errors import StudyError
from studies.mappers.question import Goal, Totals, read_answer

RUNNERS = Path(__file__).parent / "runners"


@dataclass(frozen=True)
class Peer:
    """A mapper from the Python package index. ``packages`` are what pip gets, ``probe`` a module
    whose import shows that it is there; ``units`` as `read_answer` takes them, by the goals
    that it is asked for."""

    name: str
    packages: tuple[str, ...]
    probe: str
    python: tuple[int, int] | None
    units: Mapping[Goal, Mapping[str, tuple[str, float]]]
    notes: str
    fused_notes: str = ""
    """What is true of layers behind each other that it maps at once; "" where it maps none so."""

    def ask(self, python: Path, question: Mapping[str, Any], folder: Path) -> Totals:
        """Runs the runner on one thread in ``folder``. Raises StudyError when it fails."""
        folder.mkdir(parents=True, exist_ok=True)
        asked, told = folder / f"{self.name}-question.json", folder / f"{self.name}-answer.json"
        asked.write_text(json.dumps(question))
        told.unlink(missing_ok=True)
        runner = RUNNERS / f"{self.name}_runner.py"
        threads = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
        done = subprocess.run(
            [str(python), str(runner), str(asked), str(told)], cwd=folder,
            env={**_environment(), **threads}, capture_output=True, text=True, check=False,
        )  # fmt: skip
        if done.returncode or not told.exists():
            last = done.stderr.strip().rpartition("\n")[2]
            raise StudyError(f"{self.name}: exit code {done.returncode}: {last}")
        return read_answer(told.read_text(), self.name, self.units[question["goal"]])


_ZIGZAG = {"dram_bytes": ("energy", 1.0), "cycles": ("latency", 1.0)}

PEERS: dict[str, Peer] = {
    peer.name: peer
    for peer in (
        Peer(
            "accelforge", ("accelforge==1.0.467",), "accelforge", (3, 12),
            {
                "bytes": {"dram_bytes": ("Total energy", 8.0)},
                "cycles": {"cycles": ("Total latency", 1.0)},
            },
            "halos kept, a tile for each tensor, tiles that divide; time: of the array or of the "
            "wire to the memory outside, the busier of the two, without starts",
            "on one memory as large as all three, a tile for each tensor, tiles that divide; time: "
            "of the layers one after another",
        ),
        Peer(
            "zigzag", ("zigzag-dse==3.9.1", "six"), "zigzag.api", None,
            {"bytes": _ZIGZAG, "cycles": _ZIGZAG},
            "uneven mappings, six loop factors at most; overlap where a tile fits twice",
        ),
    )
}  # fmt: skip
ABSENT = {"timeloop": "is not on the Python package index (C++ sources and a Docker image only)"}
"""Peers that cannot be asked, and why."""
CANNOT_FUSE = "maps one layer at a time"
"""Why a peer has no fused rows."""
NOT_FOUND = 127
"""The exit code of shells for a program that is not there."""


def left_out(name: str, why: str) -> str:
    """The line that says so."""
    return f"left out: {name}: {why}"


def python_of(peer: Peer, given: Path | None, cache: Path) -> Path | str:
    """The interpreter of the peer's environment, made under ``cache`` where none is given; or why
    there is none, in a few words."""
    if given is not None:
        fault = _fault(given, peer)
        return fault or given
    place = cache / f"{peer.name}-{'.'.join(map(str, peer.python or sys.version_info[:2]))}"
    python = place / "bin" / "python"
    if python.exists() and _fault(python, peer) is None:
        return python
    base = f"python{peer.python[0]}.{peer.python[1]}" if peer.python else sys.executable
    steps = (
        ([base, "-m", "venv", "--clear", str(place)], f"{base} makes no environment"),
        (_install(python, peer), f"pip cannot install {' '.join(peer.packages)}"),
    )
    for command, failure in steps:
        try:
            done = subprocess.run(
                command, env=_environment(), capture_output=True, text=True, check=False
            )
        except OSError:
            return f"no {command[0]} here to make an environment with; --{peer.name} names one"
        if done.returncode:
            said = _said(done.stderr, done.returncode) or "no word"
            return f"{failure} (exit code {done.returncode}: {said}); --{peer.name} names one"
    return _fault(python, peer) or python


def _said(errors: str, code: int) -> str:
    """The line of ``errors`` that tells what is wrong: the last one, but of a program that is not
    found the first."""
    lines = [line.strip() for line in errors.strip().splitlines()] or [""]
    return lines[0 if code == NOT_FOUND else -1]


def _install(python: Path, peer: Peer) -> list[str]:
    options = ["--quiet", "--no-input", "--disable-pip-version-check"]
    return [str(python), "-m", "pip", "install", *options, *peer.packages]


def _fault(python: Path, peer: Peer) -> str | None:
    try:
        done = subprocess.run(
            [str(python), "-c", f"import {peer.probe}"], env=_environment(),
            capture_output=True, text=True, check=False,
        )  # fmt: skip
    except OSError as error:
        return f"{python} does not start: {error.strerror}"
    if done.returncode:
        last = done.stderr.strip().rpartition("\n")[2]
        return f"{python} cannot import {peer.probe}: {last}"
    return None


def _environment() -> dict[str, str]:
    """Without what this process imports from."""
    return {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
