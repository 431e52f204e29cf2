"""Stages as libraries that a fresh process loads; what was compiled once is not compiled again."""

from __future__ import annotations

import os
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tvm_npu.door.protocol import Door, StageLibraries
from tvm_npu.errors import CutError, TargetError
from tvm_npu.pipelines.configuration import Configuration
from tvm_npu.pipelines.cut import CutModel, Stage
from tvm_npu.pipelines.errors import PlatformError
from tvm_npu.pipelines.platform import Platform
from tvm_npu.runtime.pipeline.artifact import StageArtifact
from tvm_npu.sim.limits import DEFAULT, Limits
from tvm_npu.temporary import TemporaryFolder


@dataclass(frozen=True)
class CpuTarget:
    """What a stage is compiled for: a TVM target as text and the threads that it will run with."""

    target: str = "llvm"
    threads: int = 1


def place_targets(door: Door[Any], platform: Platform) -> tuple[CpuTarget, ...]:
    """A target for each place; a place that names no ``mcpu`` gets this machine's own.

    Raises CutError for a simulated platform: nothing can run there; PlatformError for an ``mcpu``
    that LLVM does not know here or this machine cannot run.
    """
    if platform.simulated:
        raise CutError(
            f"platform {platform.name} has simulated places: no stage can be compiled for them"
        )
    targets = []
    for place in platform.places:
        assert place.kind != "simulated"
        try:
            targets.append(CpuTarget(door.cpu_target(place.mcpu), place.thread_count))
        except TargetError as error:
            raise PlatformError(
                f"platform {platform.name}: place {place.name}: {error}"
            ) from error
    return tuple(targets)


def host_target(door: Door[Any]) -> CpuTarget:
    """This machine's own processor, one thread."""
    return CpuTarget(door.cpu_target(""), 1)


class StageCompiler:
    """Compiles stages of one `CutModel`, each (first layer, end, target, threads) once.

    Files lie in ``folder``, which must last as long as the artifacts are used; without one in a
    temporary folder that is removed by `close`. One thread at a time compiles. ``limits`` are the
    artifacts'.
    """

    def __init__(
        self,
        door: Door[Any],
        model: CutModel,
        folder: Path | None = None,
        limits: Limits = DEFAULT,
    ) -> None:
        self.model, self.limits = model, limits
        self._temporary = None if folder else TemporaryFolder("tvm-npu-stages-")
        self.folder = self._temporary.path if self._temporary else Path(folder or "")
        self.folder.mkdir(parents=True, exist_ok=True)
        self.libraries: StageLibraries = door.stage_libraries(self.folder)
        self._artifacts: dict[tuple[int, int, str, int], StageArtifact] = {}
        self._exported: dict[tuple[int, int, str], tuple[Stage, Path]] = {}
        self._lock = threading.Lock()

    def __enter__(self) -> StageCompiler:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Removes the temporary folder, and with it the artifacts' libraries."""
        if self._temporary is not None:
            self._temporary.close()

    def compile(self, first: int, end: int, target: CpuTarget) -> StageArtifact:
        """Layers ``first`` to ``end`` - 1 for a target. CutError for another range."""
        key = (first, end, target.target, target.threads)
        with self._lock:
            if key not in self._artifacts:
                stage, path = self._library(first, end, target.target)
                self._artifacts[key] = StageArtifact(
                    stage.name,
                    self.libraries.loader,
                    stage.inputs,
                    stage.outputs,
                    target.threads,
                    path,
                    limits=self.limits,
                )
            return self._artifacts[key]

    def stages(
        self, configuration: Configuration, targets: tuple[CpuTarget, ...]
    ) -> tuple[StageArtifact, ...]:
        """The stages of a configuration on places that have ``targets``. Raises
        ConfigurationError when it does not fit the chain or names other places."""
        configuration.validate(len(self.model), len(targets))
        return tuple(
            self.compile(first, end, targets[place])
            for (first, end), place in zip(
                configuration.ranges(), configuration.places, strict=True
            )
        )

    def serial(self, target: CpuTarget) -> StageArtifact:
        """The whole model as one stage."""
        return self.compile(0, len(self.model), target)

    def _library(self, first: int, end: int, target: str) -> tuple[Stage, Path]:
        """Threads change nothing in a library: those of one range and target share it."""
        key = (first, end, target)
        if key not in self._exported:
            stage = self.model.stage(first, end)
            path = self.folder / f"stage-{first}-{end}-{len(self._exported)}.so"
            unfinished = path.with_suffix(f".{os.getpid()}.so")
            self.libraries.export(stage, target, unfinished)
            os.replace(unfinished, path)
            self._exported[key] = stage, path
        return self._exported[key]
