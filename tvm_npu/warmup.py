"""Makes the machine code of planners and simulators before somebody waits for it.

A small network with a convolution, a depthwise and a pointwise one, a pool and a fully connected
layer is compiled and run, and its float and integer meanings are computed as `tvm-npu accuracy`
does: whatever compiled code that takes is in the cache on disk afterwards.
"""

from __future__ import annotations

import numpy as np

from tvm_npu.codegen.compile import CompileOptions, compile_graph, fixed_graph
from tvm_npu.codegen.fast.graphs import FastFixed, FastFloat
from tvm_npu.codegen.fixed_point import quantize_tensor
from tvm_npu.codegen.graph import Clip, Graph
from tvm_npu.codegen.ops import Conv2d, Dense, Pool, Reshape
from tvm_npu.codegen.passes.calibrate import Ranges, calibrate, synthetic_samples
from tvm_npu.codegen.plan import DEFAULT_PLANNER
from tvm_npu.runtime.session import Session
from tvm_npu.sim.description import MachineDescription
from tvm_npu.sim.limits import DEFAULT, Limits
from tvm_npu.sim.machine_parts import Precision

CHANNELS, EXTENT, CLASSES = 8, 8, 4
WIDE = 4096
"""Channels of a sum that float32 does not hold exactly."""


def small_network() -> Graph:
    """Input "x" float32 [8, 8, 8], output "y" float32 [4]."""
    random = np.random.default_rng(0)

    def weights(*shape: int) -> np.ndarray:
        return (random.normal(size=shape) / np.sqrt(np.prod(shape[1:]))).astype(np.float32)

    relu, around = Clip(0.0, np.inf), (1, 1, 1, 1)
    maps, half = (CHANNELS, EXTENT, EXTENT), EXTENT // 2
    flat = CHANNELS * half * half
    layers = (
        Conv2d("whole", ("x",), ("a",), weights(CHANNELS, CHANNELS, 3, 3), weights(CHANNELS),
               padding=around, activation=relu),
        Conv2d("depthwise", ("a",), ("b",), weights(CHANNELS, 1, 3, 3), weights(CHANNELS),
               padding=around, groups=CHANNELS),
        Conv2d("pointwise", ("b",), ("c",), weights(CHANNELS, CHANNELS, 1, 1), weights(CHANNELS)),
        Pool("pool", ("c",), ("p",), "max", (2, 2), (2, 2)),
        Reshape("flat", ("p",), ("f",)),
        Dense("dense", ("f",), ("y",), weights(CLASSES, flat), weights(CLASSES)),
    )  # fmt: skip
    shapes = {
        "x": maps, "a": maps, "b": maps, "c": maps, "p": (CHANNELS, half, half), "f": (flat,),
        "y": (CLASSES,),
    }  # fmt: skip
    return Graph(layers, shapes, ("x",), ("y",))


def wide_network() -> Graph:
    """Input "x" float32 [4096, 1, 1], output "y" float32 [1, 1, 1]: sums in float64, a residual."""
    weight, bias = np.ones((1, WIDE, 1, 1), np.float32), np.zeros(1, np.float32)
    layers = (
        Conv2d("wide", ("x",), ("a",), weight, bias),
        Conv2d("beside", ("x", "a"), ("y",), weight, bias),
    )
    one = (1, 1, 1)
    return Graph(layers, {"x": (WIDE, 1, 1), "a": one, "y": one}, ("x",), ("y",))


def warm_up(
    machine: MachineDescription,
    planner: str = DEFAULT_PLANNER,
    precision: Precision | None = None,
    limits: Limits = DEFAULT,
) -> None:
    """Makes what programs of ``planner`` for ``machine`` at ``precision`` (None: the machine's
    own) need, and accuracies of models at it. Raises what `compile_graph` and `Session` do for the
    small network."""
    options = CompileOptions(precision=precision, planner=planner)
    small = small_network()
    program = compile_graph(small, _warm_accuracy(small, machine, options), machine, options)
    Session(program, limits=limits).run([np.zeros((1, CHANNELS, EXTENT, EXTENT), np.float32)])
    _warm_accuracy(wide_network(), machine, options)


def _warm_accuracy(graph: Graph, machine: MachineDescription, options: CompileOptions) -> Ranges:
    """The ranges of ``graph``, whose convolutions have run in float and in integers."""
    ranges = calibrate(graph, synthetic_samples(graph, seed=0, count=1))
    images = np.zeros((1, *graph.shapes["x"]), np.float32)
    FastFloat(graph).run({"x": images})
    fixed = fixed_graph(graph, ranges, machine, options)
    integers = quantize_tensor(images, fixed.q_points["x"], fixed.element_bytes)
    FastFixed(fixed).run({"x": integers})
    return ranges
