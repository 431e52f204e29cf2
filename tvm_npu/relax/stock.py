"""Stock TVM, to compare with: its own ONNX frontend and pipelines, of the project only
the processor's name."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import tvm
from tvm.relax.frontend import onnx as frontend

from tvm_npu.processors import host_processor


def host_target(threads: int) -> Any:
    """The target for this machine's processor."""
    return tvm.target.Target({"kind": "llvm", "mcpu": host_processor(), "num-cores": threads})


def read_stock(model: Any, shapes: Mapping[str, tuple[int, ...]]) -> tvm.IRModule:
    """An onnx.ModelProto as TVM's own frontend reads it."""
    return frontend.from_onnx(
        model, shape_dict={name: list(extents) for name, extents in shapes.items()}
    )


def build_stock(
    model: Any, shapes: Mapping[str, tuple[int, ...]], target: Any, tuning_log: Path | None = None
) -> Any:
    """The library of an onnx.ModelProto, with the best schedules of the folder ``tuning_log``.
    Raises whatever TVM raises."""
    mod = read_stock(model, shapes)
    if tuning_log is None:
        return tvm.compile(mod, target=target)
    from tvm.s_tir import meta_schedule as ms

    database = ms.database.JSONDatabase(work_dir=str(tuning_log))
    return ms.relax_integration.compile_relax(database, mod, target, None)
