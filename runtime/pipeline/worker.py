"""The process of one place: loads stages and runs one at a time, frame by frame.

The main thread computes; a second one listens to the pipeline and loads what comes next while the
first goes on. The process ends with the pipeline's: the kernel kills it when the lifeline closes.
"""

from __future__ import annotations

import fcntl
import os
import queue
import signal
import socket
import sys
import threading
import time
import traceback
from collections import OrderedDict
from dataclasses import dataclass
from typing import Any

import numpy as np

from tvm_npu.runtime.pipeline.artifact import StageArtifact
from tvm_npu.runtime.pipeline.board import Board, State
from tvm_npu.runtime.pipeline.channel import (
    Channel,
    Drop,
    NotLoaded,
    Prepare,
    Raised,
    Ready,
    Start,
    Stop,
)
from tvm_npu.runtime.pipeline.forks import leaves_when_forked
from tvm_npu.runtime.pipeline.ring import Consumer, Ends, PeerGone, Producer, wait_readable
from tvm_npu.runtime.pipeline.stage import LoadedStage, load_stage
from tvm_npu.runtime.pipeline.times import frame_of, write_stage
from tvm_npu.sim.errors import bounded
from tvm_npu.sim.texts import cut

EXIT_RAISED = 70
EXIT_PEER_GONE = 75
LONGEST_SUMMARY = 400
KEPT_STAGES = 8
"""Loaded stages that a process keeps, so that going back to one costs nothing."""


@dataclass
class _Prepared:
    message: Prepare
    stage: LoadedStage
    source: Consumer
    target: Producer


class Worker:
    """State of the process; `run` is the main thread's."""

    def __init__(self, channel: Channel, board: Board) -> None:
        self._channel = channel
        self._board = board
        self._prepared: dict[int, _Prepared] = {}
        self._started: queue.SimpleQueue[_Prepared] = queue.SimpleQueue()
        self._running: _Prepared | None = None
        self._loaded: OrderedDict[Any, LoadedStage] = OrderedDict()

    def leave(self) -> None:
        """In a child that the stage's code forked: closes its copies."""
        self._channel.close()
        running = [] if self._running is None else [self._running]
        for prepared in [*self._prepared.values(), *running]:
            prepared.source.close()
            prepared.target.close()

    def run(self) -> None:
        threading.Thread(target=self._listen, name="control", daemon=True).start()
        try:
            while True:
                self._board.enter(State.IDLE, time.monotonic_ns())
                self._running = self._started.get()
                self._stream(self._running)
        except PeerGone:
            os._exit(EXIT_PEER_GONE)

    def _stream(self, prepared: _Prepared) -> None:
        """Frames until the end of the stream. Raises PeerGone."""
        board, clock = self._board, time.monotonic_ns
        source, target, stage = prepared.source, prepared.target, prepared.stage
        artifact, index = prepared.message.artifact, prepared.message.index
        cpu_clock = time.thread_time_ns if artifact.threads == 1 else time.process_time_ns
        board.begin(prepared.message.epoch)
        while True:
            wait_ns = clock()
            board.enter(State.WAITING_FOR_INPUT, wait_ns)
            slot = source.take()
            if slot is None:
                break
            input_ns = clock()
            board.enter(State.WAITING_FOR_OUTPUT, input_ns)
            result = target.acquire()
            begin_ns = clock()
            frame = frame_of(slot.words)
            board.start_frame(frame)
            board.enter(State.BUSY, begin_ns)
            cpu_ns = cpu_clock()
            try:
                stage.run(
                    {spec.name: slot.tensors[spec.name] for spec in artifact.inputs},
                    {spec.name: result.tensors[spec.name] for spec in artifact.computed},
                )
            except BaseException as error:
                self._fail(prepared.message.epoch, frame, error)
            for spec in artifact.carried:
                np.copyto(result.tensors[spec.name], slot.tensors[spec.name])
            result.words[:] = slot.words
            cpu_ns = cpu_clock() - cpu_ns
            write_stage(result.words, index, (wait_ns, input_ns, begin_ns, clock(), cpu_ns))
            target.publish(result)
            board.finish_frame(frame)
            source.release(slot)
        target.finish()
        source.close()
        target.close()

    def _fail(self, epoch: int, frame: int, error: BaseException) -> None:
        try:
            self._channel.send(Raised(epoch, frame, *_described(error)))
        except OSError:
            pass
        os._exit(EXIT_RAISED)

    def _listen(self) -> None:
        try:
            while True:
                message, descriptors = self._channel.receive()
                if isinstance(message, Prepare):
                    self._prepare(message, descriptors)
                elif isinstance(message, Start):
                    self._started.put(self._prepared.pop(message.epoch))
                elif isinstance(message, Drop):
                    prepared = self._prepared.pop(message.epoch, None)
                    if prepared is not None:
                        prepared.source.close()
                        prepared.target.close()
                elif isinstance(message, Stop):
                    os._exit(0)
        except (EOFError, OSError):
            os._exit(EXIT_PEER_GONE)
        except BaseException:
            traceback.print_exc()
            os._exit(EXIT_RAISED)

    def _prepare(self, message: Prepare, descriptors: list[int]) -> None:
        source, target = Ends(*descriptors[:3]), Ends(*descriptors[3:])
        begin = time.monotonic()
        try:
            stage = self._stage(message.artifact)
        except BaseException as error:
            source.close()
            target.close()
            self._channel.send(NotLoaded(message.epoch, *_described(error)))
            return
        self._prepared[message.epoch] = _Prepared(
            message,
            stage,
            Consumer(source, message.source),
            Producer(target, message.target),
        )
        self._channel.send(Ready(message.epoch, time.monotonic() - begin))

    def _stage(self, artifact: StageArtifact) -> LoadedStage:
        """Loads it, or finds it among those that were used last."""
        key = (
            artifact.loader, artifact.path, artifact.code, artifact.threads, artifact.inputs,
            artifact.outputs, tuple(sorted(artifact.options.items())), artifact.limits,
        )  # fmt: skip
        stage = self._loaded.pop(key, None)
        if stage is None:
            stage = load_stage(artifact)
        self._loaded[key] = stage
        while len(self._loaded) > KEPT_STAGES:
            self._loaded.popitem(last=False)
        return stage


def _described(error: BaseException) -> tuple[str, str]:
    """In a line and at length, cut where what was raised has a long text."""
    summary = traceback.format_exception_only(type(error), error)[-1].strip()
    text = "".join(traceback.format_exception(error, limit=-8)).strip()
    return cut(summary, LONGEST_SUMMARY), bounded(text)


def bind_to_lifeline(descriptor: int) -> None:
    """The kernel kills this process when the last writer of the pipe is gone: also when that one
    was killed itself, also while this process is stopped or hangs."""
    fcntl.fcntl(descriptor, fcntl.F_SETOWN, os.getpid())
    fcntl.fcntl(descriptor, fcntl.F_SETSIG, signal.SIGKILL)
    fcntl.fcntl(descriptor, fcntl.F_SETFL, os.O_ASYNC | os.O_NONBLOCK)
    if wait_readable([descriptor], 0):
        os._exit(EXIT_PEER_GONE)


def main() -> None:
    control, lifeline, board = (int(text) for text in sys.argv[1:4])
    bind_to_lifeline(lifeline)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    for descriptor in (control, lifeline, board):
        os.set_inheritable(descriptor, False)
    worker = Worker(Channel(socket.socket(fileno=control)), Board(board))
    leaves_when_forked(worker)
    worker.run()
