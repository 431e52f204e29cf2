"""Every operator's room answers the whole protocol, and nobody else knows the operators."""

from __future__ import annotations

import ast
from pathlib import Path

import numpy as np
import pytest

from tvm_npu.codegen.errors import GraphError, QuantizationError
from tvm_npu.codegen.graph import RELU, FixedLayer, Graph, Layer, Shape, State
from tvm_npu.codegen.ops import (
    OPERATORS,
    Broadcast,
    ChannelSlice,
    Concat,
    Conv2d,
    Dense,
    Difference,
    Elementwise,
    FixedBlock,
    FixedCascade,
    FixedConv,
    FixedElementwise,
    FixedPool,
    FixedRun,
    Gru,
    Join,
    Lstm,
    MaxFeatureMap,
    Maximum,
    Pad,
    Pool,
    ReflectPad,
    Reshape,
    ResizeNearest,
    ScaleShift,
    Softmax,
    StridedSlice,
    TableFunction,
    Transpose,
    TransposedConv,
    operator_of,
)
from tvm_npu.codegen.ops.operator import Placement
from tvm_npu.codegen.ops.registry import (
    check_shapes,
    emitted_layers,
    kind_of,
    layer_macs,
    tied_tensors,
)
from tvm_npu.codegen.passes.calibrate import calibrate
from tvm_npu.codegen.passes.quantize import quantize
from tvm_npu.codegen.reference import run_fixed, run_float
from tvm_npu.sim.kinds import BUILT_IN

ROOT = Path(__file__).parents[3]


def ones(*shape: int) -> np.ndarray:
    return np.ones(shape, np.float32)


def some(*shape: int) -> np.ndarray:
    return np.random.default_rng(3).normal(size=shape).astype(np.float32)


