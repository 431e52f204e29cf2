"""Bounded queues between processes: tensors in shared memory, turns over pipes.

A ring is an anonymous memory file with a fixed number of slots; whoever holds a descriptor may map
it, and the kernel frees it with the last holder, so nothing is left behind whoever is killed. Two
pipes say whose turn a slot is: ``full`` from producer to consumer, ``free`` the other way. A
process that dies closes its ends; the other side sees that at its next read, after everything
that was sent before. No locks: nothing stays locked by a dead process.
"""

from __future__ import annotations

import mmap
import os
import select
import struct
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tvm_npu.runtime.pipeline.artifact import TensorSpec
from tvm_npu.runtime.pipeline.errors import PipelineError

ALIGNMENT_BYTES = 128
"""Of every tensor: what TVM's kernels expect."""
LARGEST_SLOTS = 1024
"""Their tokens fit into a pipe, so writing one never blocks."""
_TOKEN = struct.Struct("<q")
_END = -1


class PeerGone(Exception):
    """The other end of a ring has been closed without an end of stream."""


class WouldBlock(Exception):
    """Nothing arrived before the deadline."""


@dataclass(frozen=True)
class RingLayout:
    """``slots`` times: ``words`` int64 about the frame, then its tensors."""

    tensors: tuple[TensorSpec, ...]
    slots: int
    words: int

    def __post_init__(self) -> None:
        if not 1 <= self.slots <= LARGEST_SLOTS:
            raise PipelineError(f"a queue has 1 to {LARGEST_SLOTS} slots, not {self.slots}")

    @property
    def offsets(self) -> tuple[int, ...]:
        """Of the tensors in a slot, then the size of the slot, in bytes."""
        offsets = [_aligned(self.words * 8)]
        for tensor in self.tensors:
            offsets.append(offsets[-1] + _aligned(tensor.size_bytes))
        return tuple(offsets)

    @property
    def size_bytes(self) -> int:
        return self.slots * self.offsets[-1]


@dataclass(frozen=True)
class Slot:
    """Views of shared memory: int64 words about the frame, tensors by name."""

    index: int
    words: NDArray[np.int64]
    tensors: Mapping[str, NDArray[Any]]


def make_memory(name: str, size_bytes: int) -> int:
    """A descriptor of anonymous shared memory, zeros."""
    descriptor = os.memfd_create(name)
    os.ftruncate(descriptor, size_bytes)
    return descriptor


def map_slots(descriptor: int, layout: RingLayout) -> list[Slot]:
    """Maps a ring's memory; the mapping lives as long as the slots do."""
    memory = mmap.mmap(descriptor, layout.size_bytes)
    *offsets, size = layout.offsets
    slots = []
    for index in range(layout.slots):
        words = np.frombuffer(memory, np.int64, layout.words, index * size)
        tensors = {
            spec.name: np.ndarray(spec.shape, spec.dtype, memory, index * size + offset)
            for spec, offset in zip(layout.tensors, offsets, strict=True)
        }
        slots.append(Slot(index, words, tensors))
    return slots


@dataclass(frozen=True)
class Ends:
    """The descriptors that one side of a ring needs."""

    memory: int
    read: int
    write: int

    def close(self) -> None:
        for descriptor in (self.memory, self.read, self.write):
            os.close(descriptor)


def make_ring(name: str, layout: RingLayout) -> tuple[Ends, Ends]:
    """The producer's and the consumer's ends of a new ring."""
    memory = make_memory(name, layout.size_bytes)
    full_read, full_write = os.pipe()
    free_read, free_write = os.pipe()
    return Ends(memory, free_read, full_write), Ends(os.dup(memory), full_read, free_write)


class Producer:
    """Fills slots in turn. Not for several threads at once."""

    def __init__(self, ends: Ends, layout: RingLayout) -> None:
        self._ends = ends
        self._slots = map_slots(ends.memory, layout)
        self._untouched = list(reversed(range(layout.slots)))

    def acquire(self, timeout_s: float | None = None) -> Slot:
        """A free slot; waits while there is none. Raises PeerGone and WouldBlock."""
        if self._untouched:
            return self._slots[self._untouched.pop()]
        return self._slots[_read(self._ends.read, timeout_s)]

    def give_back(self, slot: Slot) -> None:
        """Undoes `acquire`."""
        self._untouched.append(slot.index)

    def publish(self, slot: Slot) -> None:
        """Hands the slot to the consumer."""
        _write(self._ends.write, slot.index)

    def finish(self) -> None:
        """No more frames."""
        _write(self._ends.write, _END)

    @property
    def has_free(self) -> bool:
        return bool(self._untouched) or _readable(self._ends.read, 0)

    @property
    def wait_descriptor(self) -> int:
        """Readable when a slot becomes free or the consumer is gone."""
        return self._ends.read

    def close(self) -> None:
        """May be called twice."""
        if self._slots:
            self._slots = []
            self._ends.close()


class Consumer:
    """Takes slots in the order in which they were filled. Not for several threads at once."""

    def __init__(self, ends: Ends, layout: RingLayout) -> None:
        self._ends = ends
        self._slots = map_slots(ends.memory, layout)
        for slot in self._slots:
            for array in (slot.words, *slot.tensors.values()):
                array.flags.writeable = False

    def take(self, timeout_s: float | None = None) -> Slot | None:
        """The next full slot, None at the end of the stream. Raises PeerGone and WouldBlock."""
        index = _read(self._ends.read, timeout_s)
        return None if index == _END else self._slots[index]

    def release(self, slot: Slot) -> None:
        """Gives the slot back to the producer, who may be gone."""
        try:
            _write(self._ends.write, slot.index)
        except PeerGone:
            pass

    @property
    def wait_descriptor(self) -> int:
        """Readable when a slot is full, the stream ended or the producer is gone."""
        return self._ends.read

    def close(self) -> None:
        """May be called twice."""
        if self._slots:
            self._slots = []
            self._ends.close()


def wait_readable(descriptors: Sequence[int], timeout_s: float | None) -> bool:
    """Whether one of the descriptors became readable (or closed) before the deadline."""
    poll = select.poll()
    for descriptor in descriptors:
        poll.register(descriptor, select.POLLIN)
    return bool(poll.poll(None if timeout_s is None else max(0.0, timeout_s) * 1e3))


def deadline_after(timeout_s: float | None) -> float | None:
    """The deadline on the clock of `time.monotonic`; None for no deadline."""
    return None if timeout_s is None else time.monotonic() + timeout_s


def remaining(deadline: float | None) -> float | None:
    return None if deadline is None else max(0.0, deadline - time.monotonic())


def _readable(descriptor: int, timeout_s: float | None) -> bool:
    return wait_readable([descriptor], timeout_s)


def _read(descriptor: int, timeout_s: float | None) -> int:
    if timeout_s is not None and not _readable(descriptor, timeout_s):
        raise WouldBlock
    # Tokens are written whole (far below PIPE_BUF) and read whole.
    token = os.read(descriptor, _TOKEN.size)
    if not token:
        raise PeerGone
    return int(_TOKEN.unpack(token)[0])


def _write(descriptor: int, value: int) -> None:
    try:
        os.write(descriptor, _TOKEN.pack(value))
    except BrokenPipeError:
        raise PeerGone from None


def _aligned(size_bytes: int) -> int:
    return -(-size_bytes // ALIGNMENT_BYTES) * ALIGNMENT_BYTES
