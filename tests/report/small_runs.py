"""One small network that has run on machines of every kind, its events recorded."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from tests.runtime.networks import MACS, machine, network
from tvm_npu.codegen.compile import fixed_graph, generate_quantized
from tvm_npu.codegen.passes.calibrate import calibrate
from tvm_npu.report.placement import PartitionReport, Refusal, RegionReport
from tvm_npu.report.profile import Profile, profile_of
from tvm_npu.report.runs import RegionRun
from tvm_npu.sim.machine_file import load_machine

MACHINES = ("nmp", "setup-a", "zynq-7020", "snowflake-1cc")
REFUSED = Refusal("soft", "nn.softmax", "The operator has instructions.", "nn.softmax", "conv")


@lru_cache(maxsize=len(MACHINES))
def recorded(name: str) -> RegionRun:
    where = machine() if name == "nmp" else load_machine(name)
    graph, samples = network()
    ranges = calibrate(graph, [{"x": samples, "y": samples[::-1]}])
    generated = generate_quantized(fixed_graph(graph, ranges, where), where)
    run = RegionRun.of("region", generated, timing=True, records=True)
    random = np.random.default_rng(5)
    run.run([random.normal(size=(1, *slot.shape)) for slot in run.session.program.inputs])
    return run


@lru_cache(maxsize=len(MACHINES))
def profiled(name: str) -> Profile:
    run = recorded(name)
    operators = tuple((layer.name, layer.kind) for layer in run.session.program.layers)
    region = RegionReport("region", operators, (), (), MACS)
    where = run.session.machine.name
    report = PartitionReport(where, "int16", "exact", (region,), (REFUSED,), MACS)
    return profile_of([run], report, "small", images=run.runs[0].runs)
