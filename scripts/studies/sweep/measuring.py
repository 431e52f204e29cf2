"""One run of the sweep on an engine, killed and continued where asked."""

from __future__ import annotations

import hashlib
import json
import multiprocessing
import os
import shutil
import signal
import sqlite3
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any
from unittest.mock import patch

from tvm_npu.sim.limits import Limits
from tvm_npu.sweep import SweepResult, SweepSpec, groups, run_sweep
from tvm_npu.sweep.designs import Design
from tvm_npu.sweep.engines import Shared, engine
from tvm_npu.sweep.outcome import Outcome
from tvm_npu.sweep.preparations import prepared_files
from tvm_npu.sweep.spec import Fidelity
from tvm_npu.sweep.store import FILE

POLL_S = 0.2
SHARED_MEMORY = Path("/dev/shm")


@dataclass(frozen=True)
class RunRow:
    """``points`` are rows; ``predicted_seconds`` are those until all designs were predicted (None:
    not measured); ``killed`` says how often the process was killed (SIGKILL) and the sweep
    begun again on its store; ``store_bytes`` is what the store holds afterwards. Where
    ``is_empty``, nobody evaluates the points: what is left is what a sweep itself takes."""

    engine: str
    workers: int
    points: int
    seconds: float
    rows_sha256: str
    killed: int
    store_bytes: int
    is_empty: bool = False
    predicted_seconds: float | None = None


def rows_digest(rows: Any) -> str:
    text = json.dumps([point_row(row) for row in rows], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


def point_row(row: dict[str, Any]) -> dict[str, Any]:
    """A row of `SweepResult` as the benchmark writes it; no machine file here cites energies."""
    return {**row, "energy_uj": row.get("energy_uj")}


def with_models(store: Path, models: Path) -> Path:
    """An empty ``store`` with the prepared models of the folder ``models``: preparing is not
    measured, and neither is what an interrupted run left."""
    shutil.rmtree(store, ignore_errors=True)
    store.mkdir(parents=True)
    for file in prepared_files(models):
        os.link(file, store / file.name)
    return store


def run(spec: SweepSpec, store: Path, name: str, workers: int) -> tuple[RunRow, SweepResult]:
    """A whole sweep in this process."""
    begin = time.perf_counter()
    predicted: list[float] = []

    def progress(what: str, done: int, of: int) -> None:
        if what == "predicted" and done == of:
            predicted.append(time.perf_counter() - begin)

    result = run_sweep(spec, store, engine(name, workers), progress)
    seconds = time.perf_counter() - begin
    row = _row(result, name, workers, seconds, 0, store)
    return replace(row, predicted_seconds=predicted[0]), result


def run_empty(spec: SweepSpec, store: Path, name: str, workers: int) -> RunRow:
    """`run`, but points cost their workers nothing."""
    with patch.object(groups, "evaluate_all", no_outcomes):
        return replace(run(spec, store, name, workers)[0], is_empty=True)


def no_outcomes(
    shared: Sequence[Sequence[Shared]],
    designs: Sequence[Design],
    fidelity: Fidelity,
    limits: Limits,
) -> list[list[Outcome]]:
    """In place of `evaluate_all`."""
    return [[Outcome(1.0, 1.0, 1, 1) for _ in models] for models in shared]


def run_killed(
    spec: SweepSpec, store: Path, name: str, workers: int, kills: int
) -> tuple[RunRow, SweepResult]:
    """The same, after ``kills`` processes that were killed when another part of the points was
    done."""
    points, killed = spec.search.designs * len(spec.models), 0
    begin = time.perf_counter()
    for kill in range(1, kills + 1):
        context = multiprocessing.get_context("spawn")
        child = context.Process(target=_child, args=(spec, store, name, workers))
        child.start()
        while child.is_alive() and _stored(store) < points * kill // (kills + 1):
            time.sleep(POLL_S)
        killed += kill_group(child)
    result = run_sweep(spec, store, engine(name, workers))
    seconds = time.perf_counter() - begin
    return _row(result, name, workers, seconds, killed, store), result


def kill_group(child: BaseProcess) -> bool:
    """Kills the process group of ``child`` (SIGKILL); False: it had ended by itself. Names of
    semaphores that its workers shared are removed: loky's tracker, which would do it, dies too."""
    pid = int(child.pid or 0)
    with suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)
    child.join()
    for name in SHARED_MEMORY.glob(f"sem.loky-{pid}-*"):
        name.unlink(missing_ok=True)
    return child.exitcode == -signal.SIGKILL


def _child(spec: SweepSpec, store: Path, name: str, workers: int) -> None:
    os.setpgid(0, 0)  # workers die with this process
    run_sweep(spec, store, engine(name, workers))


def _stored(store: Path) -> int:
    if not (store / FILE).exists():
        return 0
    with sqlite3.connect(f"file:{store / FILE}?mode=ro", uri=True, timeout=60) as database:
        try:
            count: int = database.execute("SELECT COUNT(*) FROM results").fetchone()[0]
        except sqlite3.OperationalError:  # the table is not made yet
            return 0
    return count


def _row(
    result: SweepResult, name: str, workers: int, seconds: float, killed: int, store: Path
) -> RunRow:
    size = sum(path.stat().st_size for path in store.glob(f"{FILE}*"))
    digest = rows_digest(result.rows)
    return RunRow(name, workers, len(result.rows), seconds, digest, killed, size)