SAMPLES: dict[str, tuple[Layer, tuple[Shape, ...], Shape | dict[str, Shape], int]] = {
    "conv": (
        Conv2d("l", ("x",), ("y",), ones(4, 3, 2, 3), 0 * ones(4), (2, 1), (1, 0, 1, 0), (2, 1), 2),
        ((6, 7, 5),), (4, 4, 3), 4 * 18 * 12,
    ),
    "residual": (
        Conv2d("l", ("x", "r"), ("y",), ones(4, 6, 1, 1), 0 * ones(4)),
        ((6, 2, 3), (4, 2, 3)), (4, 2, 3), 4 * 6 * 2 * 3,
    ),
    "flat conv": (
        Conv2d("l", ("x",), ("y",), ones(6, 1, 1, 1), 0 * ones(6), groups=6), ((6,),), (6,), 6,
    ),
    "dense": (Dense("l", ("x",), ("y",), ones(3, 5), 0 * ones(3)), ((5,),), (3,), 15),
    "pool": (Pool("l", ("x",), ("y",), "avg", (2, 3), (2, 1)), ((2, 6, 5),), (2, 3, 3), 0),
    "scale": (ScaleShift("l", ("x",), ("y",), ones(2), ones(2)), ((2, 3, 3),), (2, 3, 3), 0),
    "mul": (
        Elementwise("l", ("x", "r"), ("y",), "mul"), ((2, 3, 4), (2, 3, 4)), (2, 3, 4), 0
    ),
    "broadcast": (
        Broadcast("l", ("x", "r"), ("y",), "mul", RELU), ((2, 3, 4), (2, 1, 1)), (2, 3, 4), 0
    ),
    "difference": (
        Difference("l", ("x", "r"), ("y",)), ((2, 3, 4), (2, 1, 1)), (2, 3, 4), 0
    ),
    "pad": (
        Pad("l", ("x",), ("y",), (1, -1, 2), (0, 3, 0), (2, 2), 0.5), ((2, 4, 3),), (3, 3, 3), 0
    ),
    "concat": (Concat("l", ("x", "r"), ("y",)), ((2, 3, 4), (5, 3, 4)), (7, 3, 4), 0),
    "reshape": (Reshape("l", ("x",), ("y",)), ((2, 3, 4),), (24,), 0),
    "slice": (ChannelSlice("l", ("x",), ("y",), 1), ((4, 3, 4),), (2, 3, 4), 0),
    "transposed": (
        TransposedConv(
            "l", ("x",), ("y",), ones(4, 3, 3, 2), 0 * ones(4), (2, 1), (1, 0, 1, 1), (1, 0), 2
        ),
        ((6, 4, 3),), (4, 8, 3), 4 * 3 * (4 + 4 + 3) * (3 + 2),
    ),
    "reflect": (ReflectPad("l", ("x",), ("y",), (1, 3, 2, 0)), ((2, 3, 4),), (2, 6, 7), 0),
    "max": (Maximum("l", ("x", "r"), ("y",), RELU), ((2, 3, 4), (2, 3, 4)), (2, 3, 4), 0),
    "feature map": (MaxFeatureMap("l", ("x",), ("y",)), ((6, 3, 4),), (3, 3, 4), 0),
    "transpose": (
        Transpose("l", ("x",), ("y",), (2, 3, 4), (2, 0, 1)), ((2, 3, 4),), (4, 2, 3), 0
    ),
    "join": (
        Join("l", ("x", "r"), ("y",), ((2, 3, 4), (2, 5, 4)), 1),
        ((2, 3, 4), (2, 5, 4)), (2, 8, 4), 0,
    ),
    "strided": (
        StridedSlice("l", ("x",), ("y",), (2, 3, 7), (0, 2, 1), (1, -1, 2), (2, 3, 3)),
        ((2, 3, 7),), (2, 3, 3), 0,
    ),
    "nearest": (
        ResizeNearest("l", ("x",), ("y",), (2, 2, 3), (0, 0, 1, 1), (0, 1, 1, 2)),
        ((2, 2, 3),), (2, 4, 4), 0,
    ),
    "tanh": (TableFunction("l", ("x",), ("y",), "tanh"), ((2, 3, 4),), (2, 3, 4), 0),
    "softmax": (Softmax("l", ("x",), ("y",), 4), ((2, 3, 4),), (2, 3, 4), 0),
    "lstm": (
        Lstm(
            "l", ("x", "c0"), ("y", "h1", "c1"), some(12, 4), some(12, 3), some(12),
            states=(State("h", None, "h1"), State("c", "c0", "c1")),
        ),
        ((5, 4), (3,)), {"y": (5, 3), "h1": (3,), "c1": (3,), "h": (3,), "c": (3,)}, 5 * 12 * 7,
    ),
    "gru": (
        Gru(
            "l", ("x",), ("y", "h1"), some(9, 4), some(9, 3), some(9), some(3),
            states=(State("h", None, "h1"),),
        ),
        ((5, 4),), {"y": (5, 3), "h1": (3,), "h": (3,)}, 5 * 9 * 7,
    ),
}  # fmt: skip


def graph_of(
    layer: Layer, inputs: tuple[Shape, ...], output: Shape | dict[str, Shape]
) -> Graph:
    made = output if isinstance(output, dict) else {"y": output}
    shapes = {**dict(zip(layer.inputs, inputs, strict=True)), **made}
    return Graph((layer,), shapes, layer.inputs, layer.outputs)


def test_the_samples_hold_every_float_layer() -> None:
    floats = {kind for kind in OPERATORS if issubclass(kind, Layer)}
    assert {type(layer) for layer, *_ in SAMPLES.values()} == floats
    fixed = {operator.fixed for operator in OPERATORS.values()} - {None}
    assert fixed == {kind for kind in OPERATORS if issubclass(kind, FixedLayer)}
    for kind, operator in OPERATORS.items():
        assert kind in (operator.layer, operator.fixed)


