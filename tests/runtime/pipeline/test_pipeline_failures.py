"""Stages that die, raise, hang: which error, what was delivered before it, what is left behind."""

from __future__ import annotations

import gc
import os
import re
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from tests.patience import eventually
from tests.runtime.pipeline.stages import frame, make, numbers, places
from tvm_npu.runtime.pipeline import Deployment, Pipeline
from tvm_npu.runtime.pipeline import epoch as of_epoch
from tvm_npu.runtime.pipeline.errors import (
    PipelineError,
    StageDied,
    StageError,
    StageHung,
    StageRaised,
)
from tvm_npu.runtime.pipeline.monitor import Failure

ROOT = Path(__file__).parents[3]


def with_failure(how: str, at: int, stage: int = 1, stages: int = 3) -> Deployment:
    parts = []
    for n in range(stages):
        function, options = ("failing", {"how": how, "at": at}) if n == stage else ("affine", {})
        parts.append(make(function, n, last=n == stages - 1, **options))
    return Deployment(tuple(parts), tuple(range(stages)))


def until_error(pipeline: Pipeline, count: int = 50) -> tuple[list, StageError]:
    results: list = []
    with pytest.raises(StageError) as caught:
        for result in pipeline.run(frame(n) for n in range(count)):
            results.append(result)
    return results, caught.value


@pytest.mark.parametrize(
    ("how", "kind", "message"),
    [
        ("raise", StageRaised, "raised ValueError: cannot take 7 on frame 7"),
        ("wrong", StageRaised, r"ArtifactError: stage 's1' returned 'x2' as float64\[2\], its art"),
        ("kill", StageDied, "was killed by SIGKILL while it worked on frame 7"),
        ("exit", StageDied, "ended with exit code 3 while it worked on frame 7"),
        ("hang", StageHung, "has worked on frame 7 for more than 3 s"),
    ],
)
def test_what_failed_and_what_was_delivered(how: str, kind: type, message: str) -> None:
    # Short enough to wait for, long enough for a stage on a loaded machine that does not hang.
    timeout_s = 3 if how == "hang" else None
    with Pipeline(with_failure(how, 7), places(3), timeout_s=timeout_s) as pipeline:
        results, error = until_error(pipeline)
        assert type(error) is kind
        assert error.stage == "s1" and error.place == "p1"
        assert error.frame == 6 and error.delivered == 7
        assert numbers(results) == list(range(7))
        text = str(error)
        assert text.startswith("stage 's1' on place 'p1' (cores ")
        assert "; its last finished frame was 6; frames 0 to 6 were delivered" in text
        assert re.search(message, text)
        for action in (lambda: pipeline.put(frame(0)), pipeline.get):
            with pytest.raises(kind):
                action()
    assert no_process_lives(pipeline)


@pytest.mark.parametrize("stage", [0, 2])
def test_failures_at_the_ends(stage: int) -> None:
    with Pipeline(with_failure("kill", 0, stage), places(3)) as pipeline:
        results, error = until_error(pipeline)
    assert results == [] and error.delivered == 0 and error.frame == -1
    assert f"stage 's{stage}'" in str(error)
    assert "it finished no frame; no frame was delivered" in str(error)


@pytest.mark.parametrize("victim", ["p0", "p1", "p2"])
def test_kill_minus_nine(victim: str) -> None:
    deployment = Deployment(
        tuple(make("affine", n, last=n == 2, delay_s=0.002) for n in range(3)), (0, 1, 2)
    )
    with Pipeline(deployment, places(3)) as pipeline:
        results: list = []
        with pytest.raises(StageDied, match="was killed by SIGKILL") as caught:
            for result in pipeline.run(frame(n) for n in range(1000)):
                results.append(result)
                if len(results) == 20:
                    os.kill(pipeline.pids[victim], signal.SIGKILL)
        assert caught.value.place == victim
        assert caught.value.delivered == len(results) >= 20
        assert numbers(results) == list(range(len(results)))
        # Whatever the dead stage had finished came out.
        if victim != "p2":
            assert caught.value.frame == len(results) - 1
    assert no_process_lives(pipeline)


def test_killed_between_a_frame_and_the_note_that_it_is_finished() -> None:
    """The board is older than what came out: the error must not contradict itself."""
    died = Failure(StageDied, "stage 's1' died", "s1", "p1", frame=18, begun=19)
    known = died.error(delivered=20)
    assert known.frame == 19
    assert str(known) == (
        "stage 's1' died; its last finished frame was 19; frames 0 to 19 were delivered"
    )
    assert died.error(delivered=19).frame == 18
    assert "died while it worked on frame 19; its last finished frame was 18; frames 0 to 18" in (
        str(died.error(delivered=19))
    )


