"""Duty cycles: the time that the helper takes from a core, and what it refuses."""

from __future__ import annotations

import os
import re
import signal
import time
from pathlib import Path

import pytest

from tests.runtime.pipeline.stages import CORES, frame, make, numbers
from tvm_npu.runtime.pipeline import Deployment, Pipeline, Place
from tvm_npu.runtime.pipeline import workers as workers_module
from tvm_npu.runtime.pipeline.errors import PlaceError
from tvm_npu.runtime.pipeline.throttle import Throttle, ThrottleError, may_steal

CORE = CORES[-1]
needs_root = pytest.mark.skipif(not may_steal(), reason="real-time priority is not permitted")


def cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def takes(pid: int, share: float, seconds: float) -> bool:
    """Whether a process takes ``share`` of a core for ``seconds`` at a stretch, soon: this process
    may be kept from looking at the clock in time, and a helper of another run of these tests works
    with the same priority."""
    for _ in range(40):
        begin, used = time.monotonic(), cpu_s(pid)
        time.sleep(seconds)
        taken = (cpu_s(pid) - used) / (time.monotonic() - begin)
        if taken == pytest.approx(share, abs=0.07):
            return True
    return False


@needs_root
def test_the_helper_takes_its_share_of_the_core() -> None:
    """Real-time priority: whatever else runs there cannot change that."""
    with Throttle([CORE]) as throttle:
        helper = throttle.pids[CORE]
        assert takes(helper, 0.0, 0.3)
        for duty in (1 / 3, 0.75):
            throttle.set(CORE, duty)
            assert throttle.duties[CORE] == duty
            assert takes(helper, 1 - duty, 0.5)
        throttle.set(CORE, 1)
        assert takes(helper, 0.0, 0.3)


def test_processes_are_stopped_and_continued() -> None:
    deployment = Deployment((make("affine", 0, last=True),), (0,))
    with Pipeline(deployment, [Place("p", (CORE,))], timeout_s=60) as pipeline:
        pid = pipeline.pids["p"]
        with Throttle([CORE], {CORE: [pid]}, period_s=0.02) as throttle:
            throttle.set(CORE, 0.5)
            states = set()
            limit = time.monotonic() + 60
            while not {"T", "S"} <= states and time.monotonic() < limit:
                states.add(re.split(r"[) ]+", Path(f"/proc/{pid}/stat").read_text())[2])
            assert {"T", "S"} <= states
            assert numbers(list(pipeline.run(frame(n) for n in range(20)))) == list(range(20))
            # A helper that dies while the stage is stopped must not leave it so.
            throttle.set(CORE, 0.05)
            os.kill(throttle.pids[CORE], signal.SIGKILL)
            with pytest.raises(ThrottleError, match=f"process that slows core {CORE} has died"):
                while True:
                    throttle.set(CORE, 0.5)
            assert numbers(list(pipeline.run(frame(n) for n in range(20)))) == list(range(20))


@needs_root
def test_throttled_places_of_a_pipeline() -> None:
    deployment = Deployment((make("affine", 0, last=True),), (0,))
    with Pipeline(deployment, [Place("slow", (CORE,), duty=0.5)]) as pipeline:
        assert numbers(list(pipeline.run(frame(n) for n in range(50)))) == list(range(50))
        pipeline.set_duty("slow", 1.0)
        with pytest.raises(PlaceError, match="no place 'fast'; known: slow"):
            pipeline.set_duty("fast", 0.5)
        with pytest.raises(PlaceError, match="duty cycle 0.01; it lies between 0.05 and 1"):
            pipeline.set_duty("slow", 0.01)
        assert numbers(list(pipeline.run(frame(n) for n in range(50)))) == list(range(50))


def test_places_are_slowed_by_signals_where_real_time_is_not_permitted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(workers_module, "may_steal", lambda: False)
    deployment = Deployment((make("affine", 0, last=True),), (0,))
    slow = [Place("slow", CORES, duty=0.5), Place("idle", CORES[:1])]
    with Pipeline(deployment, slow, timeout_s=60) as pipeline:
        states = set()
        limit = time.monotonic() + 60
        while "T" not in states and time.monotonic() < limit:
            stat = Path(f"/proc/{pipeline.pids['slow']}/stat").read_text()
            states.add(re.split(r"[) ]+", stat)[2])
        assert "T" in states
        assert numbers(list(pipeline.run(frame(n) for n in range(20)))) == list(range(20))


def test_cores_that_cannot_be_slowed() -> None:
    with pytest.raises(ThrottleError, match="cannot slow core 4000: usable cores are"):
        Throttle([4000], {})
    with Throttle([CORE], {CORE: []}) as throttle:
        with pytest.raises(ThrottleError, match="core 4000 is not one of this throttle's"):
            throttle.set(4000, 0.5)
