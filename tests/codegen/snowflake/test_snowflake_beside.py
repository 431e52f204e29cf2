"""Maxima whose steps run between those of a convolution that neither makes nor takes them: the
reference's bits, and no race."""

from __future__ import annotations

import numpy as np
import pytest

from tests.codegen.snowflake.snowflake_cases import machine, outcome
from tvm_npu.codegen import ops
from tvm_npu.codegen.compile import generate
from tvm_npu.codegen.graph import FixedGraph
from tvm_npu.codegen.graph.scale import q_point_scales
from tvm_npu.codegen.snowflake.backend import SnowflakeBackend
from tvm_npu.codegen.snowflake.plan.beside import runs_beside


def branches(rng: np.random.Generator, least: int = 5) -> FixedGraph:
    """A map of at least so many rows and columns, made by a convolution of single pixels, that a
    larger one and a maximum read; their results lie side by side."""
    planes, filters = (int(rng.integers(1, 9)) * 16 for _ in range(2))
    rows, columns = (int(size) for size in rng.integers(least, least + 16, 2))

    def conv(
        name: str, source: str, target: str, kernel: int, sizes: tuple[int, int]
    ) -> ops.FixedConv:
        weight = rng.integers(-300, 300, (*sizes, kernel, kernel)).astype(np.int16)
        bias = rng.integers(-(1 << 20), 1 << 20, sizes[0]).astype(np.int32)
        return ops.FixedConv(
            name, (source,), (target,), weight, bias, (1, 1), (kernel // 2,) * 4, (1, 1), 1,
            shift=9, low=-30000, high=31000,
        )  # fmt: skip

    pool = ops.FixedPool(
        "pool", ("m",), ("p",), "max", (3, 3), (1, 1), (1, 1, 1, 1), False, (1, 1, 1, 1),
        shift=0, low=-30000, high=31000,
    )  # fmt: skip
    layers = (
        conv("first", "x", "m", 1, (planes, 32)), conv("second", "m", "c", 3, (filters, planes)),
        pool, ops.FixedConcat("together", ("c", "p"), ("y",)),
    )  # fmt: skip
    pixels = (rows, columns)
    shapes = {
        "x": (32, *pixels), "m": (planes, *pixels), "c": (filters, *pixels),
        "p": (planes, *pixels), "y": (filters + planes, *pixels),
    }  # fmt: skip
    return FixedGraph(layers, shapes, ("x",), ("y",), q_point_scales(dict.fromkeys(shapes, 8)), 2)


@pytest.mark.parametrize("name", ["snowflake-1cc", "snowflake-2cc", "snowflake-4cc"])
def test_a_maximum_runs_beside_a_convolution(name: str) -> None:
    beside = 0
    for seed in range(3):
        fixed = branches(np.random.default_rng(seed))
        planned = generate(fixed, machine(name), "snowflake").planned
        beside += any(runs_beside(one.plan) for one in planned.layers)
        found = outcome(fixed, machine(name), seed=seed)
        assert found.wrong == 0
        assert not found.hazards
    assert beside


def test_convolutions_leave_maxima_room(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tiles of a convolution are cut for a maximum beside it, and both together take less time."""
    fixed, on = branches(np.random.default_rng(3), 24), machine("snowflake-4cc")
    planned = generate(fixed, on, "snowflake").planned
    found = outcome(fixed, on)
    assert (found.wrong, found.hazards) == (0, ())
    assert any(runs_beside(one.plan) for one in planned.layers)
    monkeypatch.setattr(SnowflakeBackend, "in_sequence", lambda self, layers, machine: layers)
    apart = generate(fixed, on, "snowflake").planned
    tiles, uncut = ([one.plan.tile_c for one in each.layers[:2]] for each in (planned, apart))
    assert tiles != uncut
    assert found.statistics.cycles < 0.97 * outcome(fixed, on).statistics.cycles
