"""Slow cores out of fast ones: a duty cycle on real cores, changeable while they work.

Two ways, both from outside, by a helper process for each core:

- ``steal``: the helper is pinned to the core with real-time priority and takes it away for
  1 - duty of every period. Whatever runs there gets exactly the rest, so a pipeline stage and a
  thread of a fork-join program are slowed alike. Needs the right to real-time priority (root).
- ``stop``: SIGSTOP and SIGCONT to the given processes. Needs no rights, but slows those processes
  as a whole, not a core.

Caches and memory bandwidth are not slowed. The period is short beside a stage's time of a frame,
so that a frame takes 1 / duty times as long, not now nothing and then everything.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import IO

from tvm_npu.runtime.pipeline.errors import PipelineError
from tvm_npu.runtime.pipeline.place import check_duty, ranges, usable_cores

PERIOD_S = 0.003
REAL_TIME_PRIORITY = 10

_HELPER = """\
import os, select, signal, sys, time
core, period_ns, real_time, pids = (
    int(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), [int(pid) for pid in sys.argv[4:]]
)
signal.signal(signal.SIGINT, signal.SIG_IGN)
if real_time:
    os.sched_setaffinity(0, {core})
    os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(real_time))

def tell(number):
    for pid in pids:
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            pass

clock, duty = time.monotonic_ns, 1.0
try:
    os.write(1, b"+")
    while True:
        now = clock()
        # All helpers keep the same beat, so that the cores of a place are slow together.
        begin = now - now % period_ns
        stolen_until = begin + int(period_ns * (1 - duty))
        if duty < 1 and now < stolen_until:
            if real_time:
                while clock() < stolen_until:
                    pass
            else:
                tell(signal.SIGSTOP)
                time.sleep((stolen_until - now) * 1e-9)
                tell(signal.SIGCONT)
        rest_s = None if duty == 1 else max(0, begin + period_ns - clock()) * 1e-9
        if select.select([0], [], [], rest_s)[0]:
            text = os.read(0, 8)
            if not text:
                break
            duty = int(text) / 1e6
            os.write(1, b"+")
finally:
    tell(signal.SIGCONT)
"""


class ThrottleError(PipelineError):
    """A core cannot be slowed down here."""


class Throttle:
    """Duty cycles of cores, all 1 at first; a context manager.

    ``pids``, the processes of each core, choose the way ``stop``. Without them it is ``steal``;
    ThrottleError says when that is not permitted. The helpers end with this process.
    """

    def __init__(
        self, cores: Sequence[int], pids: Mapping[int, Sequence[int]] | None = None,
        *, period_s: float = PERIOD_S,
    ) -> None:  # fmt: skip
        missing = sorted(set(cores) - usable_cores())
        if missing:
            raise ThrottleError(
                f"cannot slow core {missing[0]}: usable cores are {ranges(usable_cores())}"
            )
        if pids is None and not may_steal():
            raise ThrottleError("cannot slow a core: real-time priority is not permitted here")
        priority = REAL_TIME_PRIORITY if pids is None else 0
        self._pids = pids
        self._duties = dict.fromkeys(cores, 1.0)
        self._helpers: dict[int, subprocess.Popen[bytes]] = {}
        for core in self._duties:
            processes = [] if pids is None else [str(pid) for pid in pids.get(core, ())]
            self._helpers[core] = subprocess.Popen(
                [
                    sys.executable, "-I", "-S", "-c", _HELPER,
                    str(core), str(int(period_s * 1e9)), str(priority), *processes,
                ],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0,
            )  # fmt: skip
        for core in self._duties:
            self._acknowledged(core)

    @property
    def duties(self) -> Mapping[int, float]:
        """The duty of each core."""
        return dict(self._duties)

    @property
    def pids(self) -> Mapping[int, int]:
        """The helper of each core."""
        return {core: helper.pid for core, helper in self._helpers.items()}

    def set(self, core: int, duty: float) -> None:
        """Takes effect within a period; returns when it has. Raises PlaceError and
        ThrottleError."""
        check_duty(duty, f"core {core}")
        if core not in self._helpers:
            raise ThrottleError(f"core {core} is not one of this throttle's: {list(self._duties)}")
        try:
            _pipe(self._helpers[core].stdin).write(f"{round(duty * 1e6):08d}".encode())
        except OSError:
            raise self._died(core) from None
        self._acknowledged(core)
        self._duties[core] = duty

    def _acknowledged(self, core: int) -> None:
        if not _pipe(self._helpers[core].stdout).read(1):
            raise self._died(core)

    def _died(self, core: int) -> ThrottleError:
        # Its pipes are closed a moment before it can be waited for.
        self._helpers[core].wait()
        self.revive()
        return ThrottleError(f"the process that slows core {core} has died")

    def revive(self) -> None:
        """Continues what a helper that died may have left stopped."""
        for core, helper in self._helpers.items():
            if helper.poll() is not None:
                for pid in (self._pids or {}).get(core, ()):
                    try:
                        os.kill(pid, signal.SIGCONT)
                    except ProcessLookupError:
                        pass

    def close(self) -> None:
        for helper in self._helpers.values():
            _pipe(helper.stdin).close()
        for helper in self._helpers.values():
            helper.wait()
            _pipe(helper.stdout).close()
        self.revive()
        self._helpers.clear()

    def __enter__(self) -> Throttle:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:  # fmt: skip
        self.close()


def may_steal() -> bool:
    """Whether this process may take a core away from others."""
    parameters = f"os.SCHED_FIFO, os.sched_param({REAL_TIME_PRIORITY})"
    code = f"import os; os.sched_setscheduler(0, {parameters})"
    result = subprocess.run([sys.executable, "-I", "-S", "-c", code], capture_output=True)
    return result.returncode == 0


def _pipe(pipe: IO[bytes] | None) -> IO[bytes]:
    assert pipe is not None
    return pipe