@pytest.mark.parametrize("how", ["fork", "start"])
def test_a_dead_stage_whose_children_live_on(how: str, tmp_path: Path) -> None:
    """They held its ends of queues and its connection open: nobody heard that it was dead."""
    note = tmp_path / "child"
    found: list = []

    def wait() -> None:
        found.append(until_error(pipeline))

    with Pipeline(with_failure(f"{how} {note}", 3), places(3)) as pipeline:
        waiting = threading.Thread(target=wait, daemon=True)
        waiting.start()
        waiting.join(20)
        child = int(note.read_text())
        try:
            assert found and alive(child)
        finally:
            os.kill(child, signal.SIGKILL)
            waiting.join()
        ((results, error),) = found
        assert type(error) is StageDied and numbers(results) == [0, 1, 2]


def test_children_of_the_pipeline_s_process() -> None:
    """They keep no stage alive, and can neither use the pipeline nor end it."""
    with Pipeline(with_failure("raise", 99), places(3)) as pipeline:
        with pipeline._put_lock, pipeline._get_lock:  # as other threads would
            child = os.fork()
            if child == 0:
                code = 1
                try:
                    for use in (lambda: pipeline.put(frame(0)), pipeline.get):
                        with pytest.raises(PipelineError, match="the pipeline is closed"):
                            use()
                    pipeline.close()
                    code = 0
                finally:
                    os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert numbers(list(pipeline.run(frame(n) for n in range(5)))) == list(range(5))


def test_long_texts_of_what_a_stage_raises() -> None:
    with Pipeline(with_failure("long", 3), places(3)) as pipeline:
        _, error = until_error(pipeline)
        assert type(error) is StageRaised and len(str(error)) < 10_000


@pytest.mark.parametrize("timeout_s", [0, -1.0, float("nan"), float("inf"), "1"])
def test_timeouts_that_are_none(timeout_s: Any) -> None:
    with pytest.raises(PipelineError, match="timeout is above 0 s, not .*; None is for ever"):
        Pipeline(with_failure("raise", 99), places(3), timeout_s=timeout_s)


def test_killed_while_nothing_runs() -> None:
    with Pipeline(with_failure("raise", 99), places(3)) as pipeline:
        os.kill(pipeline.pids["p1"], signal.SIGKILL)
        with pytest.raises(StageDied, match="'p1' .* was killed by SIGKILL; it finished no frame"):
            pipeline.get(timeout_s=60)


def test_a_stopped_process_hangs() -> None:
    """Also one that is stopped between two frames."""
    with Pipeline(with_failure("raise", 99), places(3), timeout_s=2) as pipeline:
        assert numbers(list(pipeline.run([frame(0)]))) == [0]
        os.kill(pipeline.pids["p1"], signal.SIGSTOP)
        results, error = until_error(pipeline)
        assert type(error) is StageHung and results == []
        assert "has not taken its next frame for more than 2 s" in str(error)
        assert error.place == "p1" and error.delivered == 1


def test_an_idle_pipeline_does_not_hang() -> None:
    with Pipeline(with_failure("raise", 99), places(3), timeout_s=2) as pipeline:
        time.sleep(2.5)
        pipeline.put(frame(0))
        assert numbers([pipeline.get()]) == [0]
        time.sleep(2.5)
        assert numbers(list(pipeline.run([frame(1)]))) == [1]


def test_a_slow_consumer_is_no_hang() -> None:
    with Pipeline(with_failure("raise", 99), places(3), timeout_s=2, slots=1) as pipeline:
        for n in range(3):
            pipeline.put(frame(n), timeout_s=60)
        time.sleep(2.5)
        assert numbers([pipeline.get() for _ in range(3)]) == [0, 1, 2]


def test_a_failure_behind_exchanged_stages() -> None:
    """Frames of the old deployment come out; those of the new one up to its failure."""
    with Pipeline(with_failure("raise", 99), places(3)) as pipeline:
        pipeline.put(frame(0))
        pipeline.put(frame(1))
        pipeline.redeploy(with_failure("raise", 3, stage=0, stages=1))
        results, error = until_error(pipeline)
        assert numbers(results) == [0, 1, 0, 1, 2]
        assert error.delivered == 5 and error.stage == "s0"
        assert "raised ValueError: cannot take 3 on frame 5" in str(error)


def test_an_exception_in_the_source_of_frames_is_its_own() -> None:
    def source():
        yield frame(0)
        raise KeyError("camera")

    with Pipeline(with_failure("raise", 99), places(3)) as pipeline:
        with pytest.raises(KeyError, match="camera"):
            list(pipeline.run(source()))
        assert numbers([pipeline.get()]) == [0]


