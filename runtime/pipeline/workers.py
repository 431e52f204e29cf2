"""The processes of a pipeline's places: started when first asked for, slowed down, ended."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from tvm_npu.runtime.pipeline.errors import PlaceError
from tvm_npu.runtime.pipeline.place import Place
from tvm_npu.runtime.pipeline.process import WorkerProcess
from tvm_npu.runtime.pipeline.throttle import Throttle, may_steal

_STOP_S = 2.0


class Workers:
    """One process a place, handed to ``watch`` when it starts; a throttle when a place is slowed
    down."""

    def __init__(self, places: Sequence[Place], watch: Callable[[WorkerProcess], None]) -> None:
        self._places = places
        self._watch = watch
        self._workers: dict[int, WorkerProcess] = {}
        self._throttle: Throttle | None = None

    @property
    def pids(self) -> Mapping[str, int]:
        """Process of each place that has one."""
        return {worker.place.name: worker.pid for worker in self._workers.values()}

    def of(self, index: int) -> WorkerProcess:
        """That of place number ``index``."""
        if index not in self._workers:
            worker = self._workers[index] = WorkerProcess(self._places[index])
            self._watch(worker)
        return self._workers[index]

    def set_duty(self, place: str, duty: float) -> None:
        """Slows a place down to ``duty`` of its speed. Raises PlaceError, and ThrottleError when
        cores cannot be slowed here."""
        chosen = [one for one in self._places if one.name == place]
        if not chosen:
            known = ", ".join(one.name for one in self._places)
            raise PlaceError(f"there is no place {place!r}; known: {known}")
        if self._throttle is None:
            self._throttle = self._make_throttle()
        for core in chosen[0].cores:
            self._throttle.set(core, duty)

    def _make_throttle(self) -> Throttle:
        cores = sorted({core for place in self._places for core in place.cores})
        if may_steal():
            return Throttle(cores)
        for index in range(len(self._places)):
            self.of(index)
        pids: dict[int, list[int]] = {core: [] for core in cores}
        for worker in self._workers.values():
            pids[worker.place.cores[0]].append(worker.pid)
        return Throttle(cores, pids)

    def revive(self) -> None:
        """A throttle's helper that dies must not leave a stage stopped."""
        if self._throttle is not None:
            self._throttle.revive()

    def leave(self) -> None:
        """In a child that was forked: closes its copies."""
        for worker in self._workers.values():
            worker.leave()

    def close(self) -> None:
        """Ends all processes."""
        if self._throttle is not None:
            self._throttle.close()
        for worker in self._workers.values():
            worker.stop()
        for worker in self._workers.values():
            worker.join(_STOP_S)
