"""Order, values and attributes of neutral dataflows."""

from __future__ import annotations

import random

import numpy as np
import pytest

from tests.door.flows import call, const, conv, flow, of, x
from tvm_npu.door.dataflow import Constant, Dataflow, OpCall, Result, TensorType, constant
from tvm_npu.door.operators import ATTRIBUTES, padding, read_attributes


def random_flow(seed: int) -> Dataflow:
    generator = random.Random(seed)
    values = [x(1, 4, 8, 8), x(1, 4, 8, 8, name="y")]
    for number in range(generator.randrange(1, 25)):
        operands = generator.choices(values, k=generator.randrange(1, 4))
        values.append(of(f"op{number}", *operands, to=(1, 4, 8, 8)))
    return flow(*generator.sample(values[2:], k=min(3, len(values) - 2)))


@pytest.mark.parametrize("seed", range(30))
def test_calls_are_what_outputs_need_operands_first(seed: int) -> None:
    found = random_flow(seed)
    needed: set[OpCall] = set()

    def need(value: object) -> None:
        if isinstance(value, Result):
            needed.add(value.call)
            for operand in value.call.operands:
                need(operand)

    for output in found.outputs:
        need(output)
    assert set(found.calls) == needed and len(found.calls) == len(needed)
    for number, reads in enumerate(found.reads):
        makers = {v.call for v in found.calls[number].operands if isinstance(v, Result)}
        assert {found.calls[n] for n in reads} == makers
        assert all(n < number for n in reads)


def test_the_order_hangs_on_the_graph_alone() -> None:
    def made(backwards: bool) -> list[str]:
        data = x(1, 2, 4, 4)
        names = ["left", "right"]
        parts = {
            name: of(name, data, to=(1, 2, 4, 4))
            for name in (reversed(names) if backwards else names)
        }
        return [
            c.name for c in flow(of("add", parts["left"], parts["right"], to=(1, 2, 4, 4))).calls
        ]

    assert made(False) == made(True) == ["left", "right", "add"]


def test_a_deep_flow_needs_no_recursion() -> None:
    value = x(1, 2, 4, 4)
    for _ in range(5000):
        value = of("relu", value, to=(1, 2, 4, 4))  # type: ignore[assignment]
    assert len(flow(value).calls) == 5000


def test_results_of_one_call_are_equal_by_position() -> None:
    parts = call("split", x(1, 4, 2, 2), to=[(1, 2, 2, 2), (1, 2, 2, 2)], axis=1)
    assert parts.result(0) == parts.result(0) and parts.result(0) != parts.result(1)
    assert len({parts.result(0), parts.result(0), parts.result(1), parts.result()}) == 3
    with pytest.raises(ValueError, match="my.split returns a tuple"):
        parts.shape  # noqa: B018
    with pytest.raises(ValueError, match="a tuple of 2 tensors, not one tensor"):
        parts.result().type  # noqa: B018


def test_inputs_may_be_results_that_lie_outside() -> None:
    first = of("relu", x(1, 2, 4, 4), to=(1, 2, 4, 4))
    second = of("tanh", first, to=(1, 2, 4, 4))
    assert [c.name for c in Dataflow((first,), (second,)).calls] == ["tanh"]
    assert [c.name for c in flow(second).calls] == ["relu", "tanh"]


def test_uses_and_constants() -> None:
    data = x(1, 4, 8, 8)
    both = flow(of("add", conv(data, 4), data, to=(1, 4, 8, 8)))
    readers = [reader.name if reader else None for reader, value in both.uses() if value is data]
    assert readers == ["conv2d", "add"]
    (weight,) = both.constants
    assert weight.shape == (4, 4, 3, 3) and weight.array.dtype == np.float32


def test_constants_are_loaded_when_asked_for() -> None:
    loads = []

    def load() -> np.ndarray:  # type: ignore[type-arg]
        loads.append(1)
        return np.zeros((2, 3), np.float32)

    lazy = Constant((TensorType((2, 3)),), load=load)
    assert lazy.shape == (2, 3) and not loads
    assert lazy.array.shape == (2, 3) and loads == [1]
    assert constant([1.0, 2.0]).type == TensorType((2,), "float64")


def test_open_extents_have_no_static_shape() -> None:
    open_type = TensorType(("n", 3, "?", 8))
    assert open_type.static_shape is None and str(open_type) == "Tensor[(n, 3, ?, 8), float32]"
    with pytest.raises(ValueError, match=r"Tensor\[\(n, 3, \?, 8\), float32\] has no static shape"):
        x("n", 3, "?", 8).shape  # noqa: B018
    assert TensorType((1, 2)).static_shape == (1, 2)


def test_attributes_come_in_one_form() -> None:
    raw = {"strides": 2, "padding": [1, 3], "dilation": (1, 2), "kernel_size": [3, 3]}
    found = call("conv2d", x(1, 2, 8, 8), const(4, 2, 3, 3), to=(1, 4, 4, 4), **raw).attributes
    assert found["strides"] == (2, 2) and found["padding"] == (1, 3, 1, 3)
    assert found["dilation"] == (1, 2) and found["kernel_size"] == (3, 3)
    assert (found["groups"], found["data_layout"], found["kernel_layout"]) == (1, "NCHW", "OIHW")
    assert padding(2) == (2, 2, 2, 2) and padding((1, 2, 3, 4)) == (1, 2, 3, 4)


def test_a_missing_attribute_is_named() -> None:
    with pytest.raises(ValueError, match="operator 'concatenate' has no attribute 'axis'"):
        call("concatenate", x(1, 2), to=(1, 2)).attributes  # noqa: B018
    assert read_attributes("an operator of tomorrow", lambda name: 1) == {}
    assert all(callable(form) for schema in ATTRIBUTES.values() for form, _ in schema.values())
