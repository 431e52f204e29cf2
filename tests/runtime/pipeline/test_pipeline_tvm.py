"""Compiled TVM libraries as stages: bits, threads that stay on their cores, bad libraries."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("tvm.relay", exc_type=ImportError)

import tvm  # noqa: E402
from tvm import relay  # noqa: E402

from tests.runtime.pipeline.stages import CORES, places  # noqa: E402
from tvm_npu.runtime.pipeline import (  # noqa: E402
    Deployment,
    Pipeline,
    Place,
    TensorSpec,
    tvm_library,
)
from tvm_npu.runtime.pipeline.errors import StageNotLoaded  # noqa: E402
from tvm_npu.tvm_environment import prepare  # noqa: E402

prepare()
pytestmark = pytest.mark.relay
SHAPE = (1, 8, 16, 16)


def convolution(source: str, target: str, folder: Path, skip: bool, seed: int):
    """source -> relu(conv(source)) [+ skip] = target; the library and what it computes."""
    weight = np.random.default_rng(seed).standard_normal((8, 8, 3, 3)).astype("float32")
    x, s = relay.var(source, shape=SHAPE), relay.var("skip", shape=SHAPE)
    body = relay.nn.relu(
        relay.nn.conv2d(x, relay.const(weight), kernel_size=(3, 3), channels=8, padding=(1, 1))
    )
    function = relay.Function([x, s], body + s) if skip else relay.Function([x], body)
    with tvm.transform.PassContext(opt_level=3):
        library = relay.build(tvm.IRModule.from_expr(function), target="llvm")
    path = folder / f"{target}.so"
    library.export_library(str(path))
    return path


@pytest.fixture(scope="module")
def libraries(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("libraries")
    return (
        convolution("x", "h", folder, skip=False, seed=1),
        convolution("h", "y", folder, skip=True, seed=2),
    )


def spec(name: str) -> TensorSpec:
    return TensorSpec(name, SHAPE)


def serial(libraries: tuple[Path, Path], x: np.ndarray, skip: np.ndarray) -> np.ndarray:
    from tvm.contrib import graph_executor

    first, second = (
        graph_executor.GraphModule(tvm.runtime.load_module(str(path))["default"](tvm.cpu()))
        for path in libraries
    )
    first.run(x=x)
    second.run(h=first.get_output(0), skip=skip)
    return second.get_output(0).numpy()


@pytest.mark.parametrize("threads", [1, min(2, len(CORES))])
def test_bits_and_threads(libraries: tuple[Path, Path], threads: int) -> None:
    chosen = [Place("a", CORES[:threads]), Place("b", CORES[-threads:])]
    stages = (
        tvm_library("first", libraries[0], [spec("x"), spec("skip")], [spec("h"), spec("skip")],
                    threads=threads),
        tvm_library("second", libraries[1], [spec("h"), spec("skip")], [spec("y")],
                    threads=threads),
    )  # fmt: skip
    generator = np.random.default_rng(0)
    frames = [
        {name: generator.standard_normal(SHAPE, np.float32) for name in ("x", "skip")}
        for _ in range(5)
    ]
    with Pipeline(Deployment(stages, (0, 1)), chosen) as pipeline:
        results = list(pipeline.run(frames))
        for place in chosen:
            for task in Path(f"/proc/{pipeline.pids[place.name]}/task").iterdir():
                assert os.sched_getaffinity(int(task.name)) <= set(place.cores)
    for frame, result in zip(frames, results, strict=True):
        np.testing.assert_array_equal(result.outputs["y"], serial(libraries, **frame))


def test_libraries_that_do_not_fit(libraries: tuple[Path, Path], tmp_path: Path) -> None:
    first = libraries[0]
    garbage = tmp_path / "garbage.so"
    garbage.write_bytes(b"\x7fELF")
    for artifact, message in (
        (
            tvm_library("s", first, [spec("z")], [spec("h")]),
            "library of stage 's' has no input 'z'",
        ),
        (
            tvm_library("s", first, [spec("x")], [spec("h"), spec("g")]),
            "library of stage 's' returns 1 tensors, its artifact says 2: h, g",
        ),
        (tvm_library("s", tmp_path / "none.so", [spec("x")], [spec("h")]), "there is no library"),
        (tvm_library("s", garbage, [spec("x")], [spec("h")]), "could not be loaded on place 'p0'"),
    ):
        with pytest.raises(StageNotLoaded, match=message):
            Pipeline(Deployment((artifact,), (0,)), places(1))