@pytest.mark.parametrize("name", SAMPLES)
def test_a_room_answers_everything(name: str) -> None:
    layer, inputs, output, macs = SAMPLES[name]
    graph = graph_of(layer, inputs, output)
    check_shapes(graph)
    assert layer_macs(layer, graph.shapes) == macs
    random = np.random.default_rng(8)
    sample = {n: random.normal(size=(2, *s)).astype(np.float32)
              for n, s in zip(layer.inputs, inputs, strict=True)}  # fmt: skip
    floats = run_float(graph, sample)
    for tied in tied_tensors(layer):
        states = {state.tensor for state in layer.states}
        assert set(tied) <= {*layer.inputs, *layer.outputs, *states} and len(tied) > 1
    operator = operator_of(layer)
    needed = emitted_layers(type(layer))
    assert all(issubclass(kind, FixedLayer) for kind in needed)
    assert (operator.placement is Placement.VIEW) == (not needed)
    if operator.fixed is None:
        with pytest.raises(QuantizationError, match="fuse the graph first"):
            quantize(graph, calibrate(graph, [sample]), "int16")
        return
    fixed = quantize(graph, calibrate(graph, [sample]), "int16")
    (made,) = fixed.layers
    assert isinstance(made, operator.fixed) and made.source == layer.source
    check_shapes(fixed)
    assert layer_macs(made, fixed.shapes) == macs and kind_of(made)
    integers = run_fixed(fixed, {n: fixed.scales[n].quantize(sample[n], 2) for n in fixed.inputs})
    for name in layer.outputs:
        error = np.abs(fixed.scales[name].dequantize(integers[name]) - floats[name])
        assert error.max() < 2e-3 * max(1.0, np.abs(floats[name]).max())
    if operator.placement is Placement.VIEW:
        (offset,) = operator.view_offsets(made, fixed.shapes)
        flat = integers["x"].reshape(2, -1)[:, offset:]
        np.testing.assert_array_equal(
            flat[:, : integers["y"][0].size], integers["y"].reshape(2, -1)
        )


@pytest.mark.parametrize(
    ("name", "inputs", "output", "message"),
    [
        ("conv", ((5, 7, 5),), (4, 4, 3), "with 2 groups does not fit the input"),
        ("conv", ((6, 7, 5),), (4, 4, 4), r"makes \[\(4, 4, 3\)\]; the graph says"),
        ("residual", ((6, 2, 3), (4, 2, 2)), (4, 2, 3), "its residual 'r' has"),
        ("dense", ((6,),), (3,), "does not fit the input"),
        ("pool", ((2, 6, 5),), (2, 2, 3), "makes"),
        ("scale", ((3, 3, 3),), (3, 3, 3), "has 3 channels"),
        ("mul", ((2, 3, 4), (2, 3, 5)), (2, 3, 4), "the shapes must be equal"),
        ("pad", ((2, 4, 3),), (3, 4, 5), "makes"),
        ("concat", ((2, 3, 4), (5, 3, 3)), (7, 3, 4), "all but the channels"),
        ("reshape", ((2, 3, 4),), (23,), "24 and 23, differ"),
        ("slice", ((2, 3, 4),), (2, 3, 4), "channels 1 to 3 of 2"),
        ("transposed", ((5, 4, 3),), (4, 8, 3), "with 2 groups does not fit the input"),
        ("transposed", ((6, 4, 3),), (4, 7, 3), r"makes \[\(4, 8, 3\)\]; the graph says"),
        ("reflect", ((2, 2, 4),), (2, 5, 7), "at least 0 and below the extent"),
        ("reflect", ((2, 3, 3),), (2, 6, 6), "at least 0 and below the extent"),
        ("max", ((2, 3, 4), (2, 3, 5)), (2, 3, 4), "the shapes must be equal"),
        ("feature map", ((5, 3, 4),), (2, 3, 4), "an even number of channels"),
        ("tanh", ((2, 3, 4),), (2, 3, 5), "makes"),
        ("gru", ((5, 5),), {"y": (5, 3), "h1": (3,), "h": (3,)}, "do not fit the input"),
        ("gru", ((5, 4),), {"y": (4, 3), "h1": (3,), "h": (3,)}, "makes"),
    ],
)
def test_shapes_that_do_not_fit(
    name: str, inputs: tuple[Shape, ...], output: Shape | dict[str, Shape], message: str
) -> None:
    with pytest.raises(GraphError, match=message):
        check_shapes(graph_of(SAMPLES[name][0], inputs, output))


