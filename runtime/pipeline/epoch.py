"""One deployment of a pipeline: which stage runs where, and the rings that join them."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tvm_npu.runtime.pipeline.artifact import StageArtifact, TensorSpec, check_chain
from tvm_npu.runtime.pipeline.channel import Drop, Prepare, Start
from tvm_npu.runtime.pipeline.errors import ArtifactError, PlaceError
from tvm_npu.runtime.pipeline.frame import Frame, Result
from tvm_npu.runtime.pipeline.place import Place
from tvm_npu.runtime.pipeline.process import WorkerProcess
from tvm_npu.runtime.pipeline.ring import Consumer, PeerGone, Producer, RingLayout, make_ring
from tvm_npu.runtime.pipeline.times import read_times, words_for, write_put


@dataclass(frozen=True)
class Deployment:
    """Consecutive stages and the index of the place of each; a place runs at most one of them."""

    stages: tuple[StageArtifact, ...]
    places: tuple[int, ...]

    def __post_init__(self) -> None:
        check_chain(self.stages)
        if len(self.stages) != len(self.places):
            raise PlaceError(f"{len(self.stages)} stages, but {len(self.places)} places for them")
        if len(set(self.places)) != len(self.places):
            raise PlaceError(f"two stages on one place: {list(self.places)}")

    @property
    def inputs(self) -> tuple[TensorSpec, ...]:
        """What the pipeline takes or returns."""
        return self.stages[0].inputs

    @property
    def outputs(self) -> tuple[TensorSpec, ...]:
        """What the pipeline takes or returns."""
        return self.stages[-1].outputs

    def check_places(self, places: Sequence[Place]) -> None:
        """PlaceError when a stage's place does not exist or has fewer cores than it threads."""
        for stage, index in zip(self.stages, self.places, strict=True):
            if not 0 <= index < len(places):
                raise PlaceError(
                    f"stage {stage.name!r} is for place {index}; there are {len(places)} places"
                )
            if stage.threads > len(places[index].cores):
                raise PlaceError(
                    f"stage {stage.name!r} has {stage.threads} threads, place "
                    f"{places[index].name!r} has {len(places[index].cores)} cores"
                )

    def check_replaces(self, other: Deployment) -> None:
        """ArtifactError unless both take and return the same tensors."""
        for kind, ours, theirs in (
            ("takes", self.inputs, other.inputs),
            ("returns", self.outputs, other.outputs),
        ):
            if set(ours) != set(theirs):
                raise ArtifactError(
                    f"the new deployment {kind} {_named(ours)}, the running one {_named(theirs)}"
                )


class Epoch:
    """A deployment on running processes; ``put`` counts the frames that went in."""

    def __init__(
        self, number: int, deployment: Deployment, workers: Sequence[WorkerProcess], slots: int
    ) -> None:
        """Sends every worker its stage and rings. Raises OSError when one is gone."""
        self.number = number
        self.deployment = deployment
        self.workers = tuple(workers)
        self.put = 0
        self.closed_input = False
        words = words_for(len(deployment.stages))
        layouts = [
            RingLayout(tensors, slots, words)
            for tensors in (deployment.inputs, *(stage.outputs for stage in deployment.stages))
        ]
        rings = [make_ring(f"ring-{number}-{n}", layout) for n, layout in enumerate(layouts)]
        try:
            for index, (stage, worker) in enumerate(zip(deployment.stages, workers, strict=True)):
                source, target = rings[index][1], rings[index + 1][0]
                worker.channel.send(
                    Prepare(number, index, stage, layouts[index], layouts[index + 1]),
                    (
                        source.memory, source.read, source.write,
                        target.memory, target.read, target.write,
                    ),
                )  # fmt: skip
            self.producer = Producer(rings[0][0], layouts[0])
            self.consumer = Consumer(rings[-1][1], layouts[-1])
        except BaseException:
            rings[0][0].close()
            rings[-1][1].close()
            raise
        finally:
            for ends in [consumer for _, consumer in rings[:-1]] + [p for p, _ in rings[1:]]:
                ends.close()

    def start(self) -> None:
        for worker in self.workers:
            _send(worker, Start(self.number))

    def drop(self) -> None:
        """Ends the epoch before it has begun; instead of `start`."""
        for worker in self.workers:
            _send(worker, Drop(self.number))
        self.close()

    def put_in(self, number: int, arrays: Frame) -> None:
        """A frame, for which there is room (`producer.has_free`). Raises PeerGone."""
        slot = self.producer.acquire()
        for name, array in arrays.items():
            np.copyto(slot.tensors[name], array)
        write_put(slot.words, number, time.monotonic_ns())
        self.producer.publish(slot)
        self.put += 1

    def take_out(self) -> Result | None:
        """The next result; None after the last. Raises WouldBlock where there is none yet, and
        PeerGone."""
        slot = self.consumer.take(0)
        if slot is None:
            return None
        outputs = {name: array.copy() for name, array in slot.tensors.items()}
        times = read_times(slot.words, self.number, time.monotonic_ns())
        self.consumer.release(slot)
        return Result(times.frame, outputs, times)

    def finish_input(self) -> None:
        """No more frames for this epoch."""
        if not self.closed_input:
            self.closed_input = True
            try:
                self.producer.finish()
            except PeerGone:
                pass  # the failure shows where the results are read

    def close(self) -> None:
        self.producer.close()
        self.consumer.close()


def _send(worker: WorkerProcess, message: object) -> None:
    try:
        worker.channel.send(message)
    except OSError:
        pass  # the pipeline notices that the process is gone


def _named(specs: Sequence[TensorSpec]) -> str:
    return ", ".join(f"{s.name} {s.dtype}{list(s.shape)}" for s in specs)
