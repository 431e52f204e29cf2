"""A stage that a fresh process can load and run: the hand-over from compilers to the pipeline.

An artifact is small and picklable: what is large (a library with its weights) stays in a file,
which must exist for as long as a pipeline may load it. Tensors go from one stage to the next **by
name**: every input of a stage is an output of the stage in front of it, of the same shape and
type. A tensor that a stage only carries along (a skip connection that begins before and ends
behind it) is listed in its inputs and in its outputs under one name; the pipeline copies it, the
library neither takes nor returns it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from tvm_npu.runtime.pipeline.errors import ArtifactError
from tvm_npu.sim.limits import DEFAULT, Limits

TVM_LIBRARY = "tvm_npu.runtime.pipeline.tvm_stage:load"
RELAX_LIBRARY = "tvm_npu.runtime.pipeline.relax_stage:load"
NPU_PROGRAM = "tvm_npu.runtime.pipeline.npu_stage:load"
PYTHON_FUNCTION = "tvm_npu.runtime.pipeline.python_stage:load"


@dataclass(frozen=True)
class TensorSpec:
    """A tensor that crosses a cut. ``dtype`` is NumPy's name of it; the shape is that of one
    frame as the stage takes it, its batch dimension included."""

    name: str
    shape: tuple[int, ...]
    dtype: str = "float32"

    def __post_init__(self) -> None:
        if any(size < 1 for size in self.shape):
            raise ArtifactError(f"tensor {self.name!r} has shape {self.shape}: sizes are >= 1")
        try:
            element = np.dtype(self.dtype)
        except TypeError:
            raise ArtifactError(f"tensor {self.name!r} has unknown type {self.dtype!r}") from None
        if element.hasobject or element.itemsize == 0:
            raise ArtifactError(f"tensor {self.name!r}: {self.dtype!r} has no fixed size in bytes")

    @property
    def size_bytes(self) -> int:
        return math.prod(self.shape) * np.dtype(self.dtype).itemsize


@dataclass(frozen=True)
class StageArtifact:
    """What to load, and what goes in and out.

    ``loader`` names a function as ``package.module:function``; a stage's process imports it and
    calls it with the artifact, and gets a `stage.LoadedStage`. ``path`` is the file or ``code``
    the text or bytes that the loader reads; ``threads`` is how many the stage computes with;
    ``options`` are for the loader; ``limits`` bound what each simulator in the stage takes. Order
    of ``inputs`` and ``outputs`` is free.
    """

    name: str
    loader: str
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    threads: int = 1
    path: Path | None = None
    code: bytes | str | None = None
    options: Mapping[str, str] = field(default_factory=dict)
    limits: Limits = DEFAULT

    def __post_init__(self) -> None:
        if self.threads < 1:
            raise ArtifactError(f"stage {self.name!r} has {self.threads} threads; it needs >= 1")
        if not all(self.loader.partition(":")):
            raise ArtifactError(
                f"stage {self.name!r} has loader {self.loader!r}, which is not package.module:name"
            )
        for kind, tensors in (("input", self.inputs), ("output", self.outputs)):
            if not tensors:
                raise ArtifactError(f"stage {self.name!r} has no {kind}")
            names = [tensor.name for tensor in tensors]
            twice = sorted({name for name in names if names.count(name) > 1})
            if twice:
                raise ArtifactError(f"stage {self.name!r} has two {kind}s called {twice[0]!r}")
        for tensor in self.carried:
            check_same(self.name, "takes", self.input(tensor.name), "and returns", tensor)

    @property
    def carried(self) -> tuple[TensorSpec, ...]:
        """Outputs that are inputs, handed on as they are."""
        names = {tensor.name for tensor in self.inputs}
        return tuple(tensor for tensor in self.outputs if tensor.name in names)

    @property
    def computed(self) -> tuple[TensorSpec, ...]:
        """Outputs that the loaded stage returns, in the order in which it returns them."""
        names = {tensor.name for tensor in self.inputs}
        return tuple(tensor for tensor in self.outputs if tensor.name not in names)

    def input(self, name: str) -> TensorSpec:
        for tensor in self.inputs:
            if tensor.name == name:
                return tensor
        raise ArtifactError(f"stage {self.name!r} has no input {name!r}")


def tvm_library(
    name: str,
    path: Path,
    inputs: Sequence[TensorSpec],
    outputs: Sequence[TensorSpec],
    *,
    threads: int = 1,
    limits: Limits = DEFAULT,
) -> StageArtifact:
    """A library that ``relay.build(...)`` made for the graph executor and ``export_library``
    wrote (regions on an NPU included): inputs by the names of its parameters; outputs that are
    not carried in the order of its results."""
    return StageArtifact(
        name, TVM_LIBRARY, tuple(inputs), tuple(outputs), threads, Path(path), limits=limits
    )


def npu_program(
    name: str,
    path: Path,
    inputs: Sequence[TensorSpec],
    outputs: Sequence[TensorSpec],
    *,
    limits: Limits = DEFAULT,
) -> StageArtifact:
    """A program file, run by its simulator alone: inputs and outputs (float32, batch in front) by
    the names of its slots."""
    return StageArtifact(
        name, NPU_PROGRAM, tuple(inputs), tuple(outputs), 1, Path(path), limits=limits
    )


def python_function(
    name: str,
    function: str,
    inputs: Sequence[TensorSpec],
    outputs: Sequence[TensorSpec],
    options: Mapping[str, str] | None = None,
    *,
    threads: int = 1,
) -> StageArtifact:
    """A factory named ``package.module:function``: called once with ``options`` it returns a
    function from input arrays (by name) to the outputs that are not carried (by name).
    A module that is not installed can be given as ``/path/to/file.py:function``."""
    return StageArtifact(
        name, PYTHON_FUNCTION, tuple(inputs), tuple(outputs), threads, None, function,
        dict(options or {}),
    )  # fmt: skip


def check_chain(stages: Sequence[StageArtifact]) -> None:
    """ArtifactError unless every stage finds its inputs among the outputs of the one before."""
    if not stages:
        raise ArtifactError("a pipeline needs at least one stage")
    for before, after in zip(stages, stages[1:], strict=False):
        outputs = {tensor.name: tensor for tensor in before.outputs}
        for tensor in after.inputs:
            if tensor.name not in outputs:
                raise ArtifactError(
                    f"stage {after.name!r} takes {tensor.name!r}, which stage {before.name!r} "
                    f"does not return (it returns {', '.join(outputs)})"
                )
            check_same(after.name, "takes", tensor, f"stage {before.name!r} returns",
                       outputs[tensor.name])  # fmt: skip


def check_same(stage: str, takes: str, wanted: TensorSpec, returns: str, found: TensorSpec) -> None:
    """ArtifactError that shows both when they differ in shape or type."""
    if (wanted.shape, np.dtype(wanted.dtype)) != (found.shape, np.dtype(found.dtype)):
        raise ArtifactError(
            f"stage {stage!r} {takes} {wanted.name!r} as {wanted.dtype}{list(wanted.shape)}, "
            f"{returns} it as {found.dtype}{list(found.shape)}"
        )
