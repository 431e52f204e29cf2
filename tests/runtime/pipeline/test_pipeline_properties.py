"""Whatever the delays, the queues and the exchanges of stages: every frame once, in order."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.examples import examples
from tests.runtime.pipeline.stages import frame, make, numbers, places
from tvm_npu.runtime.pipeline import Deployment, Pipeline
from tvm_npu.runtime.pipeline.errors import PipelineEmpty, PipelineFull

PLACES = 3


@st.composite
def deployments(draw: st.DrawFn) -> tuple[Deployment, float]:
    """Up to three stages with random delays, and by what they multiply together."""
    chosen = draw(st.permutations(range(PLACES)))[: draw(st.integers(1, PLACES))]
    factors = [draw(st.sampled_from([1.0, 2.0, -1.0])) for _ in chosen]
    stages = [
        make(
            "affine", n, last=n == len(chosen) - 1, factor=factor,
            delay_s=draw(st.sampled_from([0, 0.0005, 0.002])),
            jitter_seed=draw(st.integers(0, 99)),
        )
        for n, factor in enumerate(factors)
    ]  # fmt: skip
    product = 1.0
    for factor in factors:
        product *= factor
    return Deployment(tuple(stages), tuple(chosen)), product


# Numbers are put in, None takes a result out.
ACTIONS = st.lists(
    st.one_of(st.integers(0, 999), st.integers(0, 999), st.none(), st.none(), deployments()),
    max_size=60,
)


@pytest.fixture(scope="module", params=[1, 3])
def pipeline(request: pytest.FixtureRequest) -> Iterator[Pipeline]:
    start = Deployment((make("affine", 0, last=True),), (0,))
    with Pipeline(start, places(PLACES), slots=request.param, timeout_s=60) as running:
        yield running


@settings(
    max_examples=examples(25), suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(actions=ACTIONS)
def test_every_frame_once_and_in_order(pipeline: Pipeline, actions: list) -> None:
    """Random puts, gets and exchanges; what is on its way at the end is then taken out."""
    pipeline.redeploy(Deployment((make("affine", 0, last=True),), (0,)))
    factor, first = 1.0, pipeline.put_count
    expected: list[float] = []
    results = []
    for action in actions:
        if isinstance(action, int):
            try:
                pipeline.put(frame(action), timeout_s=0.002)
                expected.append(factor * action)
            except PipelineFull:
                pass
        elif action is None:
            try:
                results.append(pipeline.get(timeout_s=0.002))
            except PipelineEmpty:
                pass
        else:
            deployment, factor = action
            pipeline.redeploy(deployment)
    while len(results) < len(expected):
        results.append(pipeline.get(timeout_s=60))
    assert numbers(results) == expected
    assert [result.frame for result in results] == list(range(first, first + len(expected)))
    assert pipeline.put_count == pipeline.out_count
    with pytest.raises(PipelineEmpty):
        pipeline.get(timeout_s=0)