TAKE_ONE_OR_TWO = ("conv", "dense", "pool", "mul", "pad", "reshape", "transposed", "max")


@pytest.mark.parametrize("name", TAKE_ONE_OR_TWO)
def test_too_many_inputs(name: str) -> None:
    layer, inputs, output, _ = SAMPLES[name]
    more = type(layer)(
        **{**vars(layer), "inputs": (*layer.inputs, "p", "q"), "outputs": layer.outputs}
    )
    with pytest.raises(GraphError, match="'l' has . inputs; it takes"):
        check_shapes(graph_of(more, (*inputs, output, output), output))


def test_a_chain_means_its_two_layers() -> None:
    random = np.random.default_rng(4)
    limits = {"shift": 4, "low": -100, "high": 120}
    conv = FixedConv(
        "c", ("x",), ("v",), **limits, padding=(1, 1, 1, 1),
        weight=random.integers(-9, 9, (5, 3, 3, 3)).astype(np.int8),
        bias=random.integers(-99, 99, 5).astype(np.int32),
    )  # fmt: skip
    depthwise = FixedConv(
        "d", ("v",), ("y",), **limits, groups=5,
        weight=random.integers(-9, 9, (5, 1, 2, 2)).astype(np.int8), bias=np.zeros(5, np.int32),
    )  # fmt: skip
    pool = FixedPool("p", ("v",), ("y",), "max", (2, 2), shift=0, low=-3, high=50)
    x = random.integers(-128, 128, (2, 3, 6, 7)).astype(np.int8)
    for window, word in ((depthwise, "conv+conv"), (pool, "conv+max_pool")):
        chain = FixedCascade("cw", ("x",), ("y",), conv=conv, window=window)
        room = operator_of(chain)
        shapes = {"x": (3, 6, 7), "v": (5, 6, 7), "y": (5, 5, 6)}
        assert list(room.shapes(chain, [shapes["x"]], [shapes["y"]])) == [shapes["y"]]
        (between,) = operator_of(conv).run_fixed(conv, [x], [shapes["v"]], 1)
        (apart,) = operator_of(window).run_fixed(window, [between], [shapes["y"]], 1)
        (together,) = room.run_fixed(chain, [x], [shapes["y"]], 1)
        np.testing.assert_array_equal(together, apart)
        assert kind_of(chain) == word
        assert layer_macs(chain, shapes) == layer_macs(conv, shapes) + layer_macs(window, shapes)


