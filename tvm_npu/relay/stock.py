"""Stock TVM, to compare with: its own ONNX frontend, build and executor, nothing of the project."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import tvm
from numpy.typing import NDArray
from tvm import relay
from tvm.contrib import graph_executor

Array = NDArray[Any]


def run_stock_onnx(model: Any, inputs: Mapping[str, Array]) -> list[Array]:
    """All outputs of an onnx.ModelProto on the CPU; raises whatever TVM raises."""
    shapes = {name: values.shape for name, values in inputs.items()}
    mod, params = relay.frontend.from_onnx(model, shape=shapes)
    with tvm.transform.PassContext(opt_level=3):
        library = relay.build(mod, target="llvm", params=params)
    executor = graph_executor.GraphModule(library["default"](tvm.cpu()))
    executor.run(**inputs)
    return [executor.get_output(n).numpy() for n in range(executor.get_num_outputs())]
