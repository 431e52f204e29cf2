"""Artifacts, deployments and places that contradict themselves: what the messages say."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from tests.runtime.pipeline.stages import CORES, make, places
from tvm_npu.runtime.pipeline import Deployment, Pipeline, Place, TensorSpec, tvm_library
from tvm_npu.runtime.pipeline.artifact import StageArtifact
from tvm_npu.runtime.pipeline.errors import ArtifactError, PipelineError, PlaceError
from tvm_npu.runtime.pipeline.place import ranges

X, Y = TensorSpec("x", (1, 3), "float32"), TensorSpec("y", (1, 3), "float32")


def test_carried_and_computed_outputs() -> None:
    skip = TensorSpec("skip", (2, 2), "int16")
    stage = tvm_library("a", Path("a.so"), [X, skip], [skip, Y])
    assert stage.carried == (skip,) and stage.computed == (Y,)
    assert skip.size_bytes == 8 and stage.input("x") is X
    assert pickle.loads(pickle.dumps(stage)) == stage


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"threads": 0}, "stage 'a' has 0 threads; it needs >= 1"),
        ({"loader": "load"}, "loader 'load', which is not package.module:name"),
        ({"inputs": ()}, "stage 'a' has no input"),
        ({"outputs": (Y, Y)}, "stage 'a' has two outputs called 'y'"),
        (
            {"outputs": (TensorSpec("x", (3,)),)},
            r"stage 'a' takes 'x' as float32\[1, 3\], and returns it as float32\[3\]",
        ),
    ],
)
def test_bad_artifacts(change: dict, message: str) -> None:
    values = {"name": "a", "loader": "m:f", "inputs": (X,), "outputs": (Y,), **change}
    with pytest.raises(ArtifactError, match=message):
        StageArtifact(**values)


@pytest.mark.parametrize(
    ("shape", "dtype", "message"),
    [
        ((1, 0), "float32", "sizes are >= 1"),
        ((1,), "float33", "unknown type 'float33'"),
        ((1,), "object", "no fixed size"),
    ],
)
def test_bad_tensors(shape: tuple[int, ...], dtype: str, message: str) -> None:
    with pytest.raises(ArtifactError, match=message):
        TensorSpec("x", shape, dtype)


def test_stages_that_do_not_fit_together() -> None:
    with pytest.raises(ArtifactError, match=r"'s2' takes 'x2', which stage 's0' does not return"):
        Deployment((make("affine", 0), make("affine", 2)), (0, 1))
    with pytest.raises(ArtifactError, match="at least one stage"):
        Deployment((), ())
    before = tvm_library("a", Path("a.so"), [X], [Y])
    after = tvm_library("b", Path("b.so"), [TensorSpec("y", (1, 3), "int8")], [X])
    with pytest.raises(ArtifactError, match=r"takes 'y' as int8\[1, 3\], stage 'a' returns it as"):
        Deployment((before, after), (0, 1))


def test_stages_and_places() -> None:
    stage = make("affine", 0, last=True)
    with pytest.raises(PlaceError, match="1 stages, but 2 places"):
        Deployment((stage,), (0, 1))
    with pytest.raises(PlaceError, match="two stages on one place"):
        Deployment((make("affine", 0), make("affine", 1)), (0, 0))
    with pytest.raises(PlaceError, match="stage 's0' is for place 1; there are 1 places"):
        Pipeline(Deployment((stage,), (1,)), places(1))
    wide = tvm_library("wide", Path("a.so"), [X], [Y], threads=2)
    with pytest.raises(PlaceError, match="'wide' has 2 threads, place 'p0' has 1 cores"):
        Pipeline(Deployment((wide,), (0,)), places(1))


def test_cores_that_do_not_exist() -> None:
    one = Deployment((make("affine", 0, last=True),), (0,))
    with pytest.raises(PlaceError, match=r"place 'big' names core 4000, .* usable: ") as caught:
        Pipeline(one, [Place("big", (CORES[0], 4000))])
    assert ranges(CORES) in str(caught.value)
    with pytest.raises(PlaceError, match="two places are called 'a'"):
        Pipeline(one, [Place("a", CORES[:1]), Place("a", CORES[-1:])])
    with pytest.raises(PlaceError, match="at least one place"):
        Pipeline(one, [])
    with pytest.raises(PlaceError, match="has no cores"):
        Place("a", ())
    with pytest.raises(PlaceError, match="names a core twice"):
        Place("a", (0, 0))
    with pytest.raises(PlaceError, match="duty cycle 0; it lies between"):
        Place("a", (0,), duty=0)


def test_bad_limits() -> None:
    one = Deployment((make("affine", 0, last=True),), (0,))
    with pytest.raises(PipelineError, match="1 to 1024 slots, not 0"):
        Pipeline(one, places(1), slots=0)
    with pytest.raises(PipelineError, match="timeout is above 0 s, not -1"):
        Pipeline(one, places(1), timeout_s=-1)


def test_ranges() -> None:
    assert ranges([6, 0, 1, 2]) == "0-2, 6"
    assert ranges([]) == "none"
