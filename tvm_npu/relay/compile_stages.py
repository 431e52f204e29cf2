"""Stages as libraries that a fresh process loads; what was compiled once is not compiled again."""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tvm
from tvm import relay
from tvm.relay.backend.executor_factory import GraphExecutorFactoryModule
from tvm.target.x86 import get_simd_32bit_lanes

from tvm_npu.errors import CutError
from tvm_npu.pipelines.configuration import Configuration
from tvm_npu.pipelines.platform import Platform
from tvm_npu.relay.cut import CutModel, cut_model
from tvm_npu.relay.stage_modules import StageModule
from tvm_npu.relay.stage_primitives import PrimitiveCache, lowering_only, with_marked_calls
from tvm_npu.runtime.pipeline.artifact import StageArtifact, tvm_library
from tvm_npu.temporary import TemporaryFolder


@dataclass(frozen=True)
class CpuTarget:
    """What a stage is compiled for: a TVM target and the threads that it will run with."""

    target: str = "llvm"
    threads: int = 1


def place_targets(platform: Platform) -> tuple[CpuTarget, ...]:
    """A target for each place; a place that names no ``mcpu`` gets this machine's own.

    Raises CutError for a simulated platform: nothing can run there.
    """
    if platform.simulated:
        raise CutError(
            f"platform {platform.name} has simulated places: no stage can be compiled for them"
        )
    return tuple(
        CpuTarget(f"llvm -mcpu={place.mcpu or host_mcpu()}", place.thread_count)
        for place in platform.places
        if place.kind != "simulated"
    )


def host_mcpu() -> str:
    """LLVM's name of this machine's processor."""
    return str(tvm.get_global_func("target.llvm_get_system_cpu")())


def common_target(targets: tuple[CpuTarget, ...]) -> str:
    """The target to optimise the graph for, whose blocked layouts all stages share: the one with
    the narrowest vectors, which every place can fill; of equals the first."""

    def lanes(target: str) -> int:
        with tvm.target.Target(target):
            return int(get_simd_32bit_lanes())

    return min((one.target for one in targets), key=lanes)


class StageCompiler:
    """Compiles stages of one `CutModel`, each (first layer, end, target, threads) once.

    Files lie in ``folder``, which must last as long as the artifacts are used; without one in a
    temporary folder that is removed by `close`. One thread at a time compiles.
    """

    def __init__(self, model: CutModel, folder: Path | None = None) -> None:
        self.model = model
        self._temporary = None if folder else TemporaryFolder("tvm-npu-stages-")
        self.folder = self._temporary.path if self._temporary else Path(folder or "")
        self.folder.mkdir(parents=True, exist_ok=True)
        self.primitives = PrimitiveCache(self.folder)
        self._artifacts: dict[tuple[int, int, str, int], StageArtifact] = {}
        self._libraries: dict[tuple[int, int, str], tuple[StageModule, Path]] = {}
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
                self._artifacts[key] = tvm_library(
                    stage.name, path, stage.inputs, stage.outputs, threads=target.threads
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

    def _library(self, first: int, end: int, target: str) -> tuple[StageModule, Path]:
        """Threads change nothing in a library: those of one range and target share it."""
        key = (first, end, target)
        if key not in self._libraries:
            stage = self.model.stage(first, end)
            library = build_stage(stage, tvm.target.Target(target), self.primitives)
            path = self.folder / f"stage-{first}-{end}-{len(self._libraries)}.so"
            unfinished = path.with_suffix(f".{os.getpid()}.so")
            library.export_library(str(unfinished))
            os.replace(unfinished, path)
            self._libraries[key] = stage, path
        return self._libraries[key]


def build_stage(
    stage: StageModule, target: tvm.target.Target, primitives: PrimitiveCache
) -> GraphExecutorFactoryModule:
    """``relay.build`` of a stage, its fused functions from ``primitives``; for `export_library`."""
    main = with_marked_calls(stage.mod["main"], primitives, target)
    mod = relay.transform.InferType()(tvm.IRModule({relay.GlobalVar("main"): main}))
    with lowering_only():
        built = relay.build(mod, target=target)
    # Parameters join here: through relay.build, which sees external functions, they would be kept
    # a second time for those.
    return GraphExecutorFactoryModule(
        mod,
        built.target,
        built.executor,
        built.get_graph_json(),
        built.get_lib(),
        built.libmod_name,
        dict(stage.params),
        built.function_metadata,
    )


def compile_stages(
    mod: tvm.IRModule,
    params: Mapping[str, Any] | None,
    configuration: Configuration,
    platform: Platform,
    folder: Path,
) -> tuple[StageArtifact, ...]:
    """A module cut as ``configuration`` says and compiled for its places of ``platform``, into
    ``folder``. For more than one configuration of a model use a `StageCompiler`.

    Raises CutError, and ConfigurationError for a configuration that fits neither.
    """
    targets = place_targets(platform)
    platform.check_places(configuration)
    model = cut_model(mod, params, target=common_target(targets))
    return StageCompiler(model, folder).stages(configuration, targets)
