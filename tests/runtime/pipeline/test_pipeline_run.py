"""Frames through running pipelines: order, bounded queues, exchanged stages, statistics, traces."""

from __future__ import annotations

import itertools
import json
import os
import threading
import time

import numpy as np
import pytest

from tests.runtime.pipeline.stages import CORES, frame, make, numbers, places
from tvm_npu.runtime.pipeline import Deployment, Pipeline, Place, TensorSpec
from tvm_npu.runtime.pipeline.errors import (
    ArtifactError,
    FrameError,
    PipelineEmpty,
    PipelineError,
    PipelineFull,
    StageNotLoaded,
)
from tvm_npu.runtime.pipeline.trace import trace_events


def chain(*factors: float, on: tuple[int, ...] | None = None, **options: object) -> Deployment:
    """x -> x * factors, a stage a factor."""
    last = len(factors) - 1
    stages = [
        make("affine", n, last=n == last, factor=factor, **options)
        for n, factor in enumerate(factors)
    ]
    return Deployment(tuple(stages), on or tuple(range(len(factors))))


def test_order_and_values() -> None:
    with Pipeline(chain(2, 3, 5, jitter_seed=1, delay_s=0.0005), places(3)) as pipeline:
        results = list(pipeline.run(frame(n) for n in range(300)))
    assert numbers(results) == [30.0 * n for n in range(300)]
    assert [result.frame for result in results] == list(range(300))
    assert np.array_equal(results[7].outputs["y"], 30 * (np.arange(4.0) + 7))


def test_one_layer_and_more_places_than_stages() -> None:
    with Pipeline(chain(4, on=(2,)), places(5)) as pipeline:
        assert set(pipeline.pids) == {"p2"}
        assert numbers(list(pipeline.run(frame(n) for n in range(5)))) == [0, 4, 8, 12, 16]
        assert list(pipeline.run([])) == []


def test_a_full_queue_holds_back() -> None:
    with Pipeline(chain(1, 1), places(2), slots=2) as pipeline:
        # Two slots in each of three queues; nobody takes a frame without room for its result.
        count = 6
        for n in range(count):
            pipeline.put(frame(n), timeout_s=60)
        with pytest.raises(PipelineFull, match="pipeline is full: 6 frames .*waited 0.5 s"):
            pipeline.put(frame(count), timeout_s=0.5)
        assert pipeline.put_count == count
        assert numbers([pipeline.get() for _ in range(count)]) == list(range(count))
        with pytest.raises(PipelineEmpty, match="no result within 0.05 s; 0 frames"):
            pipeline.get(timeout_s=0.05)
        assert pipeline.put(frame(9)) == count


def test_a_slow_consumer_loses_nothing_and_stops_the_source() -> None:
    taken = []

    def source():
        for n in range(40):
            taken.append(n)
            yield frame(n)

    with Pipeline(chain(1, 1), places(2), slots=1) as pipeline:
        found = []
        for result in pipeline.run(source()):
            time.sleep(0.002)
            found.append(result)
            assert len(taken) - len(found) <= 3 + 1
    assert numbers(found) == list(range(40))


def test_put_and_get_from_two_threads() -> None:
    with Pipeline(chain(1, 2), places(2)) as pipeline:
        thread = threading.Thread(
            target=lambda: [pipeline.put(frame(n)) for n in range(200)], daemon=True
        )
        thread.start()
        found = [pipeline.get(timeout_s=60) for _ in range(200)]
        thread.join()
    assert numbers(found) == [2 * n for n in range(200)]


def test_carried_tensors_arrive_unchanged() -> None:
    skip = TensorSpec("skip", (4,), "float64")
    stages = (
        make("affine", 0, carried=("skip",), factor=2),
        make("affine", 1, carried=("skip",), factor=2),
        make("affine", 2, last=True, carried=("skip",), factor=2),
    )
    with Pipeline(Deployment(stages, (0, 1, 2)), places(3)) as pipeline:
        frames = [{**frame(n), "skip": np.full(4, float(-n))} for n in range(20)]
        results = list(pipeline.run(frames))
    assert skip in stages[-1].outputs
    assert numbers(results) == [8 * n for n in range(20)]
    assert [float(r.outputs["skip"][3]) for r in results] == [float(-n) for n in range(20)]


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        ({}, "the frame has no 'x0'"),
        ({"x0": np.zeros(3)}, r"'x0' is float64\[3\], the pipeline takes float64\[4\]"),
        ({"x0": np.zeros(4, np.float32)}, r"'x0' is float32\[4\]"),
        ({"x0": np.zeros(4), "z": np.zeros(1)}, r"takes no 'z' \(it takes x0\)"),
    ],
)
def test_bad_frames_do_not_go_in(shared: Pipeline, bad: dict, message: str) -> None:
    before = shared.put_count
    with pytest.raises(FrameError, match=message):
        shared.put(bad)
    assert shared.put_count == before
    assert numbers(list(shared.run([frame(5)]))) == [5]


@pytest.fixture(scope="module")
def shared():
    with Pipeline(chain(1, 1), places(2)) as pipeline:
        yield pipeline


def test_stages_run_in_processes_on_their_cores() -> None:
    chosen = [Place("low", CORES[:1]), Place("all", CORES)]
    for place in (0, 1):
        deployment = Deployment((make("where", 0, last=True),), (place,))
        with Pipeline(deployment, chosen) as pipeline:
            (result,) = pipeline.run([frame(0)])
            pid, count, *first = result.outputs["y"]
            assert pid == pipeline.pids[chosen[place].name] != os.getpid()
            assert count == len(chosen[place].cores)
            assert tuple(first[: int(count)]) == chosen[place].cores[:2]


