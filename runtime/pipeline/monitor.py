"""Watches the processes of a pipeline: answers, deaths, hangs. One thread, mostly asleep."""

from __future__ import annotations

import os
import select
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from tvm_npu.runtime.pipeline.board import State
from tvm_npu.runtime.pipeline.channel import NotLoaded, Raised, Ready
from tvm_npu.runtime.pipeline.epoch import Epoch
from tvm_npu.runtime.pipeline.errors import StageDied, StageError, StageHung, StageRaised
from tvm_npu.runtime.pipeline.place import ranges
from tvm_npu.runtime.pipeline.process import WorkerProcess, how_it_ended

_LONGEST_EXIT_S = 1.0
"""From a process's closed connection to its exit code."""
_LARGEST_TICK_S = 0.25


@dataclass(frozen=True)
class Failure:
    """The first thing that went wrong. ``frame`` is the last that the stage finished, -1: none;
    ``begun`` the one at which it died, None: none."""

    kind: type[StageError]
    what: str
    stage: str
    place: str
    frame: int
    begun: int | None = None
    details: str = ""

    def error(self, delivered: int) -> StageError:
        """A new exception about the failure, for every caller that raises it."""
        what, frame = self.what, self.frame
        if self.begun is not None and self.begun < delivered:
            # It died between handing the frame on and noting that the frame is finished.
            frame = max(frame, self.begun)
        elif self.begun is not None:
            what += f" while it worked on frame {self.begun}"
        finished = f"its last finished frame was {frame}" if frame >= 0 else "it finished no frame"
        frames = f"frames 0 to {delivered - 1} were" if delivered else "no frame was"
        return self.kind(
            f"{what}; {finished}; {frames} delivered{self.details}",
            stage=self.stage, place=self.place, frame=frame, delivered=delivered,
        )  # fmt: skip


