"""Tasks in workers, some of which die."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tvm_npu.sweep.engines import Processes, engine, run_tasks
from tvm_npu.sweep.spec import SweepError


def square_unless_deadly(number: int) -> int:
    if number == 3:
        os.kill(os.getpid(), signal.SIGKILL)
    if number == 4:
        raise ValueError("four")
    return number * number


def test_a_worker_that_dies_costs_its_task_only() -> None:
    where = Processes(2)
    try:
        tasks = [(number,) for number in range(8)]
        found = dict(run_tasks(where, square_unless_deadly, tasks))
    finally:
        where.stop()
    assert sorted(found) == list(range(8))
    assert isinstance(found[4], ValueError) and isinstance(found[3], Exception)
    assert {n: found[n] for n in (0, 1, 2, 5, 6, 7)} == {n: n * n for n in (0, 1, 2, 5, 6, 7)}


KEPT: list[Any] = []


def keep(number: int) -> int:
    """The second task grows by more than what loky calls a leak, later than it looks again."""
    if number == 1:
        KEPT.append(np.ones(320 << 20, np.uint8))
        time.sleep(1.1)
    return os.getpid()


def test_a_worker_that_keeps_tables_is_not_replaced() -> None:
    pytest.importorskip("psutil", reason="loky measures memory with it")
    where = Processes(1)
    try:
        found = dict(run_tasks(where, keep, [(number,) for number in range(4)]))
    finally:
        where.stop()
    assert len(set(found.values())) == 1


def wait_unless_first(number: int, folder: str) -> int:
    if number:
        (Path(folder) / str(number)).touch()
        time.sleep(600)
    return number


def test_what_is_interrupted_ends_without_a_word(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Workers are busy, and tasks wait for them."""
    failed: list[Any] = []
    monkeypatch.setattr(threading, "excepthook", failed.append)
    where = Processes(2)
    begin = time.monotonic()
    try:
        tasks = [(number, str(tmp_path)) for number in range(40)]
        with closing(run_tasks(where, wait_unless_first, tasks)) as results:
            assert next(results) == (0, 0)
            while len(list(tmp_path.iterdir())) < 2:
                time.sleep(0.01)
    finally:
        where.stop()
    assert not failed
    assert time.monotonic() - begin < 300 and len(list(tmp_path.iterdir())) == 2


def test_who_needs_a_library_that_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "joblib.externals.loky", None)
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(SweepError, match="^joblib is needed for sweeps: pip .*npu.sweep"):
        Processes(1).executor()
    with pytest.raises(SweepError, match="^joblib is needed for accuracy with workers: pip"):
        engine("joblib", 2, user="accuracy with workers").executor()
    with pytest.raises(SweepError, match="^dask is needed for sweeps: pip .*npu.dask"):
        engine("dask", 2)


def test_an_engine_that_does_not_exist() -> None:
    with pytest.raises(SweepError, match="'spark': must be 'joblib' or 'dask'"):
        engine("spark", 1)
