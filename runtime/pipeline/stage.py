"""What a stage's process computes with: the protocol of loaded stages, and finding their loader."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from tvm_npu.runtime.pipeline.artifact import StageArtifact, TensorSpec
from tvm_npu.runtime.pipeline.errors import ArtifactError

Tensors = Mapping[str, NDArray[Any]]


class LoadedStage(Protocol):
    """One frame at a time. A stage is loaded in one thread and runs in another one."""

    def run(self, inputs: Tensors, outputs: Tensors) -> None:
        """Computes ``outputs`` (views of shared memory, to be filled in place) from ``inputs``
        (read-only views). Neither may be kept beyond the call."""


class Loader(Protocol):
    def __call__(self, artifact: StageArtifact) -> LoadedStage: ...


def load_stage(artifact: StageArtifact) -> LoadedStage:
    """Raises ArtifactError for an unknown loader, and whatever the loader raises."""
    loader: Loader = find_function(artifact.loader)
    return loader(artifact)


def find_function(name: str) -> Any:
    """``package.module:function`` or ``/path/to/file.py:function``."""
    module_name, _, attribute = name.rpartition(":")
    try:
        if module_name.endswith(".py"):
            module = _module_of_file(Path(module_name))
        else:
            module = importlib.import_module(module_name)
        return getattr(module, attribute)
    except (ImportError, AttributeError, OSError) as error:
        raise ArtifactError(f"cannot find function {name!r}: {error}") from error


def _module_of_file(path: Path) -> Any:
    name = f"_stage_file_{abs(hash(str(path)))}"
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, path)
        if spec is None or spec.loader is None:
            raise ArtifactError(f"{str(path)!r} is not a Python file")
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        sys.modules[name] = module
    return sys.modules[name]


def store(stage: str, target: NDArray[Any], values: NDArray[Any], spec: TensorSpec) -> None:
    """Copies a result into its slot; ArtifactError when it is not what the artifact says."""
    found = np.asarray(values)
    if found.shape != spec.shape or found.dtype != np.dtype(spec.dtype):
        raise ArtifactError(
            f"stage {stage!r} returned {spec.name!r} as {found.dtype}{list(found.shape)}, its "
            f"artifact says {spec.dtype}{list(spec.shape)}"
        )
    np.copyto(target, found)
