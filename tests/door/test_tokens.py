"""Fully connected layers over tokens: one layer each, and what stays on the CPU."""

from __future__ import annotations

import numpy as np
import pytest

from tests.door.flows import call, conv, split, x
from tests.door.test_recurrent import region_graph
from tvm_npu.codegen.ops import Conv2d, Dense, FixedMove, Transpose
from tvm_npu.codegen.reference import run_float
from tvm_npu.door.backend import machine_layers
from tvm_npu.door.dataflow import OpCall, Value, constant
from tvm_npu.door.partition import Partition

RANDOM = np.random.default_rng(7)
WEIGHT = RANDOM.normal(size=(5, 6)).astype(np.float32)
BIAS = RANDOM.normal(size=(5,)).astype(np.float32)


def over(
    source: Value, bias: bool = True, name: str = "dense", flat: OpCall | None = None
) -> OpCall:
    """The last call of a layer over the tokens of ``source``."""
    shape = source.shape
    tokens = int(np.prod(shape[:-1]))
    flat = flat or call("reshape", source, to=(tokens, shape[-1]))
    weight = constant(WEIGHT if name == "dense" else np.ascontiguousarray(WEIGHT.T))
    made = call(name, flat.result(), weight, to=(tokens, 5))
    back = call("reshape", made.result(), to=(*shape[:-1], 5))
    if not bias:
        return back
    return call("add", back.result(), constant(BIAS), to=(*shape[:-1], 5))


def values(found: Partition, array: np.ndarray) -> np.ndarray:
    graph = region_graph(found)
    return run_float(graph, {graph.inputs[0]: array})[graph.outputs[0]]


@pytest.mark.parametrize("name", ["dense", "matmul"])
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("shape", [(1, 11, 6), (1, 4, 3, 6), (1, 130, 6)])
def test_one_convolution_whose_pixels_are_tokens(
    shape: tuple[int, ...], bias: bool, name: str
) -> None:
    found = split(over(x(*shape), bias, name).result())
    assert len(found.regions) == 1 and not found.refusals
    graph = region_graph(found)
    kinds = [type(layer) for layer in graph.layers]
    assert kinds.count(Conv2d) == 1 and kinds.count(Transpose) == 2 and Dense not in kinds
    array = RANDOM.normal(size=shape).astype(np.float32)
    expected = array @ WEIGHT.T + (BIAS if bias else 0)
    np.testing.assert_allclose(values(found, array), expected, atol=1e-5)


def test_images_stay_images() -> None:
    found = split(over(x(2, 11, 6)).result())
    assert [[one.name for one in region.calls] for region in found.regions] == [["dense"]]
    assert {refusal.operator for refusal in found.refusals} == {"my.reshape", "my.add"}


def test_a_machine_that_moves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "tvm_npu.door.partition.machine_layers",
        lambda machine: machine_layers(machine) - {FixedMove},
    )
    found = split(over(x(1, 11, 6)).result(), machine="zynq-7020")
    (region,) = found.regions
    assert [one.name for one in region.calls] == ["dense"]


def test_a_matrix_that_others_read_is_no_layer_over_tokens() -> None:
    source = x(1, 11, 6)
    flat = call("reshape", source, to=(11, 6))
    found = split(over(source, flat=flat).result(), flat.result())
    assert "my.reshape" in {refusal.operator for refusal in found.refusals}


def test_behind_a_convolution_it_is_the_same_region() -> None:
    image = call("transpose", conv(x(1, 4, 8, 8), 6), to=(1, 8, 8, 6), axes=[0, 2, 3, 1])
    found = split(over(image.result()).result())
    assert len(found.regions) == 1 and not found.refusals
