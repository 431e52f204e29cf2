"""A layer and a machine in numbers, for the compiled cost model."""

from __future__ import annotations

from functools import lru_cache
from math import gcd
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tvm_npu.codegen.plan.problem import ConvProblem
from tvm_npu.codegen.snowflake.plan.counting import Along
from tvm_npu.codegen.snowflake.plan.tiling import ConvShape, Mode, conv_shape
from tvm_npu.codegen.snowflake.steps.windows import Axis
from tvm_npu.sim.snowflake.isa import LANES, LONGEST_TRACE
from tvm_npu.sim.snowflake.machine import SnowflakeMachine

MODES: tuple[Mode, ...] = ("coop", "indp", "lane")
"""In the order of `counting.COOP`, `INDP`, `LANE`."""


class Numbers(NamedTuple):
    """``in_pitch`` and ``out_pitch`` are words from pixel to pixel of the tensors; ``coop_lines``
    by taps of a row of a window what its traces take in mode coop, on average over the places in
    lines at which rows begin: [0] one a tap, [1] one for all, where they lie together in a tile."""

    rows: Along
    columns: Along
    planes: int
    filters: int
    groups: int
    in_pitch: int
    out_pitch: int
    has_residual: bool
    cus: int
    mbuf: int
    wbuf: int
    queue: int
    vector_latency: float
    load_latency: float
    store_latency: float
    rate: float
    coop_lines: NDArray[np.float64]


def _along(axis: Axis) -> Along:
    return Along(axis.size, axis.out, axis.kernel, axis.stride, axis.dilation, axis.before)


@lru_cache(maxsize=256)
def numbers(problem: ConvProblem, machine: SnowflakeMachine) -> Numbers:
    """Of a layer whose tensors are its own, not slices of others."""
    return shape_numbers(conv_shape(problem), machine)


def shape_numbers(shape: ConvShape, machine: SnowflakeMachine) -> Numbers:
    """`numbers` of a shape."""
    parts = machine.clusters
    return Numbers(
        _along(shape.rows), _along(shape.columns), shape.planes, shape.filters, shape.groups,
        shape.planes * shape.groups, shape.filters * shape.groups, shape.has_residual,
        parts.cus, machine.mbuf_words, machine.wbuf_words, machine.vector.queue_depth,
        float(machine.vector.latency_cycles), float(machine.load.latency_cycles),
        float(machine.store.latency_cycles), machine.memory_bytes_per_cycle,
        _coop_lines(shape),
    )  # fmt: skip


def _coop_lines(shape: ConvShape) -> NDArray[np.float64]:
    """A trace takes the lines that it touches in MBuf or WBuf, whichever is more. Both begin at
    multiples of the planes."""
    axis, planes = shape.columns, shape.planes
    fine = gcd(planes, LANES)
    places = np.arange(0, LANES, fine)
    found = np.zeros((2, axis.kernel + 1))
    for taps in range(1, axis.kernel + 1):
        for row, (traces, words) in enumerate(((taps, planes), (1, taps * planes))):
            pieces = [LONGEST_TRACE] * (words // LONGEST_TRACE) + [words % LONGEST_TRACE]
            for size in pieces:
                lines = -(-(places + size) // LANES) if size else np.zeros(1)
                found[row, taps] += traces * np.maximum.outer(lines, lines).mean()
    return found
