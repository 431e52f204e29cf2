"""A small compiled network for the runtime's tests: every kind of layer once."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np

from tvm_npu.codegen.compile import CompileOptions, compile_graph, fixed_graph
from tvm_npu.codegen.graph import Clip, FixedGraph, Graph
from tvm_npu.codegen.ops import Conv2d, Dense, Elementwise, Pool, Reshape
from tvm_npu.codegen.passes.calibrate import calibrate
from tvm_npu.codegen.program.format import Program
from tvm_npu.sim.nmp.machine import NmpMachine, load_nmp_machine, nmp_machine_from_dict

RELU = Clip(0.0, np.inf)


def machine(tles: int = 2, tlts: int = 2, **parts: dict[str, Any]) -> NmpMachine:
    values = load_nmp_machine("nmp-4x8").model_dump()
    values["name"] = "small"
    values["cores"] |= {"tles": tles, "tlts_per_tle": tlts}
    values["memories"] |= {"mb0_bytes": 2048, "mb1_bytes": 2048, "mb2_bytes": 2048}
    for part, changes in parts.items():
        values[part] |= changes
    return nmp_machine_from_dict(values)


@lru_cache(maxsize=1)
def network() -> tuple[Graph, np.ndarray]:
    """(graph with inputs x and y, calibration samples float32 [3, 3, 12, 12])."""
    random = np.random.default_rng(11)

    def weights(*shape: int) -> np.ndarray:
        return (random.normal(size=shape) / np.sqrt(np.prod(shape[1:]))).astype(np.float32)

    layers = (
        Conv2d(
            "c1",
            ("x",),
            ("a",),
            weights(8, 3, 3, 3),
            weights(8),
            padding=(1, 1, 1, 1),
            activation=RELU,
        ),
        Conv2d("c2", ("y",), ("b",), weights(8, 3, 1, 1), weights(8)),
        Elementwise("add", ("a", "b"), ("s",), "add", RELU),
        Conv2d(
            "dw", ("s",), ("d",), weights(8, 1, 3, 3), weights(8), padding=(1, 1, 1, 1), groups=8
        ),
        Pool("p", ("d",), ("q",), "max", (2, 2), (2, 2)),
        Reshape("r", ("q",), ("f",)),
        Dense("fc", ("f",), ("z",), weights(10, 288), weights(10)),
    )
    shapes = {
        "x": (3, 12, 12), "y": (3, 12, 12), "a": (8, 12, 12), "b": (8, 12, 12), "s": (8, 12, 12),
        "d": (8, 12, 12), "q": (8, 6, 6), "f": (288,), "z": (10,),
    }  # fmt: skip
    samples = random.normal(size=(3, 3, 12, 12)).astype(np.float32)
    return Graph(layers, shapes, ("x", "y"), ("z", "d")), samples


MACS = 144 * 8 * 27 + 144 * 8 * 3 + 144 * 8 * 9 + 10 * 288
"""Multiply-accumulates of one image."""


@lru_cache(maxsize=16)
def compiled(where: NmpMachine, precision: Any = "int16") -> tuple[Program, FixedGraph]:
    graph, samples = network()
    ranges = calibrate(graph, [{"x": samples, "y": samples[::-1]}])
    options = CompileOptions(precision=precision)
    return (
        compile_graph(graph, ranges, where, options),
        fixed_graph(graph, ranges, where, options),
    )
