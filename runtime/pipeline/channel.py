"""Control messages between the pipeline and a stage's process, descriptors included."""

from __future__ import annotations

import os
import pickle
import socket
import struct
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tvm_npu.runtime.pipeline.artifact import StageArtifact
from tvm_npu.runtime.pipeline.ring import RingLayout

_LENGTH = struct.Struct("<q")
_MOST_DESCRIPTORS = 16


@dataclass(frozen=True)
class Prepare:
    """Load a stage and map its rings. Comes with six descriptors: memory, read and write of the
    input ring's consumer, then of the output ring's producer."""

    epoch: int
    index: int
    artifact: StageArtifact
    source: RingLayout
    target: RingLayout


@dataclass(frozen=True)
class Start:
    """Run a prepared stage once everything that was started before has ended."""

    epoch: int


@dataclass(frozen=True)
class Drop:
    """Forget a prepared stage."""

    epoch: int


@dataclass(frozen=True)
class Stop:
    """End the process now."""


@dataclass(frozen=True)
class Ready:
    """Answer to Prepare. ``load_s`` is 0 when the stage was still loaded."""

    epoch: int
    load_s: float


@dataclass(frozen=True)
class NotLoaded:
    """Answer to Prepare: why not, in a line and at length."""

    epoch: int
    summary: str
    text: str


@dataclass(frozen=True)
class Raised:
    """The stage raised an exception on a frame; the process ends."""

    epoch: int
    frame: int
    summary: str
    text: str


class Channel:
    """One end of a stream socket. Several threads may send, one at a time may receive."""

    def __init__(self, end: socket.socket) -> None:
        self._socket = end
        self._sending = threading.Lock()

    def fileno(self) -> int:
        return self._socket.fileno()

    def send(self, message: Any, descriptors: Sequence[int] = ()) -> None:
        """Raises OSError when the other side is gone."""
        body = pickle.dumps(message)
        head = _LENGTH.pack(len(body))
        with self._sending:
            if descriptors:
                socket.send_fds(self._socket, [head], list(descriptors))
            else:
                self._socket.sendall(head)
            self._socket.sendall(body)

    def receive(self) -> tuple[Any, list[int]]:
        """Raises EOFError when the other side is gone."""
        try:
            head, descriptors, _, _ = socket.recv_fds(self._socket, _LENGTH.size, _MOST_DESCRIPTORS)
            for descriptor in descriptors:  # recv_fds drops flags, MSG_CMSG_CLOEXEC among them
                os.set_inheritable(descriptor, False)
            head += self._exactly(_LENGTH.size - len(head)) if head else b""
            if not head:
                raise EOFError
            return pickle.loads(self._exactly(_LENGTH.unpack(head)[0])), descriptors
        except ConnectionError:
            raise EOFError from None

    def _exactly(self, count: int) -> bytes:
        parts = []
        while count:
            part = self._socket.recv(min(count, 1 << 20))
            if not part:
                raise EOFError
            parts.append(part)
            count -= len(part)
        return b"".join(parts)

    def close(self) -> None:
        self._socket.close()
