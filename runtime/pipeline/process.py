"""Starting and ending the processes of places, seen from the pipeline."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys

from tvm_npu.runtime.pipeline.board import SIZE_BYTES, Board
from tvm_npu.runtime.pipeline.channel import Channel, Stop
from tvm_npu.runtime.pipeline.place import Place
from tvm_npu.runtime.pipeline.ring import make_memory
from tvm_npu.runtime.pipeline.worker import EXIT_PEER_GONE, EXIT_RAISED

_BOOT = """\
import os, sys
os.sched_setaffinity(0, {cores})
sys.path[:] = {path}
from tvm_npu.runtime.pipeline.worker import main
main()
"""
_THREAD_LIMITS = (
    "TVM_NUM_THREADS", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS",
    "NUMBA_NUM_THREADS",
)  # fmt: skip


class WorkerProcess:
    """A place's process, pinned to its cores from its first instruction in Python on. It starts
    without TVM; stages that need TVM import it."""

    def __init__(self, place: Place) -> None:
        self.place = place
        ours, theirs = socket.socketpair()
        lifeline, self._lifeline = os.pipe()
        memory = make_memory(f"board-{place.name}", SIZE_BYTES)
        self.board = Board(memory)
        self.channel = Channel(ours)
        try:
            self._process = subprocess.Popen(
                [
                    sys.executable, "-c",
                    _BOOT.format(cores=set(place.cores), path=[p or os.getcwd() for p in sys.path]),
                    str(theirs.fileno()), str(lifeline), str(memory),
                ],
                stdin=subprocess.DEVNULL,
                env=dict(
                    os.environ,
                    **dict.fromkeys(_THREAD_LIMITS, str(len(place.cores))),
                ),
                pass_fds=(theirs.fileno(), lifeline, memory),
            )  # fmt: skip
        finally:
            theirs.close()
            os.close(lifeline)
            os.close(memory)

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def exit_code(self) -> int | None:
        """None while it lives; negative for the signal that killed it."""
        return self._process.poll()

    @property
    def is_culprit(self) -> bool:
        """Whether it ended for a reason of its own, not because a neighbour did."""
        return self.exit_code not in (None, EXIT_PEER_GONE)

    def leave(self) -> None:
        """In a child that was forked: closes its copies."""
        if self._lifeline >= 0:
            os.close(self._lifeline)
            self._lifeline = -1
            self.channel.close()

    def kill(self) -> None:
        self._process.kill()

    def stop(self) -> None:
        """Asks it to end."""
        try:
            self.channel.send(Stop())
        except OSError:
            pass

    def join(self, timeout_s: float) -> None:
        """Waits for the end, kills after ``timeout_s``, frees everything."""
        if self._lifeline < 0:
            return
        try:
            self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        os.close(self._lifeline)
        self._lifeline = -1
        self.channel.close()


def how_it_ended(code: int | None) -> str:
    if code is None:
        return "closed its connection"
    if code < 0:
        try:
            return f"was killed by {signal.Signals(-code).name}"
        except ValueError:
            return f"was killed by signal {-code}"
    if code == EXIT_RAISED:
        return "ended after an exception"
    return f"ended with exit code {code}"
