"""From an ONNX model to something that runs, in one call: for programs that hold no TVM IR."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
import tvm
from numpy.typing import NDArray
from tvm import relay
from tvm.contrib import graph_executor

from tvm_npu.relay import explain, partition_for_npu
from tvm_npu.report import PartitionReport


@dataclass(frozen=True)
class BuiltModel:
    """A compiled model on TVM's graph executor; ``report`` says what runs where."""

    library: Any
    report: PartitionReport
    executor: Any

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

    ``target``, ``calibration`` and ``options`` as `partition_for_npu` takes them; ``shapes`` sets
    inputs' shapes that the model leaves open.
    """
    given = {name: tuple(shape) for name, shape in (shapes or {}).items()}
    mod, params = relay.frontend.from_onnx(model, given or None)
    mod = partition_for_npu(mod, params, target, calibration, **options)
    report = explain(mod)
    with tvm.transform.PassContext(opt_level=opt_level):
        library = relay.build(mod, target=_cpu(target))
    return BuiltModel(library, report, graph_executor.GraphModule(library["default"](tvm.cpu())))