def test_exchanged_stages_lose_and_repeat_nothing() -> None:
    with Pipeline(chain(1, 1, delay_s=0.0005), places(3)) as pipeline:
        plans = [chain(1, 1, on=(1, 0)), chain(1), chain(1, 1, 1, on=(2, 0, 1)), chain(1, 1)]

        def source():
            for n in range(100):
                if n % 20 == 10 and plans:
                    pipeline.redeploy(plans.pop())
                yield frame(n)

        results = list(pipeline.run(source()))
        assert numbers(results) == list(range(100))
        epochs = [result.times.epoch for result in results]
        assert [epochs.index(e) for e in range(5)] == [0, 10, 30, 50, 70]
        assert pipeline.deployment == pipeline.deployments[4]
        assert pipeline.statistics().frames == 30
        assert pipeline.statistics(0).frames == 10


def test_stages_exchanged_while_the_pipeline_is_full() -> None:
    with Pipeline(chain(1, 1), places(2), slots=1) as pipeline:
        for n in range(3):
            pipeline.put(frame(n))
        prepared = pipeline.prepare(chain(10, on=(1,)))
        pipeline.switch(prepared)
        pipeline.put(frame(3))
        assert numbers([pipeline.get() for _ in range(4)]) == [0, 1, 2, 30]
        spare = pipeline.prepare(chain(7))
        pipeline.discard(spare)
        pipeline.redeploy(chain(2))
        pipeline.redeploy(chain(3))  # the one in front runs for no frame at all
        assert numbers(list(pipeline.run([frame(1)]))) == [3]


def test_a_deployment_that_does_not_load_leaves_the_running_one_alone(shared: Pipeline) -> None:
    bad = Deployment((make("affine", 0), make("unloadable", 1, last=True)), (0, 1))
    with pytest.raises(StageNotLoaded) as caught:
        shared.redeploy(bad)
    assert "stage 's1' could not be loaded on place 'p1': OSError: weights are" in str(caught.value)
    assert (caught.value.stage, caught.value.place) == ("s1", "p1")
    other = Deployment((make("affine", 5, last=True),), (0,))
    with pytest.raises(ArtifactError, match=r"new deployment takes x5 .*, the running one x0"):
        shared.redeploy(other)
    assert numbers(list(shared.run([frame(3)]))) == [3]


def test_loading_takes_too_long() -> None:
    deployment = Deployment((make("slow_to_load", 0, last=True, load_s=60),), (0,))
    with pytest.raises(StageNotLoaded, match="'s0' could not be loaded on place 'p0' within 0.5 s"):
        Pipeline(deployment, places(1), load_timeout_s=0.5)


def test_a_place_that_was_not_used_before_joins() -> None:
    with Pipeline(chain(2, on=(0,)), places(2)) as pipeline:
        assert set(pipeline.pids) == {"p0"}
        pipeline.redeploy(chain(3, on=(1,)))
        assert set(pipeline.pids) == {"p0", "p1"}
        assert numbers(list(pipeline.run([frame(1)]))) == [3]


def test_closed() -> None:
    pipeline = Pipeline(chain(1), places(1))
    pipeline.close()
    pipeline.close()
    for action in (lambda: pipeline.put(frame(0)), pipeline.get):
        with pytest.raises(PipelineError, match="the pipeline is closed"):
            action()


def test_statistics_and_trace() -> None:
    seen = []
    with Pipeline(chain(1, 1, 1, delay_s=0.002), places(3)) as pipeline:
        pipeline.observers.append(seen.append)
        list(pipeline.run(frame(n) for n in range(30)))
        found = pipeline.statistics()
        times = pipeline.times()
        events = trace_events(times, pipeline.deployments, pipeline.places)
    assert times == seen
    assert found.frames == 30 and found.throughput > 0
    assert [row.stage for row in found.stages] == ["s0", "s1", "s2"]
    assert [row.place for row in found.stages] == ["p0", "p1", "p2"]
    for row in found.stages:
        assert 0 < row.cpu_s < row.busy_s and 0 < row.utilization <= 1
        assert row.fill >= 0 and row.input_wait_s >= 0 and row.output_wait_s >= 0
    assert list(found.latency_s) == [50, 90, 99, 100]
    assert list(found.latency_s.values()) == sorted(found.latency_s.values())
    assert max(one.latency_s for one in times) == pytest.approx(found.latency_s[100])
    for one in times:
        moments = [one.put_ns]
        for stage in one.stages:
            assert stage.wait_ns <= stage.input_ns <= stage.begin_ns <= stage.end_ns
            moments += [stage.input_ns, stage.end_ns]
        assert [*moments, one.out_ns] == sorted([*moments, one.out_ns])

    work = [event for event in events if event["ph"] == "X" and event["tid"] == 0]
    assert len(work) == 90
    for place in range(3):
        spans = [(e["ts"], e["ts"] + e["dur"]) for e in work if e["pid"] == place]
        assert all(a[1] <= b[0] + 1e-3 for a, b in itertools.pairwise(spans))
    assert json.loads(json.dumps(events)) == events
    names = {event["args"]["name"] for event in events if event["ph"] == "M"}
    assert {"place p0", "place p2", "computes", "waits"} == names - {"place p1"}
