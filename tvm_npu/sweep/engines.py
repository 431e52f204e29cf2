"""Where designs are evaluated: processes of this machine, or Dask's workers."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import FIRST_COMPLETED, BrokenExecutor, Executor, Future, wait
from itertools import islice
from pathlib import Path
from typing import Any, Protocol, TypeVar

from tvm_npu.sim.bounded_files import read_bounded
from tvm_npu.sweep.spec import SweepError, missing

T = TypeVar("T")
Shared = str | bytes
"""What a worker gets of a file that was shared: its path, or its contents."""
SWEEPS = "sweeps"
AHEAD = 2
"""Tasks a worker that are handed out. loky has room for twice the number of workers beside those
that run, and its thread fails when it is taken down while tasks wait outside of that."""
MOST_GROWTH_BYTES = 2 << 30
"""Of a process since its first task; beyond it, it is replaced."""
TAKEN_S = 0.2
"""The longest that handing out may take."""


class Engine(Protocol):
    """Executors of `concurrent.futures`, one after the other where workers die."""

    workers: int

    def share(self, file: Path) -> Any:
        """What `executor.submit` takes, and a worker gets as `Shared`: sent once."""
        ...

    def executor(self) -> Executor:
        """A new one; the one before is gone."""
        ...

    def stop(self) -> None:
        """Ends workers at once."""
        ...


class Processes:
    """loky's processes, which joblib keeps: a worker that dies is noticed. ``user`` is what they
    work for, in messages."""

    def __init__(self, workers: int, user: str = SWEEPS) -> None:
        self.workers, self.user = workers, user
        self._executor: Any = None

    def share(self, file: Path) -> Shared:
        return str(file.absolute())

    def executor(self) -> Executor:
        try:
            from joblib.externals.loky import ProcessPoolExecutor
        except ImportError as error:
            raise missing("joblib", self.user) from error
        self.stop()
        self._executor = ProcessPoolExecutor(max_workers=self.workers, initializer=_keep_worker)
        executor: Executor = self._executor
        return executor

    def stop(self) -> None:
        if self._executor is not None:
            self._executor.shutdown(wait=True, kill_workers=True)
            self._executor = None


def _keep_worker() -> None:
    """loky takes a worker that has grown by 300 MB since its first task for one that leaks, and
    replaces it. Ours keep models and tables, which have bounds of their own: a new worker would
    make them again. Runs in workers."""
    from joblib.externals.loky import process_executor

    process_executor._MAX_MEMORY_LEAK_SIZE = MOST_GROWTH_BYTES


class DaskWorkers:
    """Those of a scheduler at ``address``, or of a cluster on this machine for the time of a
    sweep."""

    def __init__(self, workers: int, address: str | None = None, user: str = SWEEPS) -> None:
        try:
            from distributed import Client
        except ImportError as error:
            raise missing("dask", user, "dask") from error
        try:
            if address is None:
                self._client = Client(
                    n_workers=workers, threads_per_worker=1, dashboard_address=None
                )
            else:
                self._client = Client(address, timeout="10s")
        except OSError as error:
            raise SweepError(f"no Dask scheduler at {address!r}: {error}") from error
        self.workers = len(self._client.scheduler_info(n_workers=-1)["workers"]) or workers

    def share(self, file: Path) -> Any:
        return self._client.scatter(read_bounded(file), broadcast=True, hash=True)

    def executor(self) -> Executor:
        executor: Executor = self._client.get_executor(retries=1)
        return executor

    def stop(self) -> None:
        self._client.close()
        if self._client.cluster is not None:
            self._client.cluster.close()


def engine(
    name: str, workers: int, address: str | None = None, user: str = SWEEPS
) -> Engine:
    """ "joblib" or "dask", for ``user``, which messages name."""
    if name == "joblib":
        return Processes(workers, user)
    if name == "dask":
        return DaskWorkers(workers, address, user)
    raise SweepError(f"engine {name!r}: must be 'joblib' or 'dask'")


def content_of(shared: Shared) -> bytes:
    return read_bounded(shared) if isinstance(shared, str) else shared


def run_tasks(
    where: Engine, function: Callable[..., T], tasks: Iterable[tuple[Any, ...]]
) -> Generator[tuple[int, T | Exception], None, None]:
    """(number of the task, what ``function`` made of it or the exception that it ended with), in
    the order in which they end. When workers die, tasks that were under way are tried alone, one
    by one: one that ends its worker again costs itself only. Tasks are taken as workers want them.
    Close it before the engine stops."""
    given = enumerate(tasks)
    suspects: list[tuple[int, tuple[Any, ...]]] = []
    executor: Executor | None = None  # workers start with the first task
    running: dict[Future[T], tuple[int, tuple[Any, ...]]] = {}
    try:
        while True:
            alone = bool(suspects)
            most = 1 if alone else AHEAD * where.workers
            source = iter([suspects.pop()]) if alone else given
            for task in islice(source, most - len(running)):
                if executor is None:
                    executor = where.executor()
                running[executor.submit(function, *task[1])] = task
            if not running:
                return
            done, _ = wait(running, return_when=FIRST_COMPLETED)
            is_broken = False
            for future in done:
                task = running.pop(future)
                error = future.exception()
                if error is None:
                    yield task[0], future.result()
                    continue
                is_broken |= isinstance(error, BrokenExecutor)
                if isinstance(error, BrokenExecutor) and not alone:
                    suspects.append(task)
                else:
                    assert isinstance(error, Exception)
                    yield task[0], error
            if is_broken:
                suspects += running.values()
                running.clear()
                executor = None
    finally:
        _until_taken(running)


def _until_taken(futures: Iterable[Future[Any]]) -> None:
    """Waits until the workers' side has all tasks, so that it can be stopped."""
    end = time.monotonic() + TAKEN_S
    while any(not (one.running() or one.done()) for one in futures) and time.monotonic() < end:
        time.sleep(TAKEN_S / 100)
