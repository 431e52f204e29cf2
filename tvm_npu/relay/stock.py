"""Stock TVM, to compare with: its own ONNX frontend, build and executor, of the project only the
target, and a way round models that the wheel of TVM 0.19 cannot build."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import tvm
from tvm import autotvm, relay

from tvm_npu.door.onnx.model import with_explicit_padding
from tvm_npu.processors import host_processor, unusable_features
from tvm_npu.relay.build_context import DISABLE_CSE, build_context

REJECTED = "location of #dbg_declare must be a pointer or int"
"""What the LLVM of TVM 0.19's wheel says of integer vectors and of common subexpressions."""

_log = logging.getLogger(__name__)


def host_target() -> str:
    """The target for this machine's processor."""
    return cpu_target(host_processor())


def cpu_target(mcpu: str) -> str:
    """The target for a processor of this machine's architecture, less what TVM cannot use of it."""
    unusable = unusable_features(mcpu)
    return f"llvm -mcpu={mcpu}" + (f" -mattr={','.join(unusable)}" if unusable else "")


def read_stock(model: Any, shapes: Mapping[str, tuple[int, ...]]) -> tuple[Any, Any]:
    """An onnx.ModelProto as TVM's own frontend reads it: module and params.

    Where the LLVM of TVM's wheel rejects the programs by which the frontend computes automatic
    padding, it reads the model with that padding in numbers; the log says so. Raises whatever TVM
    raises otherwise.
    """
    try:
        return relay.frontend.from_onnx(model, shape=dict(shapes))
    except tvm.TVMError as error:
        if REJECTED not in str(error):
            raise
    _log.warning("LLVM rejects the padding that stock TVM computes: read with padding in numbers")
    return relay.frontend.from_onnx(with_explicit_padding(model, shapes), shape=dict(shapes))


def build_stock(
    model: Any, shapes: Mapping[str, tuple[int, ...]], target: str, tuning_log: Path | None = None
) -> Any:
    """The library of an onnx.ModelProto, with the best schedules of ``tuning_log``.

    Where the LLVM of TVM's wheel rejects what TVM makes of a resize, the model is built without
    TVM's elimination of common subexpressions, which LLVM repeats; the log says so. Raises
    whatever TVM raises otherwise.
    """
    mod, params = read_stock(model, shapes)
    del model
    tuned = nullcontext() if tuning_log is None else autotvm.apply_history_best(str(tuning_log))
    with tuned:
        try:
            with tvm.transform.PassContext(opt_level=3):
                return relay.build(mod, target=target, params=params)
        except tvm.TVMError as error:
            if REJECTED not in str(error):
                raise
        _log.warning("LLVM rejects what stock TVM makes of the model: %s is set", DISABLE_CSE)
        with build_context(3):
            return relay.build(mod, target=target, params=params)
