"""A compiled TVM library as a stage, regions on an NPU included."""

from __future__ import annotations

import os
import threading
from typing import Any

import numpy as np

from tvm_npu.runtime.lean_tvm import import_tvm
from tvm_npu.runtime.pipeline.artifact import StageArtifact
from tvm_npu.runtime.pipeline.errors import ArtifactError
from tvm_npu.runtime.pipeline.npu_stage import zeros
from tvm_npu.runtime.pipeline.stage import Tensors, store

SHARE_CORES = -3
"""TVM's thread pool mode in which all threads share the listed cores."""


class TvmStage:
    """A graph executor. TVM's thread pools belong to threads: it is set up by the first run in
    each thread, for the process's cores only."""

    def __init__(self, artifact: StageArtifact, executor: Any) -> None:
        self._artifact = artifact
        self._executor = executor
        carried = {spec.name for spec in artifact.carried}
        self._taken = [
            spec.name
            for spec in artifact.inputs
            if spec.name not in carried or executor.get_input_index(spec.name) >= 0
        ]
        for name in self._taken:
            if executor.get_input_index(name) < 0:
                raise ArtifactError(f"library of stage {artifact.name!r} has no input {name!r}")
        found = executor.get_num_outputs()
        if found != len(artifact.computed):
            raise ArtifactError(
                f"library of stage {artifact.name!r} returns {found} tensors, its artifact says "
                f"{len(artifact.computed)}: {', '.join(s.name for s in artifact.computed)}"
            )
        self._pools = threading.local()

    def run(self, inputs: Tensors, outputs: Tensors) -> None:
        if not getattr(self._pools, "ready", False):
            use_threads(self._artifact.threads)
            self._pools.ready = True
        for name in self._taken:
            self._executor.set_input(name, inputs[name])
        self._executor.run()
        for index, spec in enumerate(self._artifact.computed):
            result = np.from_dlpack(self._executor.get_output(index))
            store(self._artifact.name, outputs[spec.name], result, spec)


def load(artifact: StageArtifact) -> TvmStage:
    """Runs one frame of zeros: memory is touched, a simulator inside is compiled."""
    if artifact.path is None or not artifact.path.is_file():
        raise ArtifactError(f"stage {artifact.name!r}: there is no library {str(artifact.path)!r}")
    tvm = import_tvm()
    from tvm.contrib import graph_executor

    library = tvm.runtime.load_module(str(artifact.path))
    stage = TvmStage(artifact, graph_executor.GraphModule(library["default"](tvm.cpu())))
    stage.run(*zeros(artifact))
    return stage


def use_threads(count: int) -> None:
    """TVM's pool of the calling thread: ``count`` threads on the cores this process may use."""
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) == 1 and os.environ.get("TVM_NUM_THREADS") == "1":
        return  # TVM starts no pool at all
    import tvm

    configure = tvm.get_global_func("runtime.config_threadpool")
    configure(SHARE_CORES, count, [str(core) for core in cores])
