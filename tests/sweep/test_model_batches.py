"""Models whose own batch is above 1: a row is of all images, at every fidelity, as a profile is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("tvm", reason="the relay extra is not installed")

import onnx
from onnx import TensorProto, helper, numpy_helper

from tests.sweep.threads import Threads
from tvm_npu import profile
from tvm_npu.sweep import SweepResult, run_sweep
from tvm_npu.sweep.spec import spec_from_dict

pytestmark = [
    pytest.mark.relay,
    pytest.mark.filterwarnings("ignore::tvm_npu.errors.SyntheticCalibrationWarning"),
]
COUNTS = ("dram_bytes", "macs")
TIMES = ("cycles", "time_us", "frames_per_s")
MACHINES = (
    {"base": "snowflake-1cc", "keys": {"devices": [1, 2]}},
    {"base": "nmp-4x8", "keys": {"cores.tles": [1, 2]}},
)
PLANNERS = {"snowflake-1cc": "snowflake", "nmp-4x8": "exact-layers"}


def saved(path: Path, nodes: list[Any], shapes: list[list[int]], weights: dict[str, Any]) -> str:
    """A model from x to y, float32, of these shapes."""
    ends = zip("xy", shapes, strict=True)
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, one) for name, one in ends)
    constants = [numpy_helper.from_array(one, name) for name, one in weights.items()]
    graph = helper.make_graph(nodes, "g", [x], [y], constants)
    opsets = [helper.make_opsetid("", 13)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=8), path)
    return str(path)


def convolutions(path: Path, batch: int, seed: int) -> str:
    """Two or three in a row, of channels that fill no unit."""
    random = np.random.default_rng(seed)
    channels = random.integers(3, 23, int(random.integers(3, 5))).tolist()
    rows, columns = random.integers(5, 11, 2).tolist()
    names = ["x", *(f"t{at}" for at in range(1, len(channels) - 1)), "y"]
    nodes, weights = [], {}
    for at, (into, out) in enumerate(zip(channels, channels[1:], strict=False)):
        size = int(random.choice([1, 3]))
        weights[f"w{at}"] = random.normal(size=(out, into, size, size)).astype(np.float32)
        pads = [size // 2] * 4
        nodes.append(helper.make_node("Conv", [names[at], f"w{at}"], [names[at + 1]], pads=pads))
    shapes = [[batch, channels[0], rows, columns], [batch, channels[-1], rows, columns]]
    return saved(path, nodes, shapes, weights)


def swept(model: str, machine: dict[str, Any], folder: Path, **more: Any) -> SweepResult:
    values = {
        "models": [model], "machine": machine, "planners": [PLANNERS[machine["base"]]],
        "fidelity": ["predicted", "checked"], "search": {"promote": 1.0}, **more,
    }  # fmt: skip
    result = run_sweep(spec_from_dict(values), folder, Threads())
    assert all(row["fault"] is None and not row["wrong_elements"] for row in result.rows)
    return result


@pytest.mark.parametrize("machine", MACHINES, ids=lambda one: str(one["base"]))
@pytest.mark.parametrize(("batch", "seed"), [(2, 1), (3, 2), (5, 3)])
def test_a_model_of_many_images_is_its_twin_of_one_in_batches(
    machine: dict[str, Any], batch: int, seed: int, tmp_path: Path
) -> None:
    whole = convolutions(tmp_path / "whole.onnx", batch, seed)
    twin = convolutions(tmp_path / "twin.onnx", 1, seed)
    found = swept(whole, machine, tmp_path, batches=[1, 2]).rows
    single = swept(twin, machine, tmp_path, batches=[batch, 2 * batch]).rows
    for one, other in zip(found, single, strict=True):
        assert other["batch"] == batch * one["batch"]
        assert [one[name] for name in COUNTS] == [other[name] for name in COUNTS]
        for name in TIMES:  # scales, which the code loads, are of other random images
            assert one[name] == pytest.approx(other[name], rel=1e-3), name
        assert one["images"] == other["images"] == other["batch"]
    for one, other in zip(found[: len(found) // 2], found[len(found) // 2 :], strict=True):
        assert (one["machine"], one["batch"]) == (other["machine"], other["batch"])
        assert one["macs"] == other["macs"]
        assert one["cycles"] == pytest.approx(other["cycles"], rel=0.35)


def behind_a_reshape(path: Path) -> str:
    """A convolution of two images, and products of the six rows that they become."""
    random = np.random.default_rng(5)
    weights = {
        "w": random.normal(size=(6, 3, 3, 3)).astype(np.float32),
        "rows": np.array([6, 32]), "v": random.normal(size=(32, 7)).astype(np.float32),
    }  # fmt: skip
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["t"], pads=[1] * 4),
        helper.make_node("Reshape", ["t", "rows"], ["r"]),
        helper.make_node("Gemm", ["r", "v"], ["y"]),
    ]
    return saved(path, nodes, [[2, 3, 4, 4], [6, 7]], weights)


def recurrent(path: Path) -> str:
    """Five steps of one image: their number is no batch."""
    random = np.random.default_rng(6)
    weights = {
        "w": random.normal(size=(1, 24, 4)).astype(np.float32),
        "r": random.normal(size=(1, 24, 6)).astype(np.float32),
        "shape": np.array([5, 1, 6]),
    }
    nodes = [
        helper.make_node("LSTM", ["x", "w", "r"], ["t"], hidden_size=6),
        helper.make_node("Reshape", ["t", "shape"], ["y"]),
    ]
    return saved(path, nodes, [[5, 1, 4], [5, 1, 6]], weights)


def upsampling(path: Path) -> str:
    """A transposed convolution and an average: the machine multiplies more than the model."""
    weight = np.random.default_rng(7).normal(size=(3, 5, 3, 3)).astype(np.float32)
    nodes = [
        helper.make_node("ConvTranspose", ["x", "w"], ["t"], strides=[2, 2], kernel_shape=[3, 3]),
        helper.make_node("AveragePool", ["t"], ["y"], kernel_shape=[3, 3]),
    ]
    return saved(path, nodes, [[3, 3, 4, 4], [3, 5, 7, 7]], {"w": weight})


def rows_at_once(path: Path) -> str:
    """The first region gets four tensors of one image."""
    weight = np.random.default_rng(8).normal(size=(5, 1, 3, 3)).astype(np.float32)
    nodes = [
        helper.make_node("Sin", ["x"], ["s"]),
        helper.make_node("Reshape", ["s", "shape"], ["r"]),
        helper.make_node("Conv", ["r", "w"], ["y"]),
    ]
    weights = {"w": weight, "shape": np.array([4, 1, 6, 6])}
    return saved(path, nodes, [[1, 4, 6, 6], [4, 5, 4, 4]], weights)


@pytest.mark.parametrize("make", [behind_a_reshape, recurrent, upsampling, rows_at_once])
@pytest.mark.parametrize("machine", MACHINES, ids=lambda one: str(one["base"]))
def test_rows_are_what_a_profile_of_the_model_says(
    make: Any, machine: dict[str, Any], tmp_path: Path
) -> None:
    """Whose session runs all images on all devices."""
    model = make(tmp_path / "m.onnx")
    result = swept(model, machine, tmp_path)
    designs = [one.design for one in result.stages[-1]]
    for design, predicted, checked in zip(designs, result.rows[:2], result.rows[2:], strict=True):
        assert design.machine is not None and design.name == predicted["machine"]
        told = profile(model, design.machine, planner=design.planner).profile
        totals = told.totals
        assert checked["cycles"] == pytest.approx(totals.cycles)
        assert checked["time_us"] == pytest.approx(totals.time_us)
        assert checked["frames_per_s"] == pytest.approx(totals.frames_per_s)
        assert checked["dram_bytes"] == sum(layer.dram_bytes for layer in told.layers)
        assert predicted["macs"] == checked["macs"] == told.report.npu_macs
        assert predicted["images"] == checked["images"] == told.images_per_run
