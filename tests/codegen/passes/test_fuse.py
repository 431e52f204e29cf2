"""Fusing: what each rewrite does, and that none changes what a graph computes."""

from __future__ import annotations

from dataclasses import fields

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.codegen.random_graphs import ALL_OPS, graphs, random_inputs
from tests.examples import examples
from tvm_npu.codegen.errors import GraphError
from tvm_npu.codegen.graph import NO_CLIP, RELU, Clip, Graph, Layer
from tvm_npu.codegen.ops import (
    ChannelSlice,
    Concat,
    Conv2d,
    Dense,
    Elementwise,
    MaxFeatureMap,
    Maximum,
    Pad,
    Pool,
    ReflectPad,
    Reshape,
    ScaleShift,
    TableFunction,
    TransposedConv,
)
from tvm_npu.codegen.passes.fuse import drop_dead, fuse
from tvm_npu.codegen.reference import run_float

SHAPE = (4, 6, 6)


def constants(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def conv(x: str, y: str, *, kernel: int = 3, padding: int = 1, clip: Clip = NO_CLIP) -> Conv2d:
    weight = constants(4, 4, kernel, kernel, seed=len(y)) / 6
    return Conv2d(
        f"conv_{y}", (x,), (y,), weight, constants(4, seed=9), padding=(padding,) * 4,
        activation=clip, source=(y,),
    )  # fmt: skip


def affine(x: str, y: str, bias: bool = True) -> ScaleShift:
    offset = constants(4, seed=3) if bias else np.zeros(4, np.float32)
    return ScaleShift(f"affine_{y}", (x,), (y,), constants(4, seed=2), offset, source=(y,))


def activation(x: str, y: str, clip: Clip = RELU) -> Elementwise:
    return Elementwise(f"clip_{y}", (x,), (y,), "copy", clip, source=(y,))


def add(a: str, b: str, y: str, clip: Clip = NO_CLIP) -> Elementwise:
    return Elementwise(f"add_{y}", (a, b), (y,), "add", clip, source=(y,))


def pool(x: str, y: str) -> Pool:
    return Pool(f"pool_{y}", (x,), (y,), "max", (3, 3), (1, 1), (1, 1, 1, 1), source=(y,))


def graph(*layers: Layer, outputs: tuple[str, ...] | None = None, **shapes: tuple) -> Graph:
    known = {"x": SHAPE, **{layer.output: SHAPE for layer in layers}, **shapes}
    return Graph(layers, known, ("x",), outputs or (layers[-1].output,))


def assert_same(before: Graph, after: Graph) -> None:
    assert after.inputs == before.inputs and after.outputs == before.outputs
    inputs = random_inputs(before, seed=1)
    expected, got = run_float(before, inputs), run_float(after, inputs)
    for tensor in got:
        scale = max(1.0, float(np.abs(expected[tensor]).max()))
        assert np.abs(got[tensor] - expected[tensor]).max() <= 1e-4 * scale, tensor
    live = drop_dead(before) or before
    assert sources(after) == sources(live)


def sources(any_graph: Graph) -> list[str]:
    return sorted(op for layer in any_graph.layers for op in layer.source)


def fused(*layers: Layer, outputs: tuple[str, ...] | None = None, **shapes: tuple) -> Graph:
    before = graph(*layers, outputs=outputs, **shapes)
    after = fuse(before)
    assert_same(before, after)
    return after


def kinds(any_graph: Graph) -> list[str]:
    return [type(layer).__name__ for layer in any_graph.layers]


@settings(max_examples=examples(120), deadline=None)
@given(graphs(max_layers=14, ops=ALL_OPS))
def test_fusing_keeps_values_names_and_sources(before: Graph) -> None:
    after = fuse(before)
    assert_same(before, after)
    assert "ScaleShift" not in kinds(after)
    assert describe(fuse(before)) == describe(after), "not deterministic"
    assert describe(fuse(after)) == describe(after), "not a fixed point"


def describe(any_graph: Graph) -> list[tuple]:
    return [
        tuple(
            value.tobytes() if isinstance(value, np.ndarray) else value
            for value in (getattr(layer, f.name) for f in fields(layer))
        )
        for layer in any_graph.layers
    ]


def test_batch_norm_and_relu_end_in_the_convolution() -> None:
    after = fused(conv("x", "a"), affine("a", "b"), activation("b", "y"))
    (layer,) = after.layers
    assert isinstance(layer, Conv2d)
    assert (layer.name, layer.inputs, layer.output) == ("conv_a", ("x",), "y")
    assert layer.activation == RELU and layer.source == ("a", "b", "y")


def test_affine_does_not_fold_behind_a_clip_or_a_second_reader() -> None:
    clipped = fused(conv("x", "a", clip=RELU), affine("a", "y"))
    assert kinds(clipped) == ["Conv2d", "Conv2d"]
    shared = fused(conv("x", "a"), affine("a", "b"), pool("a", "c"), add("b", "c", "y"))
    assert kinds(shared) == ["Conv2d", "Pool", "Conv2d"]


def test_affine_does_not_fold_into_a_producer_that_is_an_output() -> None:
    after = fused(conv("x", "a"), affine("a", "y"), outputs=("a", "y"))
    assert kinds(after) == ["Conv2d", "Conv2d"]


def test_affine_before_a_convolution() -> None:
    assert kinds(fused(affine("x", "a"), conv("a", "y", padding=0), y=(4, 4, 4))) == ["Conv2d"]
    assert kinds(fused(affine("x", "a", bias=False), conv("a", "y"))) == ["Conv2d"]
    assert kinds(fused(affine("x", "a"), conv("a", "y"))) == ["Conv2d", "Conv2d"]


def test_affine_before_a_grouped_convolution_takes_its_own_channels() -> None:
    weight = constants(6, 2, 1, 1)
    grouped = Conv2d("g", ("a",), ("y",), weight, constants(6), groups=2, source=("y",))
    assert kinds(fused(affine("x", "a"), grouped, y=(6, 6, 6))) == ["Conv2d"]


def test_lonely_affine_becomes_a_depthwise_convolution() -> None:
    (layer,) = fused(affine("x", "a"), affine("a", "y")).layers
    assert isinstance(layer, Conv2d)
    assert layer.groups == 4 and layer.weight.shape == (4, 1, 1, 1)
    assert layer.source == ("a", "y")


def test_affine_on_flat_tensors_folds_into_dense() -> None:
    dense = Dense("d", ("f",), ("a",), constants(4, 144), constants(4), source=("a",))
    flatten = Reshape("r", ("x",), ("f",), source=("f",))
    after = fused(flatten, dense, affine("a", "y"), f=(144,), a=(4,), y=(4,))
    assert kinds(after) == ["Reshape", "Dense"]


def test_misshapen_affine_is_refused() -> None:
    bad = ScaleShift("bn", ("x",), ("y",), constants(3), constants(3))
    with pytest.raises(GraphError, match=r"'bn' has scale \(3,\).*4 channels"):
        fuse(graph(bad))


def test_residual_takes_the_later_convolution_and_the_clip() -> None:
    after = fused(conv("x", "a"), conv("x", "bb"), add("a", "bb", "c"), activation("c", "y"))
    first, second = after.layers
    assert first.name == "conv_a" and second.name == "conv_bb"
    assert isinstance(second, Conv2d)
    assert second.inputs == ("x", "a") and second.activation == RELU and second.output == "y"


def test_residual_waits_for_the_other_side() -> None:
    after = fused(conv("x", "a"), pool("x", "p"), activation("p", "q"), add("a", "q", "y"))
    assert [layer.name for layer in after.layers] == ["pool_p", "conv_a"]
    assert after.layers[1].inputs == ("x", "q")


def test_residual_may_be_the_convolution_s_own_input() -> None:
    assert fused(conv("x", "a"), add("a", "x", "y")).layers[0].inputs == ("x", "x")


def test_additions_that_stay() -> None:
    assert kinds(fused(conv("x", "a"), add("a", "a", "y"))) == ["Conv2d", "Elementwise"]
    clipped = fused(conv("x", "a", clip=RELU), add("a", "x", "y"))
    assert kinds(clipped) == ["Conv2d", "Elementwise"]
    output = fused(conv("x", "a"), add("a", "x", "y"), outputs=("a", "y"))
    assert kinds(output) == ["Conv2d", "Elementwise"]


def test_a_convolution_takes_one_residual_only() -> None:
    after = fused(conv("x", "a"), add("a", "x", "b"), add("b", "x", "y"))
    assert kinds(after) == ["Conv2d", "Elementwise"]


def test_clips_compose() -> None:
    after = fused(pool("x", "a"), activation("a", "b", Clip(-1, 1)), activation("b", "y", RELU))
    (layer,) = after.layers
    assert isinstance(layer, Pool) and layer.activation == Clip(0.0, 1.0)
    apart = Clip(0.5, 2.0), Clip(-1.0, 0.25)
    (layer,) = fused(activation("x", "a", apart[0]), activation("a", "y", apart[1])).layers
    assert isinstance(layer, Elementwise) and layer.activation == Clip(0.25, 0.25)


def test_padding_moves_into_the_convolution() -> None:
    pad = Pad("p", ("x",), ("a",), (0, 1, 0), (0, 2, 3), source=("a",))
    (layer,) = fused(pad, conv("a", "y"), a=(4, 9, 9), y=(4, 9, 9)).layers
    assert isinstance(layer, Conv2d) and layer.padding == (2, 1, 3, 4)


@pytest.mark.parametrize(
    ("before", "after", "value", "shape"),
    [
        ((0, 1, 1), (0, 1, 1), 0.5, (4, 8, 8)),
        ((0, -1, 0), (0, 0, 0), 0.0, (4, 5, 6)),
        ((1, 0, 0), (-1, 0, 0), 0.0, (4, 6, 6)),
    ],
)
def test_padding_that_stays(before: tuple, after: tuple, value: float, shape: tuple) -> None:
    pad = Pad("p", ("x",), ("a",), before, after, value=value, source=("a",))
    assert kinds(fused(pad, conv("a", "y"), a=shape, y=shape)) == ["Pad", "Conv2d"]


def test_a_crop_moves_into_an_unpadded_convolution() -> None:
    crop = Pad("p", ("x",), ("a",), (0, -1, 0), (0, 0, -1), source=("a",))
    (layer,) = fused(crop, conv("a", "y", padding=0), a=(4, 5, 5), y=(4, 3, 3)).layers
    assert isinstance(layer, Conv2d) and layer.padding == (-1, 0, 0, -1)


def test_strided_shortcut_with_channel_padding_is_one_pad() -> None:
    take = Pad("s", ("x",), ("a",), (0, 0, 0), (0, 0, 0), (2, 2), source=("a",))
    widen = Pad("w", ("a",), ("y",), (2, 0, 0), (1, 0, 0), source=("y",))
    assert kinds(fused(take, widen, a=(4, 3, 3), y=(7, 3, 3))) == ["Pad"]


def test_filled_rows_do_not_merge_with_channel_padding() -> None:
    fill = Pad("f", ("x",), ("a",), (0, 1, 0), (0, 0, 0), value=0.5, source=("a",))
    widen = Pad("w", ("a",), ("y",), (1, 0, 0), (0, 0, 0), source=("y",))
    assert kinds(fused(fill, widen, a=(4, 7, 6), y=(5, 7, 6))) == ["Pad", "Pad"]


def test_identities_vanish() -> None:
    after = fused(
        Reshape("r", ("x",), ("a",), source=("a",)),
        conv("a", "b"),
        ChannelSlice("s", ("b",), ("c",), 0, source=("c",)),
        Concat("k", ("c",), ("d",), source=("d",)),
        Pad("p", ("d",), ("e",), (0, 0, 0), (0, 0, 0), source=("e",)),
        activation("e", "y", NO_CLIP),
    )
    (layer,) = after.layers
    assert (layer.name, layer.inputs, layer.output) == ("conv_b", ("x",), "y")


def test_a_copy_keeps_input_and_output_apart() -> None:
    after = fused(Reshape("r", ("x",), ("y",), source=("y",)))
    (layer,) = after.layers
    assert isinstance(layer, Elementwise) and layer.op == "copy" and layer.activation.is_identity
    two = fused(conv("x", "a"), activation("a", "y", NO_CLIP), outputs=("a", "y"))
    assert kinds(two) == ["Conv2d", "Elementwise"]


def test_output_copy_renames_the_tensor_for_other_readers() -> None:
    after = fused(conv("x", "a"), pool("a", "p"), activation("a", "y", NO_CLIP), outputs=("y", "p"))
    assert [(layer.inputs, layer.output) for layer in after.layers] == [
        (("x",), "y"),
        (("y",), "p"),
    ]


def test_dead_layers_vanish() -> None:
    after = fused(conv("x", "y"), pool("x", "z"), affine("z", "w"), outputs=("y",))
    assert kinds(after) == ["Conv2d"]


def test_long_chains_fuse_quickly() -> None:
    layers: list[Layer] = []
    tensor = "x"
    for block in range(150):
        a, b, c = (f"{name}{block}" for name in "abc")
        layers += [conv(tensor, a, kernel=1, padding=0), affine(a, b), activation(b, c)]
        tensor = c
    assert len(fuse(graph(*layers)).layers) == 150


@settings(max_examples=examples(60), deadline=None)
@given(st.lists(st.floats(-8, 8), min_size=4, max_size=4), st.floats(-9, 9))
def test_clip_then(bounds: list[float], value: float) -> None:
    low, high, next_low, next_high = bounds
    first, second = Clip(min(low, high), max(low, high)), Clip(*sorted((next_low, next_high)))
    both = first.then(second)
    expected = np.clip(np.clip(value, first.low, first.high), second.low, second.high)
    assert np.clip(value, both.low, both.high) == expected


def halves(x: str, *begins: int) -> tuple[ChannelSlice, ...]:
    return tuple(
        ChannelSlice(f"part{n}", (x,), (f"p{n}",), begin, source=(f"p{n}",))
        for n, begin in enumerate(begins)
    )


@pytest.mark.parametrize("begins", [(0, 2), (2, 0)])
def test_maximum_of_both_halves_is_a_max_feature_map(begins: tuple[int, int]) -> None:
    largest = Maximum("max", ("p0", "p1"), ("a",), source=("m",))
    half = (2, 6, 6)
    shapes = {"p0": half, "p1": half, "a": half, "y": half}
    after = fused(conv("x", "c"), *halves("c", *begins), largest, activation("a", "y"), **shapes)
    made = after.layers[-1]
    assert kinds(after) == ["Conv2d", "MaxFeatureMap"] and isinstance(made, MaxFeatureMap)
    assert made.activation == RELU and made.name == "max"
    assert made.source == ("p0", "p1", "m", "y")


def test_a_half_that_others_read_stays() -> None:
    largest = Maximum("max", ("p0", "p1"), ("y",), source=("m",))
    half = (2, 6, 6)
    shapes = {"p0": half, "p1": half, "y": half}
    after = fused(*halves("x", 0, 2), largest, outputs=("y", "p1"), **shapes)
    assert sorted(kinds(after)) == ["ChannelSlice", "MaxFeatureMap"]


@pytest.mark.parametrize("begins", [(0, 1), (0, 0), (1, 2)])
def test_other_slices_stay_a_maximum(begins: tuple[int, int]) -> None:
    largest = Maximum("max", ("p0", "p1"), ("y",), source=("m",))
    half = (2, 6, 6)
    after = fused(*halves("x", *begins), largest, p0=half, p1=half, y=half)
    assert "Maximum" in kinds(after)


def test_batch_norm_and_relu_end_in_the_transposed_convolution() -> None:
    weight = constants(4, 4, 3, 3, seed=1) / 6
    layer = TransposedConv(
        "up", ("x",), ("a",), weight, constants(4), (2, 2), (1, 1, 1, 1), (1, 1), source=("a",)
    )
    large = dict.fromkeys("aby", (4, 12, 12))
    after = fused(layer, affine("a", "b"), activation("b", "y"), **large)
    (made,) = after.layers
    assert isinstance(made, TransposedConv) and made.activation == RELU
    assert made.source == ("a", "b", "y")


def test_a_sum_does_not_end_in_the_transposed_convolution() -> None:
    layer = TransposedConv("up", ("x",), ("a",), constants(4, 4, 1, 1), constants(4), source=("a",))
    after = fused(layer, add("a", "x", "y"))
    assert kinds(after) == ["TransposedConv", "Elementwise"]


def test_an_affine_before_a_transposed_convolution_or_a_table_stays_in_front() -> None:
    layer = TransposedConv("up", ("a",), ("y",), constants(4, 4, 1, 1), constants(4), source=("y",))
    assert kinds(fused(affine("x", "a"), layer)) == ["Conv2d", "TransposedConv"]
    table = TableFunction("t", ("a",), ("y",), "tanh", source=("y",))
    assert kinds(fused(affine("x", "a"), table)) == ["Conv2d", "TableFunction"]
    assert kinds(fused(affine("x", "a"), table, activation("y", "z"))) == [
        "Conv2d", "TableFunction",
    ]  # fmt: skip


def test_reflecting_nothing_goes_away() -> None:
    nothing = ReflectPad("pad", ("x",), ("a",), (0, 0, 0, 0), source=("a",))
    assert kinds(fused(nothing, conv("a", "y"))) == ["Conv2d"]
    row = ReflectPad("pad", ("x",), ("a",), (1, 0, 0, 0), source=("a",))
    shapes = dict.fromkeys("ay", (4, 7, 6))
    assert kinds(fused(row, conv("a", "y"), **shapes)) == ["ReflectPad", "Conv2d"]
