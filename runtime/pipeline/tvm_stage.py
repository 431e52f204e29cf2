"""A compiled TVM library as a stage, regions on an NPU included."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable, Sequence
from typing import Any, Protocol

import numpy as np

from tvm_npu.runtime.lean_tvm import import_tvm
from tvm_npu.runtime.packed import limited
from tvm_npu.runtime.pipeline.artifact import StageArtifact
from tvm_npu.runtime.pipeline.errors import ArtifactError
from tvm_npu.runtime.pipeline.npu_stage import zeros
from tvm_npu.runtime.pipeline.stage import Tensors, store

SHARE_CORES = -3
"""TVM's thread pool mode in which all threads share the listed cores."""


class Executor(Protocol):
    """A loaded library."""

    @property
    def inputs(self) -> Sequence[str]:
        """Names of what it reads."""
        ...

    def run(self, inputs: Tensors) -> Sequence[Any]:
        """TVM's tensors, for all that the stage takes."""
        ...


class GraphExecutor:
    """The graph executor of a library that ``relay.build`` made."""

    def __init__(self, executor: Any, names: Iterable[str]) -> None:
        self._executor = executor
        self.inputs = tuple(name for name in names if executor.get_input_index(name) >= 0)

    def run(self, inputs: Tensors) -> Sequence[Any]:
        for name in self.inputs:
            self._executor.set_input(name, inputs[name])
        self._executor.run()
        return [self._executor.get_output(n) for n in range(self._executor.get_num_outputs())]


class TvmStage:
    """TVM's thread pools belong to threads: one is set up by the first run in each thread, for the
    process's cores only."""

    def __init__(self, artifact: StageArtifact, executor: Executor) -> None:
        self._artifact = artifact
        self._executor = executor
        carried = {spec.name for spec in artifact.carried}
        for spec in artifact.inputs:
            if spec.name not in carried and spec.name not in executor.inputs:
                raise ArtifactError(
                    f"library of stage {artifact.name!r} has no input {spec.name!r}"
                )
        self._pools = threading.local()

    @classmethod
    def ready(cls, artifact: StageArtifact, executor: Executor) -> TvmStage:
        """Runs one frame of zeros: memory is touched, a simulator inside is compiled."""
        stage = cls(artifact, executor)
        stage.run(*zeros(artifact))
        return stage

    def run(self, inputs: Tensors, outputs: Tensors) -> None:
        if not getattr(self._pools, "ready", False):
            use_threads(self._artifact.threads)
            self._pools.ready = True
        with limited(self._artifact.limits):
            results = self._executor.run(inputs)
        computed = self._artifact.computed
        if len(results) != len(computed):
            raise ArtifactError(
                f"library of stage {self._artifact.name!r} returns {len(results)} tensors, its "
                f"artifact says {len(computed)}: {', '.join(spec.name for spec in computed)}"
            )
        for result, spec in zip(results, computed, strict=True):
            store(self._artifact.name, outputs[spec.name], np.from_dlpack(result), spec)


def load(artifact: StageArtifact) -> TvmStage:
    """A library for the graph executor."""
    library = library_of(artifact)
    import tvm
    from tvm.contrib import graph_executor

    executor = graph_executor.GraphModule(library["default"](tvm.cpu()))
    return TvmStage.ready(
        artifact, GraphExecutor(executor, (spec.name for spec in artifact.inputs))
    )


def library_of(artifact: StageArtifact) -> Any:
    """TVM's module, from the file. ArtifactError without one."""
    if artifact.path is None or not artifact.path.is_file():
        raise ArtifactError(f"stage {artifact.name!r}: there is no library {str(artifact.path)!r}")
    return import_tvm().runtime.load_module(str(artifact.path))


def use_threads(count: int) -> None:
    """TVM's pool of the calling thread: ``count`` threads on the cores this process may use."""
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) == 1 and os.environ.get("TVM_NUM_THREADS") == "1":
        return  # TVM starts no pool at all
    import tvm

    configure = tvm.get_global_func("runtime.config_threadpool")
    configure(SHARE_CORES, count, [str(core) for core in cores])
