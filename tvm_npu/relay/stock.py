"""Stock TVM, to compare with: its own ONNX frontend, build and executor, of the project only
the processor's name."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import tvm
from tvm import autotvm, relay

from tvm_npu.targets import host_processor


def host_target() -> str:
    """The target for this machine's processor."""
    return f"llvm -mcpu={host_processor()}"


def build_stock(
    model: Any, shapes: Mapping[str, tuple[int, ...]], target: str, tuning_log: Path | None = None
) -> Any:
    """The library of an onnx.ModelProto, with the best schedules of ``tuning_log``.
    Raises whatever TVM raises."""
    mod, params = relay.frontend.from_onnx(model, shape=dict(shapes))
    del model
    tuned = nullcontext() if tuning_log is None else autotvm.apply_history_best(str(tuning_log))
    with tuned, tvm.transform.PassContext(opt_level=3):
        return relay.build(mod, target=target, params=params)
