"""What the Relay tests share: small modules, stock TVM's answer, the float meaning of regions."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

os.environ.setdefault("TOPHUB_LOCATION", "NONE")

import numpy as np
import tvm
from numpy.typing import NDArray
from tvm import relay
from tvm.contrib import graph_executor

from tvm_npu.codegen.reference import run_float
from tvm_npu.door.partition import partition
from tvm_npu.door.rules import Context
from tvm_npu.relay import import_region
from tvm_npu.relay.door import DOOR
from tvm_npu.report import Refusal, RegionReport
from tvm_npu.sim.machine_file import load_machine

Array = NDArray[Any]


def var(name: str, shape: Sequence[Any], dtype: str = "float32") -> relay.Var:
    return relay.var(name, shape=tuple(shape), dtype=dtype)


def const(values: Any, dtype: str = "float32") -> relay.Constant:
    return relay.const(np.asarray(values, dtype))


def randoms(seed: int, *shape: int) -> Array:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def module(body: Any) -> tvm.IRModule:
    """A module whose main computes ``body`` of its free variables."""
    return tvm.IRModule.from_expr(relay.Function(relay.analysis.free_vars(body), body))


@dataclass(frozen=True)
class Split:
    """A partitioned module without options or ranges, and what the report says about it."""

    mod: tvm.IRModule
    regions: tuple[RegionReport, ...]
    refusals: tuple[Refusal, ...]
    total_macs: int


def split(
    mod: tvm.IRModule,
    machine: str = "nmp-4x8",
    element_bytes: int = 2,
    params: Mapping[str, Any] | None = None,
) -> Split:
    context = Context(load_machine(machine), "int16" if element_bytes == 2 else "int8")
    normal = DOOR.normalize(mod, params)
    flow = DOOR.dataflow(normal)
    found = partition(flow, context)
    regions = tuple(region.report() for region in found.regions)
    return Split(DOOR.extract(normal, flow, found), regions, found.refusals, found.total_macs)


def stock(
    mod: tvm.IRModule, inputs: Sequence[Array], target: Any = "llvm", opt_level: int = 3
) -> list[Array]:
    """All outputs of TVM's graph executor. With common subexpressions in it, TVM's code of a
    bilinear resize is refused by LLVM."""
    config = {"tir.disable_cse_tir": True}
    with tvm.transform.PassContext(opt_level=opt_level, config=config):
        library = relay.build(mod, target=target)
    executor = graph_executor.GraphModule(library["default"](tvm.cpu()))
    for number, values in enumerate(inputs):
        executor.set_input(number, values)
    executor.run()
    return [executor.get_output(n).numpy() for n in range(executor.get_num_outputs())]


def float_region(found: Split, inputs: Sequence[Array]) -> list[Array]:
    """The float meaning of a module that is one region and nothing else."""
    assert len(found.regions) == 1 and not found.refusals, found.refusals
    function = found.mod[found.regions[0].symbol]
    graph = import_region(function)
    tensors = run_float(graph, dict(zip(graph.inputs, inputs, strict=True)))
    return [tensors[name] for name in graph.outputs]


def small_cnn(
    seed: int = 0, batch: int = 1, channels: int = 8, with_lrn: bool = False
) -> tvm.IRModule:
    """Convolution, ReLU, (LRN,) pooling, residual block, dense, softmax; input ``x``
    [batch, 3, 12, 12], output [batch, 5]."""
    x = var("x", (batch, 3, 12, 12))
    weight = const(randoms(seed, channels, 3, 3, 3) * 0.3)
    y = relay.nn.conv2d(x, weight, padding=(1, 1), channels=channels, kernel_size=(3, 3))
    y = relay.nn.relu(relay.nn.bias_add(y, const(randoms(seed + 1, channels) * 0.1)))
    if with_lrn:
        y = relay.nn.lrn(y, size=5)
    y = relay.nn.max_pool2d(y, (2, 2), (2, 2))
    weight = const(randoms(seed + 2, channels, channels, 3, 3) * 0.1)
    z = relay.nn.conv2d(y, weight, padding=(1, 1), channels=channels, kernel_size=(3, 3))
    y = relay.nn.relu(relay.add(z, y))
    y = relay.nn.batch_flatten(relay.nn.global_avg_pool2d(y))
    y = relay.nn.dense(y, const(randoms(seed + 3, 5, channels)))
    return module(relay.nn.softmax(relay.add(y, const(randoms(seed + 4, 5)))))
