"""Stages written in Python: pre- and post-processing, and whatever is no compiled model."""

from __future__ import annotations

from collections.abc import Callable

from tvm_npu.runtime.pipeline.artifact import StageArtifact
from tvm_npu.runtime.pipeline.errors import ArtifactError
from tvm_npu.runtime.pipeline.stage import Tensors, find_function, store


class PythonStage:
    """A function from inputs by name to outputs by name."""

    def __init__(self, artifact: StageArtifact, function: Callable[[Tensors], Tensors]) -> None:
        self._artifact = artifact
        self._function = function

    def run(self, inputs: Tensors, outputs: Tensors) -> None:
        results = self._function(inputs)
        for spec in self._artifact.computed:
            if spec.name not in results:
                raise ArtifactError(
                    f"stage {self._artifact.name!r} did not return {spec.name!r} "
                    f"(it returned {', '.join(results) or 'nothing'})"
                )
            store(self._artifact.name, outputs[spec.name], results[spec.name], spec)


def load(artifact: StageArtifact) -> PythonStage:
    if not isinstance(artifact.code, str):
        raise ArtifactError(f"stage {artifact.name!r} names no function")
    return PythonStage(artifact, find_function(artifact.code)(artifact.options))