def test_a_block_means_its_head_and_what_is_behind() -> None:
    random = np.random.default_rng(5)
    limits = {"shift": 3, "low": -90, "high": 127}

    def conv(name: str, inputs: tuple[str, ...], output: str, *shape: int) -> FixedConv:
        weight = random.integers(-9, 9, shape).astype(np.int8)
        bias = random.integers(-99, 99, shape[0]).astype(np.int32)
        return FixedConv(name, inputs, (output,), **limits, weight=weight, bias=bias)

    head, pool = conv("c", ("x",), "v", 5, 3, 3, 3), FixedPool(
        "p", ("v",), ("w",), "max", (2, 2), shift=0, low=-3, high=50
    )  # fmt: skip
    shapes = {"x": (3, 6, 7), "v": (5, 4, 5), "w": (5, 3, 4), "y": (4, 4, 5), "z": (4, 3, 4)}
    x, r = (random.integers(-128, 128, (2, *shapes[name])).astype(np.int8) for name in "xy")
    (between,) = operator_of(head).run_fixed(head, [x], [shapes["v"]], 1)
    point = conv("q", ("v", "r"), "y", 4, 5, 1, 1)
    block = FixedBlock("cq", ("x", "r"), ("y",), head=head, point=point)
    room = operator_of(block)
    (apart,) = operator_of(point).run_fixed(point, [between, r], [shapes["y"]], 1)
    (together,) = room.run_fixed(block, [x, r], [shapes["y"]], 1)
    np.testing.assert_array_equal(together, apart)
    assert list(room.shapes(block, [shapes["x"], shapes["y"]], [shapes["y"]])) == [shapes["y"]]
    known = {**shapes, "r": shapes["y"]}
    assert layer_macs(block, known) == layer_macs(head, known) + layer_macs(point, known)
    assert kind_of(block) == "conv+conv"

    cascade = FixedCascade("cp", ("x",), ("w",), conv=head, window=pool)
    point = conv("q", ("w",), "z", 4, 5, 1, 1)
    block = FixedBlock("cpq", ("x",), ("z",), head=cascade, point=point)
    (middle,) = operator_of(cascade).run_fixed(cascade, [x], [shapes["w"]], 1)
    (apart,) = operator_of(point).run_fixed(point, [middle], [shapes["z"]], 1)
    np.testing.assert_array_equal(room.run_fixed(block, [x], [shapes["z"]], 1)[0], apart)
    assert kind_of(block) == "conv+max_pool+conv"


