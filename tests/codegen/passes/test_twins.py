"""Two convolutions of one tensor, put together in front of a pointwise one: what is found, and that
it means the same."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.examples import examples
from tvm_npu.codegen.graph import FixedGraph, FixedLayer, Shape, q_point_scales
from tvm_npu.codegen.ops import FixedBlock, FixedConcat, FixedConv, FixedPool
from tvm_npu.codegen.ops.registry import kind_of, layer_macs
from tvm_npu.codegen.passes.twins import twin_blocks, with_twin_block
from tvm_npu.codegen.reference import run_fixed

ANY = np.random.default_rng


def conv(seed: int, source: str, target: str, shape: tuple[int, ...], pad: int = 0) -> FixedConv:
    random = ANY(seed)
    return FixedConv(
        f"make {target}", (source,), (target,), padding=(pad,) * 4, shift=6, low=0, high=32767,
        weight=random.integers(-90, 90, shape).astype(np.int16), source=(f"op {target}",),
        bias=random.integers(-99, 99, shape[0]).astype(np.int32),
    )  # fmt: skip


def fire(order: str = "nw", with_pool: bool = False, filters: int = 3) -> FixedGraph:
    """Between other layers, as in a network; ``order`` is that of the parts."""
    layers: list[FixedLayer] = [
        conv(1, "x", "s", (2, 4, 1, 1)), conv(2, "s", "w", (filters, 2, 3, 3), 1),
        conv(3, "s", "n", (filters, 2, 1, 1)), FixedConcat("both", tuple(order), ("c",)),
    ]  # fmt: skip
    shapes: dict[str, Shape] = {
        "x": (4, 7, 6), "s": (2, 7, 6), "w": (filters, 7, 6), "n": (filters, 7, 6),
        "c": (2 * filters, 7, 6), "z": (5, 7, 6), "y": (2, 7, 6),
    }  # fmt: skip
    made = "c"
    if with_pool:
        pool = FixedPool("pool", ("c",), ("p",), "max", (3, 2), (2, 2), shift=0, low=-9, high=900)
        layers.append(pool)
        made, shapes["p"] = "p", (2 * filters, 3, 3)
        shapes |= {"z": (5, 3, 3), "y": (2, 3, 3)}
    layers += [
        conv(4, made, "z", (5, 2 * filters, 1, 1)), conv(5, "z", "y", (2, 5, 1, 1))
    ]  # fmt: skip
    scales = q_point_scales(dict.fromkeys(shapes, 8))
    return FixedGraph(tuple(layers), shapes, ("x",), ("y",), scales, 2)


@settings(max_examples=examples(20))
@given(
    order=st.sampled_from(("nw", "wn")), with_pool=st.booleans(), filters=st.integers(1, 6),
    seed=st.integers(0, 99),
)  # fmt: skip
def test_the_values_are_the_same(order: str, with_pool: bool, filters: int, seed: int) -> None:
    fixed = fire(order, with_pool, filters)
    (found,) = twin_blocks(fixed)
    made = with_twin_block(fixed, found)
    first, block, last = made.layers
    assert (first, last) == (fixed.layers[0], fixed.layers[-1])
    assert isinstance(block, FixedBlock)
    expected = "conv+max_pool+conv+max_pool+conv" if with_pool else "conv+conv+conv"
    assert kind_of(block) == expected
    assert set(block.source) == {"op w", "op n", "op z"}
    macs = sum(layer_macs(one, fixed.shapes) for one in fixed.layers[1:-1])
    assert layer_macs(block, fixed.shapes) == macs
    x = {"x": ANY(seed).integers(-900, 900, (1, *fixed.shapes["x"])).astype(np.int16)}
    np.testing.assert_array_equal(run_fixed(made, x)["y"], run_fixed(fixed, x)["y"])


def changed(fixed: FixedGraph, name: str, **values: object) -> FixedGraph:
    """The layer that makes the tensor ``name`` with other fields."""
    layers = [
        replace(one, **values) if one.outputs == (name,) else one for one in fixed.layers  # type: ignore[arg-type]
    ]
    return replace(fixed, layers=tuple(layers))


def with_reader(fixed: FixedGraph, tensor: str) -> FixedGraph:
    shape = (1, fixed.shapes[tensor][0], 1, 1)
    other = conv(9, tensor, "o", shape)
    shapes = {**fixed.shapes, "o": (1, *fixed.shapes[tensor][1:])}
    return replace(
        fixed, layers=(*fixed.layers, other), shapes=shapes, outputs=("y", "o"),
        scales=fixed.scales | q_point_scales({"o": 8}),
    )  # fmt: skip


REFUSED = {
    "another reader of a part": lambda: with_reader(fire(), "n"),
    "another reader of the whole": lambda: with_reader(fire(), "c"),
    "another reader of the pool": lambda: with_reader(fire(with_pool=True), "p"),
    "an output between": lambda: replace(fire(), outputs=("y", "c")),
    "another input": lambda: changed(fire(), "n", inputs=("x",)),
    "fewer filters": lambda: changed(
        replace(fire(), shapes={**fire().shapes, "n": (2, 7, 6)}), "n",
        weight=np.ones((2, 2, 1, 1), np.int16),
    ),
    "groups": lambda: changed(fire(), "w", groups=2),
    "windows in front of the other's": lambda: changed(fire(), "w", padding=(3, 1, -1, 1)),
    "a window behind": lambda: changed(fire(), "z", weight=np.ones((5, 6, 3, 3), np.int16)),
    "three parts": lambda: changed(fire(), "c", inputs=("n", "w", "n")),
}  # fmt: skip


@pytest.mark.parametrize("why", REFUSED)
def test_what_is_no_fire_module(why: str) -> None:
    assert list(twin_blocks(fire())) and not list(twin_blocks(REFUSED[why]()))
