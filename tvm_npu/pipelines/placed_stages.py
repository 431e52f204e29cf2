"""Stages of a cut model on the places of a platform."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tvm_npu.calibration import Sample
from tvm_npu.door.protocol import Door
from tvm_npu.pipelines.configuration import Configuration
from tvm_npu.pipelines.cut import CutModel, as_frame
from tvm_npu.pipelines.platform import Platform
from tvm_npu.pipelines.stage_compiler import CpuTarget, StageCompiler, place_targets
from tvm_npu.pipelines.stream import Frame
from tvm_npu.runtime.pipeline import Deployment
from tvm_npu.runtime.pipeline.stage import load_stage
from tvm_npu.sim.limits import DEFAULT, Limits


class PlacedStages:
    """Deployments of one model on the places of one platform, by configuration."""

    def __init__(
        self,
        door: Door[Any],
        model: CutModel,
        platform: Platform,
        folder: Path,
        limits: Limits = DEFAULT,
    ) -> None:
        """Libraries go to ``folder``; ``limits`` bound what each simulated region takes."""
        self.model = model
        self.targets: tuple[CpuTarget, ...] = place_targets(door, platform)
        """By place."""
        self._compiler = StageCompiler(door, model, folder, limits)
        self.deployed = 0
        """Configurations asked for so far."""
        self.compiling = False
        """Whether a thread is in `deploy`."""

    def compile_primitives(self) -> None:
        """Every layer for every kind of place, so that any configuration is a matter of linking."""
        for target in dict.fromkeys(one.target for one in self.targets):
            self._compiler.serial(CpuTarget(target))

    def deploy(self, configuration: Configuration) -> Deployment:
        """Raises ConfigurationError when it fits neither the model nor the places."""
        self.deployed += 1
        self.compiling = True
        try:
            stages = self._compiler.stages(configuration, self.targets)
            return Deployment(stages, configuration.places)
        finally:
            self.compiling = False

    def serial(self, place: int) -> Configuration:
        """The whole model on one place."""
        return Configuration((len(self.model),), (place,))

    def references(self, samples: Sequence[Sample], place: int) -> list[Frame]:
        """What the whole model, compiled for ``place``, makes of each sample, in this process."""
        stage = self._compiler.serial(CpuTarget(self.targets[place].target))
        loaded = load_stage(stage)
        found: list[Frame] = []
        for sample in samples:
            outputs = {spec.name: np.empty(spec.shape, spec.dtype) for spec in stage.outputs}
            inputs = as_frame(self.model.inputs, sample)
            for spec in stage.carried:
                outputs[spec.name] = inputs[spec.name]
            loaded.run(inputs, outputs)
            found.append(outputs)
        return found