class Monitor:
    """``active`` gives the epochs that are running, oldest first; ``look_after`` is called now and
    then while there is a timeout."""

    def __init__(
        self,
        active: Callable[[], Sequence[Epoch]],
        timeout_s: float | None,
        look_after: Callable[[], object],
    ) -> None:
        self.failure: Failure | None = None
        self._active = active
        self._timeout_s = timeout_s
        self._look_after = look_after
        self._workers: dict[int, WorkerProcess] = {}
        self._raised: dict[int, Raised] = {}
        self._seen: dict[int, tuple[tuple[int, int], int]] = {}
        self._replies: dict[tuple[int, int], Ready | NotLoaded] = {}
        self._changed = threading.Condition()
        self._failed_read, self._failed_write = os.pipe()
        self._wake_read, self._wake_write = os.pipe()
        self._stopping = False
        self._thread = threading.Thread(target=self._watch, name="pipeline-monitor", daemon=True)
        self._thread.start()

    @property
    def failed_descriptor(self) -> int:
        """Readable from the first failure on."""
        return self._failed_read

    def add(self, worker: WorkerProcess) -> None:
        with self._changed:
            self._workers[worker.pid] = worker
        os.write(self._wake_write, b"w")

    def replies(self, epoch: int, workers: Sequence[WorkerProcess], timeout_s: float) -> list[Any]:
        """What they answered to Prepare: Ready, NotLoaded, or None for what did not come before
        the timeout or the first failure."""
        keys = [(epoch, worker.pid) for worker in workers]
        with self._changed:
            self._changed.wait_for(
                lambda: self.failure is not None or all(key in self._replies for key in keys),
                timeout_s,
            )
            return [self._replies.pop(key, None) for key in keys]

    def wait_for_failure(self, timeout_s: float) -> Failure | None:
        with self._changed:
            self._changed.wait_for(lambda: self.failure is not None, timeout_s)
            return self.failure

    def fail(
        self, worker: WorkerProcess, kind: type[StageError], what: str,
        begun: int | None = None, details: str = "",
    ) -> None:  # fmt: skip
        """Notes the first failure and ends the processes that only feed the failed one."""
        stage, place, last = self._stage_of(worker), worker.place, worker.board.last_frame
        text = f"stage {stage!r} on place {place.name!r} (cores {ranges(place.cores)}) {what}"
        with self._changed:
            if self.failure is not None:
                return
            self.failure = Failure(kind, text, stage, place.name, last, begun, details)
            self._changed.notify_all()
        os.write(self._failed_write, b"f")
        worker.kill()
        needed: set[int] = set()
        for epoch in self._active():
            if worker in epoch.workers:
                behind = epoch.workers[epoch.workers.index(worker) + 1 :]
            else:
                behind = epoch.workers
            needed |= {other.pid for other in behind}
        for pid, other in list(self._workers.items()):
            if pid not in needed:
                other.kill()

    def close(self) -> None:
        self._stopping = True
        os.write(self._wake_write, b"w")
        self._thread.join()
        for descriptor in (
            self._failed_read, self._failed_write, self._wake_read, self._wake_write
        ):  # fmt: skip
            os.close(descriptor)

    def _watch(self) -> None:
        gone: set[int] = set()
        tick_s = None if self._timeout_s is None else min(self._timeout_s / 4, _LARGEST_TICK_S)
        while True:
            with self._changed:
                watched = {
                    worker.channel.fileno(): worker
                    for pid, worker in self._workers.items()
                    if pid not in gone
                }
            poll = select.poll()
            poll.register(self._wake_read, select.POLLIN)
            for descriptor in watched:
                poll.register(descriptor, select.POLLIN)
            ready = poll.poll(None if tick_s is None else tick_s * 1e3)
            if self._stopping:
                return
            for descriptor, _ in ready:
                if descriptor == self._wake_read:
                    os.read(descriptor, 4096)
                elif not self._receive(watched[descriptor]):
                    gone.add(watched[descriptor].pid)
                    self._ended(watched[descriptor])
            if self._timeout_s is not None and self.failure is None:
                self._look_after()
                self._look_for_hangs(self._timeout_s)

    def _receive(self, worker: WorkerProcess) -> bool:
        """False at the end of the connection."""
        try:
            message, _ = worker.channel.receive()
        except (EOFError, OSError):
            return False
        if isinstance(message, Raised):
            self._raised[worker.pid] = message
        else:
            with self._changed:
                self._replies[message.epoch, worker.pid] = message
                self._changed.notify_all()
        return True

    def _ended(self, worker: WorkerProcess) -> None:
        if self.failure is not None:
            return
        suspect = self._culprit(worker)
        raised = self._raised.get(suspect.pid)
        if raised is not None:
            what = f"raised {raised.summary} on frame {raised.frame}"
            self.fail(suspect, StageRaised, what, details=f"\n{raised.text}")
            return
        board = suspect.board
        works = board.state == State.BUSY and board.frame > board.last_frame
        begun = board.frame if works else None
        self.fail(suspect, StageDied, how_it_ended(suspect.exit_code), begun)

    def _culprit(self, worker: WorkerProcess) -> WorkerProcess:
        """Who died first: neighbours end on their own when a process is gone."""
        limit = time.monotonic() + _LONGEST_EXIT_S
        with self._changed:
            workers = list(self._workers.values())
        while time.monotonic() < limit:
            for other in workers:
                if other.is_culprit:
                    # Its last words may still lie in the connection.
                    while other.pid not in self._raised and self._receive(other):
                        pass
                    return other
            time.sleep(0.005)
        return worker

    def _look_for_hangs(self, timeout_s: float) -> None:
        now_ns, limit_ns = time.monotonic_ns(), int(timeout_s * 1e9)
        for epoch in self._active():
            fed = epoch.put
            for worker in epoch.workers:
                board = worker.board
                mine = board.epoch == epoch.number
                started, finished = board.started, board.finished
                waited_ns = now_ns - board.since_ns
                state = board.state
                if state is State.BUSY and waited_ns > limit_ns:
                    what = f"has worked on frame {board.frame} for more than {timeout_s:g} s"
                    self.fail(worker, StageHung, what)
                    return
                waits = state is State.IDLE or (mine and state is State.WAITING_FOR_INPUT)
                if waits and fed > (started if mine else 0):
                    since_ns = self._fed_since(worker, epoch.number, now_ns)
                    if min(waited_ns, now_ns - since_ns) > limit_ns:
                        what = f"has not taken its next frame for more than {timeout_s:g} s"
                        self.fail(worker, StageHung, what)
                        return
                else:
                    self._seen.pop(worker.pid, None)
                fed = finished if mine else 0

    def _fed_since(self, worker: WorkerProcess, epoch: int, now_ns: int) -> int:
        """When the monitor first saw a frame wait for ``worker`` while it took none."""
        key, since_ns = self._seen.get(worker.pid, (None, now_ns))
        if key != (epoch, worker.board.started):
            key, since_ns = (epoch, worker.board.started), now_ns
        self._seen[worker.pid] = key, since_ns
        return since_ns

    def _stage_of(self, worker: WorkerProcess) -> str:
        """That it runs, or will run first."""
        using = [epoch for epoch in self._active() if worker in epoch.workers]
        using.sort(key=lambda epoch: epoch.number != worker.board.epoch)
        for epoch in using:
            return epoch.deployment.stages[epoch.workers.index(worker)].name
        return "(none)"
