"""Pipelines: stages as processes, each pinned to a cluster's cores; frames go through in order."""

from __future__ import annotations

from tvm_npu.runtime.pipeline.artifact import (
    StageArtifact,
    TensorSpec,
    npu_program,
    python_function,
    tvm_library,
)
from tvm_npu.runtime.pipeline.epoch import Deployment
from tvm_npu.runtime.pipeline.frame import Result
from tvm_npu.runtime.pipeline.pipeline import Pipeline
from tvm_npu.runtime.pipeline.place import Place

__all__ = [
    "Deployment",
    "Pipeline",
    "Place",
    "Result",
    "StageArtifact",
    "TensorSpec",
    "npu_program",
    "python_function",
    "tvm_library",
]