ORPHANS = """
import os
import sys
import time
from tests.runtime.pipeline.stages import frame, make, places
from tvm_npu.runtime.pipeline import Deployment, Pipeline

how, at = sys.argv[1], 5
stages = make("affine", 0), make("failing", 1, how=how, at=at), make("affine", 2, last=True)
pipeline = Pipeline(Deployment(stages, (0, 1, 2)), places(3))
for n in range(at + 1):
    pipeline.put(frame(n))
if how == "hang":
    for n in range(at):
        pipeline.get()
child = os.fork() if how == "fork" else 0
if how == "fork" and child == 0:
    time.sleep(60)
print(*pipeline.pids.values(), *([child] if child else []), flush=True)
sys.stdin.read() if how != "leave" else None
"""


@pytest.mark.parametrize("how", ["raise-never", "hang", "leave", "fork"])
def test_nothing_is_left_behind_when_the_pipeline_s_process_is_killed(how: str) -> None:
    there = set(os.listdir("/dev/shm"))  # of processes that had the same numbers once
    parent = subprocess.Popen(
        [sys.executable, "-c", ORPHANS, how],
        cwd=ROOT,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    with parent:
        assert parent.stdout is not None
        pids = [int(text) for text in parent.stdout.readline().split()]
        child = pids.pop() if how == "fork" else None
        assert len(pids) == 3
        made = {str(pid) for pid in (parent.pid, *pids)}
        if how != "leave":
            assert all(alive(pid) for pid in pids)
            parent.kill()
        parent.wait()
        ended = eventually(lambda: not any(alive(pid) for pid in pids))
        if child is not None:  # which holds the output, too
            os.kill(child, signal.SIGKILL)
        assert ended
    # What any of the processes had made there would bear its number.
    new = set(os.listdir("/dev/shm")) - there
    left = [name for name in new if set(re.findall(r"\d+", name)) & made]
    assert not left


def test_closing_frees_descriptors_and_processes() -> None:
    def once() -> Pipeline:
        with Pipeline(with_failure("raise", 99), places(3)) as pipeline:
            list(pipeline.run(frame(n) for n in range(10)))
            pipeline.redeploy(with_failure("raise", 99, stages=2))
            list(pipeline.run(frame(n) for n in range(10)))
        return pipeline

    once()
    gc.collect()
    before = len(os.listdir("/proc/self/fd"))
    assert no_process_lives(once())
    gc.collect()
    assert len(os.listdir("/proc/self/fd")) == before


def alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state not in "ZX"


def no_process_lives(pipeline: Pipeline) -> bool:
    return not any(alive(pid) for pid in pipeline.pids.values())


def interrupting(function: Any) -> Any:
    """Ctrl-C comes first."""

    def called(*args: Any, **options: Any) -> Any:
        signal.raise_signal(signal.SIGINT)
        return function(*args, **options)

    return called


def test_an_interrupt_cuts_no_frame_in_two(monkeypatch: pytest.MonkeyPatch) -> None:
    with Pipeline(with_failure("raise", 99), places(3), slots=1) as pipeline:
        for number in range(3):  # more than there are slots in the first queue
            with monkeypatch.context() as patched:
                patched.setattr(of_epoch, "write_put", interrupting(of_epoch.write_put))
                with pytest.raises(KeyboardInterrupt):
                    pipeline.put(frame(number))
        assert pipeline.put_count == 3
        with monkeypatch.context() as patched:
            patched.setattr(of_epoch, "read_times", interrupting(of_epoch.read_times))
            with pytest.raises(KeyboardInterrupt):
                pipeline.get()
        results = list(pipeline.run(frame(n) for n in range(3, 9)))
        assert numbers(results) == list(range(1, 9))
        assert [one.frame for one in results] == list(range(1, 9))


def test_interrupts_leave_nothing_open(monkeypatch: pytest.MonkeyPatch) -> None:
    with Pipeline(with_failure("raise", 99), places(3)) as pipeline:
        list(pipeline.run([frame(0)]))
        gc.collect()
        before = len(os.listdir("/proc/self/fd"))
        for change in (pipeline.prepare, pipeline.redeploy):
            with monkeypatch.context() as patched:
                replies = interrupting(pipeline._monitor.replies)
                patched.setattr(pipeline._monitor, "replies", replies)
                with pytest.raises(KeyboardInterrupt):
                    change(with_failure("raise", 99, stages=2))
            gc.collect()
            assert len(os.listdir("/proc/self/fd")) == before
        assert numbers(list(pipeline.run([frame(5)]))) == [5]


def test_an_interrupted_close_is_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    def once() -> dict[str, int]:
        pipeline = Pipeline(with_failure("raise", 99), places(3))
        pids = dict(pipeline.pids)
        with monkeypatch.context() as patched:
            patched.setattr(pipeline._workers, "close", interrupting(pipeline._workers.close))
            with pytest.raises(KeyboardInterrupt):
                pipeline.close()
        pipeline.close()
        return pids

    once()
    gc.collect()
    before = len(os.listdir("/proc/self/fd"))
    assert not any(alive(pid) for pid in once().values())
    gc.collect()
    assert len(os.listdir("/proc/self/fd")) == before
