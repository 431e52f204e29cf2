"""Stages of Relay primitives as libraries for the graph executor."""

from __future__ import annotations

from pathlib import Path

import tvm
from tvm import relay
from tvm.relay.backend.executor_factory import GraphExecutorFactoryModule

from tvm_npu.pipelines.cut import Stage
from tvm_npu.relay.stage_modules import stage_module
from tvm_npu.relay.stage_primitives import PrimitiveCache, lowering_only, with_marked_calls
from tvm_npu.runtime.pipeline.artifact import TVM_LIBRARY


class RelayStageLibraries:
    """See `tvm_npu.door.protocol.StageLibraries`."""

    loader = TVM_LIBRARY

    def __init__(self, folder: Path) -> None:
        self._primitives = PrimitiveCache(folder)

    @property
    def compiled(self) -> int:
        return self._primitives.compiled

    def export(self, stage: Stage, target: str, path: Path) -> None:
        build_stage(stage, tvm.target.Target(target), self._primitives).export_library(str(path))


def build_stage(
    stage: Stage, target: tvm.target.Target, primitives: PrimitiveCache
) -> GraphExecutorFactoryModule:
    """``relay.build`` of a stage, its fused functions from ``primitives``; for `export_library`."""
    plain, params = stage_module(stage)
    main = with_marked_calls(plain["main"], primitives, target)
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
        params,
        built.function_metadata,
    )
