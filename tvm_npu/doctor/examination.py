"""All that the doctor finds, and what to do about it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import tvm_npu
import tvm_npu.codegen
import tvm_npu.sim
from tvm_npu.doctor.caches import Cache, caches
from tvm_npu.doctor.combinations import RELAX, RELAY, Fault, faults
from tvm_npu.doctor.environment import Environment, this_environment
from tvm_npu.door.find import DOORS

SCHEMA = "tvm-npu doctor 1"
MODULES = {"relay": "tvm_npu.relay", "relax": "tvm_npu.relax"}
WITHOUT_TVM = "run-ir, run-elf, disasm, check, machines, planners, platform, warmup"
"""Commands that need none."""
PATIENCE_S = 120.0
"""How long a door may take to import."""


@dataclass(frozen=True)
class DoorState:
    """Whether one door opens; ``reason`` says why not."""

    name: str
    module: str
    opens: bool
    reason: str


@dataclass(frozen=True)
class Examination:
    """``faults`` must be mended; ``advice`` is what else helps."""

    environment: Environment
    doors: tuple[DoorState, ...]
    caches: tuple[Cache, ...]
    faults: tuple[Fault, ...]
    advice: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        return {"schema": SCHEMA, **asdict(self)}


def examine() -> Examination:
    """The environment of this process; a door is tried in a process of its own, so that a broken
    TVM breaks nothing else."""
    here = this_environment()
    doors = tuple(_door_state(name, here) for name in DOORS)
    roots = {
        package.__name__: Path(str(package.__file__)).parent
        for package in (tvm_npu.sim, tvm_npu.codegen)
    }
    found = tuple(caches(roots, here.python))
    wrong = (*faults(here), *_broken(here, doors))
    return Examination(here, doors, found, wrong, tuple(_advice(here, doors, found)))


def _broken(here: Environment, doors: tuple[DoorState, ...]) -> Iterator[Fault]:
    """The door that the installed TVM is for, where it does not open."""
    for door in doors:
        if door.name in here.doors[:1] and not door.opens:
            yield Fault(f"{door.module} does not import: {door.reason}", "install that TVM anew")


def _door_state(name: str, here: Environment) -> DoorState:
    module = MODULES[name]
    if here.tvm is None:
        return DoorState(name, module, False, "there is no tvm")
    if name != next(iter(here.doors), None):
        return DoorState(name, module, False, "the installed tvm is for another door"
                         if here.doors else "the installed tvm has no such front end")  # fmt: skip
    command = [sys.executable, "-W", "ignore", "-c", f"import {module}"]
    root = str(Path(tvm_npu.__file__).parents[1])
    try:
        done = subprocess.run(
            command, cwd=root, capture_output=True, text=True, timeout=PATIENCE_S, check=False
        )
    except subprocess.TimeoutExpired:
        return DoorState(name, module, False, f"importing it took more than {PATIENCE_S:.0f} s")
    if done.returncode:
        lines = done.stderr.strip().splitlines() or [f"exit code {done.returncode}"]
        return DoorState(name, module, False, lines[-1])
    return DoorState(name, module, True, "")


def _advice(
    here: Environment, doors: tuple[DoorState, ...], found: tuple[Cache, ...]
) -> Iterator[str]:
    if not any(door.opens for door in doors):
        yield f"no door opens: only {WITHOUT_TVM} work; for models: {RELAY}; or {RELAX}"
    if not any(cache.functions for cache in found):
        yield "no machine code is kept: tvm-npu warmup makes it now, else first runs take a minute"
    for cache in found:
        if not cache.writable and "NUMBA_CACHE_DIR" not in here.variables:
            yield (
                f"{cache.folder} cannot be written: machine code is kept in the home folder, or "
                "set NUMBA_CACHE_DIR"
            )
    if "xgboost" not in here.packages and "xgboost-cpu" not in here.packages:
        yield "no xgboost: tvm-npu tune and tuned stock TVM need pip install '.[learn]'"
    if "onnxruntime" not in here.packages:
        yield "no onnxruntime: tvm-npu compare leaves it out and takes stock TVM as the reference"
    if here.load > here.usable_cores:
        yield (
            f"load {here.load:.1f} on {here.usable_cores} cores: times measured on this CPU now "
            "say little"
        )
