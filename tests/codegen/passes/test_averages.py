"""Pools in parts, and averages that keep their digits."""

from __future__ import annotations

import numpy as np
import pytest

from tests.codegen.nmp.simulated import simulate
from tvm_npu.codegen.compile import CompileOptions, calibrated_graph, compile_graph, fixed_graph
from tvm_npu.codegen.graph import Graph
from tvm_npu.codegen.least import least_needs
from tvm_npu.codegen.ops import FixedConv, FixedPool, Pool
from tvm_npu.codegen.passes.averages import largest_part
from tvm_npu.codegen.passes.calibrate import calibrate
from tvm_npu.codegen.reference import run_fixed, run_float
from tvm_npu.sim.machine_file import load_machine, machine_from_toml
from tvm_npu.sim.nmp.machine import load_nmp_machine

NMP = load_nmp_machine("nmp-4x8")


def pool(kind: str, extent: tuple[int, int]) -> Graph:
    layer = Pool("l", ("x",), ("y",), kind, extent)  # type: ignore[arg-type]
    return Graph((layer,), {"x": (3, *extent), "y": (3, 1, 1)}, ("x",), ("y",))


def run(
    graph: Graph, x: np.ndarray, precision: str
) -> tuple[np.ndarray, np.ndarray, tuple[type, ...]]:
    """(float result, the program's result, layers); the program's equals the reference."""
    made = calibrated_graph(graph, NMP, precision)  # type: ignore[arg-type]
    ranges = calibrate(made, [{"x": x}])
    options = CompileOptions(precision=precision)  # type: ignore[arg-type]
    fixed = fixed_graph(graph, ranges, NMP, options)
    q = fixed.scales["x"].quantize(x, fixed.element_bytes)
    outputs, _ = simulate(compile_graph(graph, ranges, NMP, options), {"x": q[0]})
    np.testing.assert_array_equal(outputs["y"], run_fixed(fixed, {"x": q})["y"][0])
    found = fixed.scales["y"].dequantize(outputs["y"][None])
    return run_float(graph, {"x": x})["y"], found, tuple(map(type, fixed.layers))


@pytest.mark.parametrize("kind", ["max", "avg"])
@pytest.mark.parametrize("extent", [(112, 96), (67, 67)])
def test_pools_larger_than_a_buffer(kind: str, extent: tuple[int, int]) -> None:
    x = np.random.default_rng(1).normal(size=(1, 3, *extent)).astype(np.float32) + 1
    expected, found, layers = run(pool(kind, extent), x, "int16")
    assert layers == (FixedPool, FixedPool)
    np.testing.assert_allclose(found, expected, rtol=0, atol=2.0**-12)


def test_parts_are_as_large_as_they_can_be() -> None:
    needs = least_needs(NMP, "int16")
    assert largest_part(112, 96, needs) == (28, 96)
    assert largest_part(67, 67, needs) == (1, 67)
    assert largest_part(1, 65521, needs) is None


def test_windows_that_fit_stay() -> None:
    x = np.random.default_rng(1).normal(size=(1, 3, 20, 20)).astype(np.float32) + 1
    assert run(pool("avg", (20, 20)), x, "int16")[2] == (FixedPool,)
    assert run(pool("max", (20, 20)), x, "int8")[2] == (FixedPool,)
    even = x[:, :, :15, :15] + 10
    assert run(pool("avg", (15, 15)), even, "int8")[2] == (FixedPool,)


@pytest.mark.parametrize("extent, steps", [((14, 14), 1), ((40, 40), 2), ((112, 96), 2)])
def test_the_mean_of_a_tensor_around_zero_keeps_its_digits(
    extent: tuple[int, int], steps: int
) -> None:
    """Of one step or two, each with digits of its own."""
    x = np.random.default_rng(1).normal(size=(1, 3, *extent)).astype(np.float32)
    expected, found, layers = run(pool("avg", extent), x, "int8")
    assert layers == (FixedConv,) * steps
    noise = np.square(found - expected).sum()
    assert 10 * np.log10(np.square(expected).sum() / noise) > 20


def test_maxima_have_the_digits_of_their_input() -> None:
    x = np.random.default_rng(1).normal(size=(1, 3, 14, 14)).astype(np.float32)
    assert run(pool("max", (14, 14)), x, "int8")[2] == (FixedPool,)


def test_an_average_stays_one_where_its_convolution_does_not_fit() -> None:
    """In one memory of 64 bytes lie nine elements of four bytes, but not their weights too."""
    x = np.random.default_rng(1).normal(size=(1, 3, 3, 3)).astype(np.float32)
    graph = pool("avg", (3, 3))
    ranges = calibrate(graph, [{"x": x}])
    memories = "[memories]\nshared_bytes = 64\nbias_bytes = 64\n"
    small = machine_from_toml(f'extends = "zynq-7020"\nname = "small"\n{memories}', "small.toml")
    for where, kind in ((load_machine("zynq-7020"), FixedConv), (small, FixedPool)):
        options = CompileOptions(precision="int8")
        (layer,) = fixed_graph(graph, ranges, where, options).layers
        assert type(layer) is kind
        program = compile_graph(graph, ranges, where, options)
        assert program.layers
