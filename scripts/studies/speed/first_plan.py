"""`python -m studies.speed.first_plan MACHINE`: CPU seconds to import numba, and of the first plan.

The layer is ResNet-18's first one behind the pool. What the package imports of its own only when it
plans is part of the plan.
"""

from __future__ import annotations

import importlib
import sys
import time

import numpy as np

from tvm_npu.codegen.compile import plan_graph
from tvm_npu.codegen.graph import FixedGraph, Shape, q_point_scales
from tvm_npu.codegen.ops import FixedConv
from tvm_npu.codegen.plan import DEFAULT_PLANNER, planner
from tvm_npu.codegen.plan.layers import LayerPlanner
from tvm_npu.sim.machine_file import load_machine
from tvm_npu.sim.machine_parts import ELEMENT_BYTES


def main(machine_name: str) -> None:
    machine = load_machine(machine_name)
    precision = machine.default_precision
    weight = np.zeros((64, 64, 3, 3), np.int8 if ELEMENT_BYTES[precision] == 1 else np.int16)
    layer = FixedConv(
        "layer", ("x",), ("y",), source=("op",), shift=8, low=0, high=99, weight=weight,
        bias=np.zeros(64, np.int32), padding=(1, 1, 1, 1),
    )  # fmt: skip
    shapes: dict[str, Shape] = {"x": (64, 56, 56), "y": (64, 56, 56)}
    fixed = FixedGraph(
        (layer,), shapes, ("x",), ("y",), q_point_scales(dict.fromkeys(shapes, 8)),
        ELEMENT_BYTES[precision],
    )  # fmt: skip
    begin = time.process_time()
    importlib.import_module("numba")
    imported = time.process_time()
    plan_graph(fixed, LayerPlanner(precision, machine, planner(DEFAULT_PLANNER)))
    print(imported - begin, time.process_time() - imported)


if __name__ == "__main__":
    main(sys.argv[1])
