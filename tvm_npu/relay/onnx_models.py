"""From an ONNX model to something that runs, in one call: for programs that hold no TVM IR."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import onnx
import tvm
from numpy.typing import NDArray
from tvm import relay
from tvm.contrib import graph_executor

from tvm_npu.relay import explain, partition_for_npu
from tvm_npu.relay.frontend import from_onnx
from tvm_npu.report import PartitionReport
from tvm_npu.targets import TAG_PREFIX


@dataclass(frozen=True)
class BuiltModel:
    """A compiled model on TVM's graph executor. ``partitioned`` is the module with its regions and
    ``report`` says what runs where; both None when the whole model was built for the CPU.
    ``compile_s`` is the time from the imported module to the library, in seconds."""

    library: Any
    executor: Any
    report: PartitionReport | None
    partitioned: tvm.IRModule | None
    compile_s: float

    def run(self, inputs: Mapping[str, NDArray[Any]]) -> list[NDArray[Any]]:
        """All outputs for inputs by name."""
        self.executor.run(**inputs)
        return [self.executor.get_output(n).numpy() for n in range(self.executor.get_num_outputs())]


def build_onnx(
    model: onnx.ModelProto,
    target: Any = "npu/nmp-4x8",
    calibration: Any = None,
    *,
    shapes: Mapping[str, Sequence[int]] | None = None,
    opt_level: int = 3,
    **options: Any,
) -> BuiltModel:
    """Imports, partitions and builds ``model``.

    ``target``, ``calibration`` and ``options`` as `partition_for_npu` takes them; without a target
    the model stays as it is, float32 on the CPU. ``shapes`` sets inputs' shapes that the model
    leaves open.
    """
    given = {name: tuple(shape) for name, shape in (shapes or {}).items()}
    mod, params = from_onnx(model, given or None)
    begin = time.perf_counter()
    partitioned = None
    if target is not None:
        mod = partitioned = partition_for_npu(mod, params, target, calibration, **options)
        params = {}
    with tvm.transform.PassContext(opt_level=opt_level):
        library = relay.build(mod, target=_build_target(target), params=params)
    compile_s = time.perf_counter() - begin
    executor = graph_executor.GraphModule(library["default"](tvm.cpu()))
    report = None if partitioned is None else explain(partitioned)
    return BuiltModel(library, executor, report, partitioned, compile_s)


def build_stock(
    model: onnx.ModelProto, target: str = "llvm", shapes: Mapping[str, Sequence[int]] | None = None
) -> Any:
    """The library that stock ``relay.build`` makes of ``model`` for a CPU, all optimisations on."""
    mod, params = from_onnx(model, {n: tuple(s) for n, s in (shapes or {}).items()} or None)
    with tvm.transform.PassContext(opt_level=3):
        return relay.build(mod, target=target, params=params)


def _build_target(target: Any) -> Any:
    """What ``relay.build`` gets: tags and Targets as they are; a machine alone says nothing about
    the CPU."""
    is_tag = isinstance(target, str) and target.startswith(TAG_PREFIX)
    return target if is_tag or isinstance(target, tvm.target.Target) else "llvm"
