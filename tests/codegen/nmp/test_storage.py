"""Memory planning: nothing that is still needed is overwritten; copies only where they must be."""

from __future__ import annotations

from math import prod

import numpy as np
import pytest
from hypothesis import given, reject, settings
from hypothesis import strategies as st

from tests.codegen.nmp.simulated import small_machine
from tests.codegen.random_graphs import graphs, random_inputs
from tests.examples import examples
from tvm_npu.codegen.compile import compile_fixed
from tvm_npu.codegen.errors import CapacityError, QuantizationError
from tvm_npu.codegen.fixed_point import quantize_tensor
from tvm_npu.codegen.graph import FixedGraph, FixedLayer, Graph, q_point_scales
from tvm_npu.codegen.ops import FixedChannelSlice, FixedConcat, FixedElementwise, FixedReshape
from tvm_npu.codegen.passes.calibrate import calibrate
from tvm_npu.codegen.passes.fuse import fuse
from tvm_npu.codegen.passes.quantize import quantize
from tvm_npu.codegen.passes.storage import ALIGNMENT_BYTES, Lifetime, first_fit, plan_storage
from tvm_npu.codegen.reference import run_fixed
from tvm_npu.sim.nmp.machine import nmp_machine_from_dict


@given(
    st.lists(st.tuples(st.integers(1, 1000), st.integers(0, 20), st.integers(0, 6)), max_size=25)
)
def test_first_fit_never_overlaps(rows: list[tuple[int, int, int]]) -> None:
    lifetimes = [
        Lifetime(f"b{index}", size, begin, begin + length)
        for index, (size, begin, length) in enumerate(rows)
    ]
    offsets, total = first_fit(lifetimes)
    for index, one in enumerate(lifetimes):
        assert offsets[one.name] % ALIGNMENT_BYTES == 0
        assert offsets[one.name] + one.size_bytes <= total
        for other in lifetimes[:index]:
            together = one.begin <= other.end and other.begin <= one.end
            begin, end = offsets[one.name], offsets[one.name] + one.size_bytes
            apart = end <= offsets[other.name] or offsets[other.name] + other.size_bytes <= begin
            assert apart or not together


def test_first_fit_reuses() -> None:
    lifetimes = [Lifetime(f"b{index}", 100, index, index + 1) for index in range(6)]
    assert first_fit(lifetimes)[1] == 2 * ALIGNMENT_BYTES