def test_a_run_means_its_blocks() -> None:
    """The second block adds what it takes, the third a tensor of its own."""
    random = np.random.default_rng(6)

    def block(number: int, residual: str) -> FixedBlock:
        def conv(inputs: tuple[str, ...], output: str, *shape: int) -> FixedConv:
            weight = random.integers(-9, 9, shape).astype(np.int8)
            bias = random.integers(-99, 99, shape[0]).astype(np.int32)
            return FixedConv(
                output, inputs, (output,), shift=3, low=-90, high=127, weight=weight, bias=bias,
                residual_shift=2, padding=(shape[-1] // 2,) * 4,
            )  # fmt: skip

        source, added = f"t{number}", (residual,) if residual else ()
        head = conv((source,), f"v{number}", 5, 4, 3, 3)
        point = conv((f"v{number}", *added), f"t{number + 1}", 4, 5, 1, 1)
        return FixedBlock(f"b{number}", (source, *added), point.outputs, head=head, point=point)

    blocks = block(0, ""), block(1, "t1"), block(2, "r")
    run = FixedRun("b", ("t0", "r"), ("t3",), blocks=blocks)
    shapes: dict[str, Shape] = dict.fromkeys(("t0", "t1", "t2", "t3", "r"), (4, 6, 7))
    known = {x: random.integers(-128, 128, (2, 4, 6, 7)).astype(np.int8) for x in ("t0", "r")}
    (together,) = operator_of(run).run_fixed(run, [known["t0"], known["r"]], [shapes["t3"]], 1)
    for one in blocks:
        (made,) = operator_of(one).run_fixed(
            one, [known[x] for x in one.inputs], [shapes[one.output]], 1
        )
        known[one.output] = made
    np.testing.assert_array_equal(together, known["t3"])
    assert list(operator_of(run).shapes(run, [shapes["t0"]] * 2, [(1, 1, 1)])) == [shapes["t3"]]
    assert layer_macs(run, shapes) == sum(layer_macs(one, shapes) for one in blocks)
    assert kind_of(run) == "run_of_3"


def test_what_machines_must_emit() -> None:
    assert emitted_layers(Dense) == emitted_layers(ScaleShift) == {FixedConv}
    assert emitted_layers(Concat) == {FixedElementwise}
    with pytest.raises(GraphError, match="int is no layer.*Conv2d, FixedConv"):
        emitted_layers(int)  # type: ignore[arg-type]


MAY_NAME_OPERATORS = {
    "codegen/passes/fuse.py": "where two operators meet",
    "codegen/passes/fold_affine.py": "where two operators meet",
    "codegen/passes/cascades.py": "layers that run as one",
    "codegen/passes/blocks.py": "layers that run as one",
    "codegen/passes/twins.py": "layers that run as one",
    "codegen/passes/slopes.py": "slopes that join the layer in front",
    "codegen/passes/equalize.py": "factors of channels",
    "codegen/passes/rescale.py": "factors of channels",
    "codegen/passes/correct_bias.py": "biases",
    "codegen/passes/pointwise.py": "what layers do to single elements",
    "codegen/graph_bound.py": "what layers read, multiply and make at least",
    "codegen/layers.py": "the question that planners are asked about convolutions",
    "codegen/loop_backend.py": "the same question, for kinds whose plans are loops",
    "tvm_npu/warmup.py": "the small network that has machine code made",
    "tvm_npu/door/layers.py": "what operators of a model become, for every door",
    "tvm_npu/door/recurrent_layers.py": "what unrolled recurrent layers become",
    "codegen/passes/averages.py": "pools in parts, averages as convolutions",
    "codegen/passes/pools_apart.py": "pools of concatenated tensors",
    "codegen/passes/siblings.py": "convolutions of one tensor as one",
    "codegen/passes/sums.py": "layers that run as one",
    "codegen/passes/dilation.py": "dilated convolutions and what they bring",
    "codegen/passes/given_scales.py": "the spelling of quantized models",
    "codegen/passes/held.py": "copies that clip",
    "codegen/passes/scales.py": "copies where two scales meet",
    "codegen/passes/weighed.py": "averages as depthwise convolutions",
    "codegen/passes/mirrors.py": "reflection padding as what moves elements",
    "codegen/fast/convolutions.py": "compiled loops of convolutions, all else as the reference",
    "codegen/shared_graphs.py": "pools that memories cut into parts",
    "codegen/passes/softmax_steps.py": "softmax as layers that machines have",
    "codegen/passes/row_major.py": "weights that doors hand over transposed",
    "codegen/passes/phases.py": "transposed convolutions as convolutions",
    "tvm_npu/door/partition.py": "what layers over tokens need of a machine",
    "tvm_npu/door/tokens.py": "layers over tokens as convolutions",
    "tvm_npu/door/moving.py": "operator calls that move elements as layers",
    "tvm_npu/tuning/model.py": "the layers that are tuned",
    "tvm_npu/tuning/single_layer.py": "a layer made from the question that it asks",
    "tvm_npu/cli/ir_command.py": "the convolutions that execution plans are written for",
}
OPERATOR_NAMES = {kind.__name__ for kind in OPERATORS}
ROOMS = ("codegen/ops/", *(f"codegen/{kind}/" for kind in BUILT_IN))


def named_operators(text: str) -> set[str]:
    """Classes of operators that a module imports, or reads from a module called ``ops``."""
    found = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.ImportFrom) and "codegen.ops" in (node.module or ""):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.Attribute) and ast.unparse(node.value).endswith("ops"):
            found.add(node.attr)
    return found & OPERATOR_NAMES


def test_only_rooms_and_few_others_name_operators() -> None:
    naming = {}
    for folder in ("codegen", "runtime", "sim", "tvm_npu"):
        for path in (ROOT / folder).rglob("*.py"):
            name = path.relative_to(ROOT).as_posix()
            found = named_operators(path.read_text("utf-8"))
            if found and not name.startswith(ROOMS):
                naming[name] = found
    assert not {name: found for name, found in naming.items() if name not in MAY_NAME_OPERATORS}
    assert set(naming) == set(MAY_NAME_OPERATORS), "take those off the list that no longer do"


def test_naming_an_operator_is_noticed() -> None:
    assert named_operators("from tvm_npu.codegen.ops import Conv2d, operator_of") == {"Conv2d"}
    assert named_operators("from tvm_npu.codegen.ops.pool import Pool as P") == {"Pool"}
    assert named_operators("from tvm_npu.codegen import ops\nx = ops.Dense") == {"Dense"}
    assert named_operators("from tvm_npu.codegen.ops.registry import operator_of") == set()
