"""A program file as a stage: its simulator runs in the stage's process."""

from __future__ import annotations

import numpy as np

from tvm_npu.runtime.pipeline.artifact import StageArtifact
from tvm_npu.runtime.pipeline.errors import ArtifactError
from tvm_npu.runtime.pipeline.stage import Tensors, store
from tvm_npu.runtime.session import Session


class NpuStage:
    """Float inputs and outputs, batch in front, by the names of the program's slots."""

    def __init__(self, artifact: StageArtifact, session: Session) -> None:
        program = session.program
        self._artifact = artifact
        self._session = session
        self._inputs = [slot.name for slot in program.inputs]
        self._outputs = [slot.name for slot in program.outputs]
        for kind, wanted, found in (
            ("inputs", set(self._inputs), {spec.name for spec in artifact.inputs}),
            ("outputs", set(self._outputs), {spec.name for spec in artifact.computed}),
        ):
            if wanted != found:
                raise ArtifactError(
                    f"stage {artifact.name!r} has {kind} {', '.join(sorted(found))}; program "
                    f"{program.name!r} has {', '.join(sorted(wanted))}"
                )

    def run(self, inputs: Tensors, outputs: Tensors) -> None:
        results = self._session.run([inputs[name] for name in self._inputs])
        by_name = dict(zip(self._outputs, results, strict=True))
        for spec in self._artifact.computed:
            store(self._artifact.name, outputs[spec.name], by_name[spec.name], spec)


def load(artifact: StageArtifact) -> NpuStage:
    """Runs one frame of zeros: the first run of a simulator compiles it."""
    if artifact.path is None:
        raise ArtifactError(f"stage {artifact.name!r} names no program file")
    timing = artifact.options.get("timing", "on") == "on"
    session = Session.from_file(artifact.path, timing=timing, limits=artifact.limits)
    stage = NpuStage(artifact, session)
    stage.run(*zeros(artifact))
    return stage


def zeros(artifact: StageArtifact) -> tuple[Tensors, Tensors]:
    """Inputs and outputs for a run that only warms up."""
    inputs, outputs = (
        {spec.name: np.zeros(spec.shape, spec.dtype) for spec in specs}
        for specs in (artifact.inputs, artifact.computed)
    )
    return inputs, outputs