@given(graphs(max_layers=14), st.integers(0, 99))
@settings(max_examples=examples(80), deadline=None)
def test_memory_holds_every_operand_when_it_is_read(graph: Graph, seed: int) -> None:
    """Plays the layers on a byte array with the reference's values."""
    samples = random_inputs(graph, seed, batch=1)
    try:
        fixed = quantize(fuse(graph), calibrate(fuse(graph), [samples]), "int16")
    except QuantizationError:
        reject()
    inputs = {
        name: quantize_tensor(samples[name], fixed.q_points[name], 2) for name in fixed.inputs
    }
    values = {name: value[0] for name, value in run_fixed(fixed, inputs).items()}
    storage = plan_storage(fixed)
    memory = np.full(storage.size_bytes // 2, 0x7A7A, np.int16)

    def at(tensor: str) -> np.ndarray:
        begin = storage.offsets[tensor] // 2
        return memory[begin : begin + prod(storage.shapes[tensor])]

    for name in fixed.inputs:
        at(name)[:] = values[name].reshape(-1)
    for layer in storage.layers:
        if layer.output not in values:
            values[layer.output] = values[layer.inputs[0]]
        for tensor in layer.inputs:
            assert np.array_equal(at(tensor), values[tensor].reshape(-1))
        at(layer.output)[:] = values[layer.output].reshape(-1)
    for name, tensor in zip(fixed.outputs, storage.outputs, strict=True):
        assert np.array_equal(at(tensor), values[name].reshape(-1))
    for name in fixed.inputs:
        assert np.array_equal(at(name), values[name].reshape(-1))


def relu(name: str, source: str) -> FixedElementwise:
    return FixedElementwise(name, (source,), (name,), op="copy", shift=0, low=0, high=99)


def graph_of(
    layers: list[FixedLayer],
    shapes: dict[str, tuple[int, ...]],
    outputs: tuple[str, ...],
) -> FixedGraph:
    return FixedGraph(
        tuple(layers), shapes, ("x",), outputs, q_point_scales(dict.fromkeys(shapes, 4)), 2
    )


def names(fixed: FixedGraph) -> list[str]:
    return [layer.name for layer in plan_storage(fixed).layers]


def test_concatenation_in_place_nested_and_repeated() -> None:
    """As in DenseNet: every concatenation holds all tensors before it; no copies."""
    shapes = {"x": (4, 5, 5), "a": (4, 5, 5), "b": (4, 5, 5), "c": (8, 5, 5), "d": (8, 5, 5)}
    shapes |= {"e": (16, 5, 5), "f": (16, 5, 5), "g": (16, 5, 5)}
    layers: list[FixedLayer] = [
        relu("a", "x"), relu("b", "a"), FixedConcat("c", ("a", "b"), ("c",)), relu("d", "c"),
        FixedConcat("e", ("c", "d"), ("e",)), FixedConcat("f", ("a", "b", "d"), ("f",)),
        relu("g", "e"),
    ]  # fmt: skip
    fixed = graph_of(layers, shapes, ("g",))
    storage = plan_storage(fixed)
    assert [layer.name for layer in storage.layers] == ["a", "b", "d", "g"]
    plane = 25 * 2
    assert storage.offsets["b"] - storage.offsets["a"] == 4 * plane
    assert storage.offsets["d"] - storage.offsets["a"] == 8 * plane
    assert storage.offsets["e"] == storage.offsets["f"] == storage.offsets["c"]


def test_graph_input_and_repeated_tensor_are_copied_into_a_concatenation() -> None:
    shapes = {"x": (2, 3, 3), "a": (2, 3, 3), "c": (6, 3, 3), "y": (6, 3, 3)}
    layers: list[FixedLayer] = [
        relu("a", "x"), FixedConcat("c", ("x", "a", "a"), ("c",)), relu("y", "c")
    ]  # fmt: skip
    assert names(graph_of(layers, shapes, ("y",))) == ["a", "c@0", "c@2", "y"]


def test_views_cost_nothing_and_slices_of_one_tensor_concatenate_to_a_view() -> None:
    shapes = {"x": (4, 3, 3), "s": (2, 3, 3), "t": (2, 3, 3), "c": (4, 3, 3), "r": (36,)}
    shapes["y"] = (36,)
    layers: list[FixedLayer] = [
        FixedChannelSlice("s", ("x",), ("s",), begin=0),
        FixedChannelSlice("t", ("x",), ("t",), begin=2),
        FixedConcat("c", ("s", "t"), ("c",)),
        FixedReshape("r", ("c",), ("r",)),
        relu("y", "r"),
    ]
    storage = plan_storage(graph_of(layers, shapes, ("y",)))
    assert [layer.name for layer in storage.layers] == ["y"]
    assert storage.offsets["t"] == storage.offsets["x"] + 2 * 9 * 2


@pytest.mark.parametrize(
    ("outputs", "copies"),
    [
        (("x",), ["x@output"]),
        (("r",), ["r@output"]),
        (("a", "s"), ["s@output"]),
        (("a", "a"), []),
        (("a",), []),
        (("s",), []),
    ],
)
def test_outputs_own_their_memory(outputs: tuple[str, ...], copies: list[str]) -> None:
    shapes = {"x": (4, 1, 1), "r": (4,), "a": (4,), "s": (4, 1, 1)}
    layers: list[FixedLayer] = [
        FixedReshape("r", ("x",), ("r",)), relu("a", "r"), FixedReshape("s", ("a",), ("s",))
    ]  # fmt: skip
    storage = plan_storage(graph_of(layers, shapes, outputs))
    assert [layer.name for layer in storage.layers if "@" in layer.name] == copies
    places = {storage.offsets[tensor] for tensor in storage.outputs}
    assert len(places) == len(set(outputs))
    assert storage.offsets["x"] not in places


def test_deterministic() -> None:
    shapes = {name: (4, 5, 5) for name in "xabcd"}
    layers: list[FixedLayer] = [relu("a", "x"), relu("b", "a"), relu("c", "b"), relu("d", "c")]
    fixed = graph_of(layers, shapes, ("d",))
    assert plan_storage(fixed) == plan_storage(fixed)


def test_too_large_for_dram() -> None:
    values = small_machine().model_dump()
    values["dram"] |= {"capacity_bytes": 1 << 16}
    machine = nmp_machine_from_dict(values)
    shapes = {"x": (8, 64, 64), "y": (8, 64, 64)}
    with pytest.raises(CapacityError, match=r"dram.capacity_bytes = 65536") as caught:
        compile_fixed(graph_of([relu("y", "x")], shapes, ("y",)), machine)
    assert caught.value.available_bytes == 1 << 16
    assert caught.value.needed_bytes > 2 * 8 * 64 * 64 * 2
