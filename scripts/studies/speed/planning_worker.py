"""`python -m studies.speed.planning_worker MACHINE PLANNER FILE...`: CPU seconds of a new process.

It prints what importing numba takes and then, in their order, what planning the pickled lists of
`FixedGraph` in the files takes. What the package imports of its own only when it plans is part of
the first plan, and machine code that is read from disk part of the first that uses it.
"""

from __future__ import annotations

import importlib
import pickle
import sys
import time
from pathlib import Path

from tvm_npu.codegen.compile import plan_graph
from tvm_npu.codegen.plan import planner
from tvm_npu.codegen.plan.layers import LayerPlanner
from tvm_npu.sim.machine_file import load_machine


def main(machine_name: str, planner_name: str, *files: str) -> None:
    machine = load_machine(machine_name)
    regions = [pickle.loads(Path(file).read_bytes()) for file in files]
    begin = time.process_time()
    importlib.import_module("numba")
    print(time.process_time() - begin)
    for graphs in regions:
        begin = time.process_time()
        for fixed in graphs:
            plan_graph(fixed, LayerPlanner(fixed.precision, machine, planner(planner_name)))
        print(time.process_time() - begin)


if __name__ == "__main__":
    main(*sys.argv[1:])
