"""A running pipeline: frames in, results out in order, stages exchanged between two frames."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import TracebackType

from tvm_npu.runtime.pipeline.channel import NotLoaded
from tvm_npu.runtime.pipeline.epoch import Deployment, Epoch
from tvm_npu.runtime.pipeline.errors import (
    PipelineEmpty,
    PipelineError,
    PipelineFull,
    StageDied,
    StageError,
    StageNotLoaded,
)
from tvm_npu.runtime.pipeline.forks import leaves_when_forked
from tvm_npu.runtime.pipeline.frame import Frame, Result, checked_frame
from tvm_npu.runtime.pipeline.monitor import Monitor
from tvm_npu.runtime.pipeline.place import Place, check_places
from tvm_npu.runtime.pipeline.process import WorkerProcess, how_it_ended
from tvm_npu.runtime.pipeline.ring import (
    PeerGone,
    WouldBlock,
    deadline_after,
    remaining,
    wait_readable,
)
from tvm_npu.runtime.pipeline.statistics import PipelineStatistics, summarize
from tvm_npu.runtime.pipeline.times import FrameTimes
from tvm_npu.runtime.pipeline.workers import Workers
from tvm_npu.sim.deferred import deferred
from tvm_npu.sim.numbers import is_finite
from tvm_npu.sim.texts import shown

_DRAIN_S = 30.0
"""How long one more result is awaited from the stages behind a failed one."""
_KEPT_TIMES = 200_000


class Pipeline:
    """Stages as processes, one a place, joined by queues of ``slots`` frames; a context manager.

    Frames are numbered from 0 in the order in which they are put in, and results come out in that
    order, each once, also when the stages are exchanged (`switch`) and when one fails: then every
    result that passed the failed stage still comes out before its StageError is raised.
    ``timeout_s`` is the longest that a stage may work on one frame (StageHung); None for ever.
    One thread may put, another may get, a third may exchange stages. ``observers`` are called with
    the times of each result, in the thread that takes it; they must not raise.
    """

    def __init__(
        self,
        deployment: Deployment,
        places: Sequence[Place],
        *,
        slots: int = 2,
        timeout_s: float | None = None,
        load_timeout_s: float = 300.0,
    ) -> None:
        """Starts and loads everything. Raises PlaceError, ArtifactError and StageNotLoaded."""
        check_places(places)
        if timeout_s is not None and not (is_finite(timeout_s) and timeout_s > 0):
            raise PipelineError(
                f"a stage's timeout is above 0 s, not {shown(timeout_s)}; None is for ever"
            )
        self.places = tuple(places)
        self.deployments: dict[int, Deployment] = {}
        self.observers: list[Callable[[FrameTimes], None]] = []
        self._slots = slots
        self._load_timeout_s = load_timeout_s
        self._times: deque[FrameTimes] = deque(maxlen=_KEPT_TIMES)
        self._epochs: tuple[Epoch, ...] = ()
        self._next_epoch = 0
        self._put_lock = threading.Lock()
        self._get_lock = threading.Lock()
        self._changing = threading.RLock()
        self._closed = False
        self._put_count = 0
        self._out_count = 0
        self._workers = Workers(self.places, lambda worker: self._monitor.add(worker))
        self._monitor = Monitor(lambda: self._epochs, timeout_s, self._workers.revive)
        leaves_when_forked(self)
        try:
            self.switch(self.prepare(deployment))
            for place in self.places:
                if place.duty < 1:
                    self._workers.set_duty(place.name, place.duty)
        except BaseException:
            self.close()
            raise

    @property
    def deployment(self) -> Deployment:
        """What the next frame goes through."""
        return self._epochs[-1].deployment

    @property
    def put_count(self) -> int:
        """Frames that went in."""
        return self._put_count

    @property
    def out_count(self) -> int:
        """Results that came out."""
        return self._out_count

    @property
    def pids(self) -> Mapping[str, int]:
        """Process of each place that has one."""
        return self._workers.pids

    def put(self, frame: Frame, timeout_s: float | None = None) -> int:
        """Copies a frame in and returns its number; waits while the first queue is full.

        Raises PipelineFull after ``timeout_s``, FrameError, and StageError once a stage failed.
        """
        limit = deadline_after(timeout_s)
        with self._put_lock:
            self._check_open()
            epoch = self._epochs[-1]
            arrays = checked_frame(frame, epoch.deployment.inputs)
            while True:
                if self._monitor.failure is not None:
                    raise self._monitor.failure.error(self._out_count)
                if epoch.producer.has_free:
                    break
                if not wait_readable(
                    [epoch.producer.wait_descriptor, self._monitor.failed_descriptor],
                    remaining(limit),
                ):
                    raise PipelineFull(
                        f"the pipeline is full: {self._put_count - self._out_count} frames went "
                        f"in whose results were not taken (waited {timeout_s:g} s)"
                    )
            try:
                with deferred():
                    number = self._put_count
                    epoch.put_in(number, arrays)
                    self._put_count += 1
                    return number
            except PeerGone:
                raise self._failed() from None

    def get(self, timeout_s: float | None = None) -> Result:
        """The next result; waits for it. Raises PipelineEmpty after ``timeout_s`` and StageError
        when no more results will come."""
        limit = deadline_after(timeout_s)
        with self._get_lock:
            self._check_open()
            while True:
                epoch = self._epochs[0]
                failure = self._monitor.failure
                consumer = epoch.consumer.wait_descriptor
                if failure is None:
                    ready = wait_readable(
                        [consumer, self._monitor.failed_descriptor], remaining(limit)
                    )
                    if not ready:
                        raise PipelineEmpty(
                            f"no result within {timeout_s:g} s; "
                            f"{self._put_count - self._out_count} frames are on their way"
                        )
                elif self._put_count == self._out_count or not wait_readable([consumer], _DRAIN_S):
                    raise failure.error(self._out_count)
                try:
                    with deferred():
                        result = self._take(epoch)
                except WouldBlock:
                    continue
                except PeerGone:
                    raise self._failed() from None
                if result is not None:
                    break
        for observer in tuple(self.observers):
            observer(result.times)
        return result

    def run(self, frames: Iterable[Frame]) -> Iterator[Result]:
        """Results of all ``frames``, in order, while frames go in as room permits; those of frames
        that were on their way before come first. A frame is taken from ``frames`` only when the
        one before it is in. Raises what `put` and `get` do, after the last result that there is."""
        source = iter(frames)
        frame = next(source, None)
        failed: StageError | None = None
        while True:
            while frame is not None and failed is None:
                try:
                    self.put(frame, 0.0)
                except PipelineFull:
                    break
                except StageError as error:
                    failed = error
                    break
                frame = next(source, None)
            if self._put_count == self._out_count:
                if failed is not None:
                    raise failed
                if frame is None:
                    return
            elif failed is None and frame is not None:
                wait_readable(
                    [
                        self._epochs[0].consumer.wait_descriptor,
                        self._epochs[-1].producer.wait_descriptor,
                        self._monitor.failed_descriptor,
                    ],
                    None,
                )
                try:
                    result = self.get(0.0)
                except PipelineEmpty:
                    continue
                yield result
            else:
                yield self.get()

    def prepare(self, deployment: Deployment) -> Epoch:
        """Loads a deployment beside the running one, which goes on meanwhile.

        Raises ArtifactError and PlaceError when it does not fit, StageNotLoaded when a stage does
        not load; the running one is not touched by any of these.
        """
        deployment.check_places(self.places)
        with self._changing:
            self._check_open()
            if self._epochs:
                deployment.check_replaces(self._epochs[-1].deployment)
            try:
                workers = [self._workers.of(index) for index in deployment.places]
                epoch = Epoch(self._next_epoch, deployment, workers, self._slots)
            except OSError:
                raise self._failed() from None
            self._next_epoch += 1
            try:
                answers = self._monitor.replies(epoch.number, workers, self._load_timeout_s)
                for stage, worker, answer in zip(deployment.stages, workers, answers, strict=True):
                    if answer is None or isinstance(answer, NotLoaded):
                        raise self._not_loaded(stage.name, worker, answer)
            except BaseException:
                epoch.drop()
                raise
            return epoch

    def switch(self, prepared: Epoch) -> int:
        """The next frame that is put in, and all after it, go through ``prepared``; those before
        it still go through what they were put into. Results stay in order. Returns the number of
        that next frame."""
        with self._changing:
            self._check_open()
            prepared.start()
            self.deployments[prepared.number] = prepared.deployment
            with self._put_lock:
                before = self._epochs
                self._epochs = (*before, prepared)
                if before:
                    before[-1].finish_input()
                return self._put_count

    def discard(self, prepared: Epoch) -> None:
        """Forgets a prepared deployment; instead of `switch`."""
        prepared.drop()

    def redeploy(self, deployment: Deployment) -> int:
        """`prepare` and `switch`."""
        with self._changing:
            return self.switch(self.prepare(deployment))

    def set_duty(self, place: str, duty: float) -> None:
        """Slows a place down to ``duty`` of its speed from now on (1: not at all).

        Raises PlaceError, and ThrottleError when cores cannot be slowed here.
        """
        self._workers.set_duty(place, duty)

    def times(self, epoch: int | None = None) -> list[FrameTimes]:
        """Times of the last 200,000 results, or of those of one deployment (a key of
        ``deployments``)."""
        return [one for one in tuple(self._times) if epoch is None or one.epoch == epoch]

    def statistics(self, epoch: int | None = None) -> PipelineStatistics:
        """Statistics of one deployment; without ``epoch``, of the one that the last result went
        through. Raises ValueError when no frame of it has come out."""
        if epoch is None and self._times:
            epoch = self._times[-1].epoch
        deployment = self.deployments[epoch] if epoch is not None else self.deployment
        return summarize(
            self.times(epoch),
            [stage.name for stage in deployment.stages],
            [self.places[index].name for index in deployment.places],
        )

    def close(self) -> None:
        """Ends all processes; frames that are on their way are dropped. May be called twice, and
        only when no other thread is inside a method."""
        with deferred():  # some seconds at most, where a stage hangs
            if self._closed:
                return
            self._closed = True
            self._monitor.close()
            self._workers.close()
            for epoch in self._epochs:
                epoch.close()

    def leave(self) -> None:
        """In a child that was forked, where the pipeline counts as closed: closes its copies. Its
        locks may be held by threads that the child does not have."""
        self._closed = True
        self._put_lock, self._get_lock = threading.Lock(), threading.Lock()
        self._changing = threading.RLock()
        self._workers.leave()
        for epoch in self._epochs:
            epoch.close()

    def __enter__(self) -> Pipeline:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _take(self, epoch: Epoch) -> Result | None:
        """The next result of the first epoch; None when it has given its last. Raises WouldBlock
        where there is none yet."""
        result = epoch.take_out()
        if result is None:
            self._retire(epoch)
            return None
        if result.frame != self._out_count:
            raise PipelineError(
                f"frame {result.frame} came out where frame {self._out_count} was due"
            )
        self._out_count += 1
        self._times.append(result.times)
        return result

    def _retire(self, epoch: Epoch) -> None:
        """Its last result came out."""
        with self._put_lock:
            self._epochs = tuple(one for one in self._epochs if one is not epoch)
        epoch.close()

    def _not_loaded(self, stage: str, worker: WorkerProcess, answer: NotLoaded | None) -> Exception:
        what = f"stage {stage!r} could not be loaded on place {worker.place.name!r}"
        details = ""
        if answer is not None:
            what, details = f"{what}: {answer.summary}", f"\n{answer.text}"
        elif self._monitor.failure is not None and worker.exit_code is None:
            return self._failed()
        elif self._monitor.failure is not None:
            what += f": its process {how_it_ended(worker.exit_code)}"
        else:
            what += f" within {self._load_timeout_s:g} s"
        return StageNotLoaded(
            what + details, stage=stage, place=worker.place.name,
            frame=worker.board.last_frame, delivered=self._out_count,
        )  # fmt: skip

    def _failed(self) -> StageError:
        """The failure of which a closed connection is a sign."""
        failure = self._monitor.wait_for_failure(5.0)
        if failure is None:
            return StageDied(
                "a stage closed its connection", stage="?", place="?", frame=-1,
                delivered=self._out_count,
            )  # fmt: skip
        return failure.error(self._out_count)

    def _check_open(self) -> None:
        if self._closed:
            raise PipelineError("the pipeline is closed")
