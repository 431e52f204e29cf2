"""The model builders: published layer counts and MACs, determinism, sane values, errors."""

from __future__ import annotations

from collections import Counter

import numpy as np
import numpy.typing as npt
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from tvm_npu import models
from tvm_npu.errors import PartitionError
from tvm_npu.models import data, light

ort = pytest.importorskip("onnxruntime")

# (convolutions, MACs of the convolutions, all MACs); the papers' figures are rounded.
PUBLISHED = {
    "lenet": (2, 1_888_000, 2_293_000),
    "squeezenet1.0": (26, 818_924_576, 818_924_576),
    "mobilenet_v2": (52, 299_494_272, 300_774_272),
    "resnet50": (53, 3_855_925_248, 3_857_973_248),
    "inception_v3": (94, 5_711_168_096, 5_713_216_096),
    "squeezenet1.1": (26, 349_151_936, 349_151_936),
    "resnet50_v1.5": (53, 4_087_136_256, 4_089_184_256),
    "vgg16": (13, 15_346_630_656, 15_470_264_320),
    "alexnet": (5, 1_076_634_144, 1_135_256_096),
    "yolov2": (23, 31_469_126_656, 31_469_126_656),
    "yolov2_eplanner": (23, 29_954_982_912, 29_954_982_912),
    "yolov3": (75, 32_932_037_632, 32_932_037_632),
    "darknet53": (52, 24_515_805_184, 24_515_805_184),
    "flownet_s": (10, 12_073_304_064, 12_073_304_064),
    "synthnet": (18, 3_754_156_576, 3_754_156_576),
    "synth1": (7, 37 * 56 * 56 * 32 * 32, 37 * 56 * 56 * 32 * 32),
    "synth2": (15, 88 * 56 * 56 * 32 * 32, 88 * 56 * 56 * 32 * 32),
    "synth3": (13, 110 * 56 * 56 * 32 * 32, 110 * 56 * 56 * 32 * 32),
    "alexnet_owt": (5, 655_566_528, 714_188_480),
    "resnet18": (20, 1_813_561_344, 1_814_073_344),
    "resnet34": (36, 3_663_249_408, 3_663_761_408),
    "googlenet": (57, 1_581_647_872, 1_582_671_872),
    "vgg19": (16, 19_508_428_800, 19_632_062_464),
    "light_cnn_9": (9, 972_554_240, 976_748_544),
    "linknet": (29, 2_565_865_472, 2_721_054_720),
    "style_transfer": (14, 7_662_993_408, 8_266_973_184),
    "efficientnet_b0": (81, 384_534_752, 385_814_752),
    "mobilenet_v3_large": (62, 214_080_960, 216_589_760),
    "mobilenet_v3_small": (52, 54_896_576, 56_510_400),
    "regnet_y_400mf": (85, 401_402_848, 401_842_848),
    "shufflenet_v2": (56, 143_883_992, 144_907_992),
    "unet": (19, 2_884_108_288, 3_018_326_016),
    "yolov5n": (60, 558_515_200, 558_515_200),
    "deeplabv3_mobilenet_v3": (70, 1_882_169_120, 1_882_169_120),
    "convnext_tiny": (22, 292_965_120, 4_455_531_264),
}
PARAMETERS = {
    # published counts, running statistics of batch normalizations left out
    "alexnet_owt": 61_100_840,
    "resnet18": 11_689_512,
    "resnet34": 21_797_672,
    "googlenet": 6_998_552,
    "vgg19": 143_667_240,
    "style_transfer": 1_679_235,
    "efficientnet_b0": 5_288_548,
    "mobilenet_v3_large": 5_483_032,
    "mobilenet_v3_small": 2_542_856,
    "regnet_y_400mf": 4_344_144,
    "shufflenet_v2": 2_278_604,
    "yolov5n": 1_872_157,
    "deeplabv3_mobilenet_v3": 11_029_328 - 3_851,  # the auxiliary classifier is for training
    "convnext_tiny": 28_589_128,
}
# Batch normalizations; no entry: none. Detection outputs have none behind them.
BATCH_NORMS = {
    "mobilenet_v2": 52,
    "resnet50": 53,
    "resnet50_v1.5": 53,
    "inception_v3": 94,
    "yolov2": 22,
    "yolov2_eplanner": 22,
    "yolov3": 72,
    "darknet53": 52,
    "resnet18": 20,
    "resnet34": 36,
    "linknet": 20 + 4 * 3 + 2,
    "style_transfer": 15,
    "efficientnet_b0": 49,
    "mobilenet_v3_large": 46,
    "mobilenet_v3_small": 34,
    "regnet_y_400mf": 53,
    "shufflenet_v2": 56,
    "unet": 18,
    "yolov5n": 57,
    "deeplabv3_mobilenet_v3": 53,
}
OUTPUTS = {
    "lenet": [(1, 10)],
    "yolov2": [(1, 425, 19, 19)],
    "yolov2_eplanner": [(1, 425, 19, 19)],
    "yolov3": [(1, 255, 13, 13), (1, 255, 26, 26), (1, 255, 52, 52)],
    "darknet53": [(1, 1024, 13, 13)],
    "flownet_s": [(1, 1024, 6, 8)],
    "synthnet": [(1, 256, 13, 13)],
    "synth1": [(1, 64, 56, 56)],
    "synth2": [(1, 32, 56, 56)],
    "synth3": [(1, 32, 56, 56)],
    "light_cnn_9": [(1, 256)],
    "linknet": [(1, 20, 256, 256)],
    "style_transfer": [(1, 3, 256, 256)],
    "unet": [(1, 2, 128, 128)],
    "yolov5n": [(1, 255, 40, 40), (1, 255, 20, 20), (1, 255, 10, 10)],
    "deeplabv3_mobilenet_v3": [(1, 21, 224, 224)],
}
GATED = ("efficientnet", "mobilenet_v3", "regnet", "deeplab", "convnext", "yolov5n")
"""Gates and smooth activations are not homogeneous: powers drift more than behind ReLU."""
CLASSIFIERS = ("lenet", "squeezenet1.0", "mobilenet_v2", "resnet50", "inception_v3")
"""Run at full size; the others at a quarter of their width and less (a matter of time)."""
LARGE_BYTES = 200 << 20
"""Models of more run in scripts/bench_main alone."""
LIGHT_CONVOLUTIONS = {
    "bvlc_alexnet": 5,
    "densenet121": 121,
    "inception_v1": 57,
    "inception_v2": 69,
    "resnet50": 53,
    "shufflenet": 49,
    "squeezenet": 26,
    "vgg19": 16,
    "zfnet512": 5,
}


def run(model: onnx.ModelProto, x: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = ort.InferenceSession(model.SerializeToString(), options)
    (entry,) = session.get_inputs()
    result: npt.NDArray[np.float32] = session.run(None, {entry.name: x})[0]
    return result


def noise(model: onnx.ModelProto, seed: int) -> npt.NDArray[np.float32]:
    """Standard normal values for the model's one true input."""
    weights = {tensor.name for tensor in model.graph.initializer}
    (entry,) = (value for value in model.graph.input if value.name not in weights)
    shape = [dim.dim_value for dim in entry.type.tensor_type.shape.dim]
    return np.random.default_rng(seed).standard_normal(shape, dtype=np.float32)


def count(model: onnx.ModelProto, op_type: str) -> int:
    return sum(node.op_type == op_type for node in model.graph.node)


@pytest.mark.parametrize("name", models.names())
def test_published_model(name: str) -> None:
    model = models.build(name)
    convolutions, conv_macs, all_macs = PUBLISHED[name]
    assert count(model, "Conv") == convolutions
    assert models.macs(model, ops=("Conv",)) == conv_macs
    assert models.macs(model) == all_macs
    assert model.ir_version == 8
    assert [(opset.domain, opset.version) for opset in model.opset_import] == [("", 13)]
    assert count(model, "BatchNormalization") == BATCH_NORMS.get(name, 0)
    outputs = [
        tuple(dim.dim_value for dim in value.type.tensor_type.shape.dim)
        for value in model.graph.output
    ]
    assert outputs == OUTPUTS.get(name, [(1, 1000)])
    if name in PARAMETERS:
        assert parameters(model) == PARAMETERS[name]
    if name not in CLASSIFIERS:
        return
    onnx.checker.check_model(model, full_check=True)
    logits = run(model, noise(model, 1))
    assert logits.shape == outputs[0]
    assert np.isfinite(logits).all()
    assert 0.2 < logits.std() < 3.0
    other = run(model, noise(model, 2))
    assert np.abs(logits - other).max() > 1e-3


def test_published_figures() -> None:
    """MAC roofs of the TSO paper at 192 GMAC/s, in microseconds."""
    roofs_us = {"squeezenet1.0": 4265, "resnet50": 20083, "inception_v3": 29746}
    for name, roof_us in roofs_us.items():
        assert round(PUBLISHED[name][1] / 192e3) == roof_us
    assert round(PUBLISHED["mobilenet_v2"][2] / 192e3) == 1567


def parameters(model: onnx.ModelProto) -> int:
    """Floating-point weights, biases and scales; numbers of formulas left out."""
    left_out = (".mean", ".variance")
    return sum(
        int(np.prod(tensor.dims))
        for tensor in model.graph.initializer
        if tensor.data_type == TensorProto.FLOAT and tensor.dims
        if not tensor.name.endswith(left_out)
    )


def test_light_cnn_9_has_the_weights_of_its_table() -> None:
    """In thousands, as printed; that of conv2 is twice what 48 input channels need."""
    printed = {
        "conv1": 2.4, "conv2a": 4.6, "conv2": 165 / 2, "conv3a": 18, "conv3": 331, "conv4a": 73,
        "conv4": 442, "conv5a": 32, "conv5": 294, "fc1": 4194,
    }  # fmt: skip
    model = models.build("light_cnn_9")
    made = {t.name: int(np.prod(t.dims)) for t in model.graph.initializer}
    for name, thousands in printed.items():
        assert 0 <= made[f"{name}.weight"] / 1000 - thousands < 1.0, name


def test_linknet_parameters_and_operations() -> None:
    """11.5 M and 21.2 G at 640 x 360 in the abstract, which counts 10 % more operations."""
    model = models.build("linknet")
    assert round(parameters(model) / 1e6, 1) == 11.5
    assert round(2e-9 * models.macs(model) * (640 * 360) / 256**2, 1) == 19.1
    assert count(model, "ConvTranspose") == 4 + 2


def test_googlenet_s_modules_have_the_published_operations() -> None:
    """Table 1, in millions, to 1 M, and 5a to 3 M; the first convolution's 34 M are 118 M here."""
    printed = {
        "conv2": 360, "3a": 128, "3b": 304, "4a": 73, "4b": 88, "4c": 100, "4d": 119, "4e": 170,
        "5a": 54, "5b": 71, "logits": 1,
    }  # fmt: skip
    made = Counter()
    for name, macs in models.macs_by_node(models.build("googlenet")):
        made[name.split("/")[0]] += macs
    for name, millions in printed.items():
        assert abs(made[name] / 1e6 - millions) < (3.0 if name == "5a" else 1.0), name


@pytest.mark.parametrize(("cell", "gates"), [("lstm", 4), ("gru", 3)])
def test_stacked_recurrent_layers(cell: str, gates: int) -> None:
    model = models.build_recurrent(cell, hidden=24, features=10, layers=3, steps=5, batch=2)
    onnx.checker.check_model(model, full_check=True)
    assert models.macs(model) == 5 * 2 * gates * 24 * (10 + 24 + 4 * 24)
    x = noise(model, 1)
    output = run(model, x)
    assert output.shape == (5, 2, 24) and 0.01 < np.abs(output).max() < 1.0
    again = models.build_recurrent(cell, hidden=24, features=10, layers=3, steps=5, batch=2)
    assert model.SerializeToString() == again.SerializeToString()
    alone = models.build_recurrent(cell, hidden=512)
    assert models.macs(alone) == 100 * 2 * gates * 512 * 1024


@pytest.mark.parametrize("cell", ["lstm", "gru"])
def test_states_go_in_and_out(cell: str) -> None:
    """Two calls of half the steps are one call."""
    sizes = {"hidden": 12, "layers": 2, "seed": 5}
    whole = ort.InferenceSession(
        models.build_recurrent(cell, steps=8, with_states=True, **sizes).SerializeToString()
    )
    half = ort.InferenceSession(
        models.build_recurrent(cell, steps=4, with_states=True, **sizes).SerializeToString()
    )
    x = np.random.default_rng(2).standard_normal((8, 1, 12), dtype=np.float32)
    letters = {"lstm": "hc", "gru": "h"}[cell]
    states = {f"{one}0_{n}": np.zeros((1, 1, 12), np.float32) for n in (1, 2) for one in letters}
    expected = whole.run(None, {"data": x, **states})
    first = half.run(None, {"data": x[:4], **states})
    second = half.run(None, {"data": x[4:], **dict(zip(states, first[1:], strict=True))})
    np.testing.assert_allclose(np.concatenate([first[0], second[0]]), expected[0], atol=1e-6)
    for made, wanted in zip(second[1:], expected[1:], strict=True):
        np.testing.assert_allclose(made, wanted, atol=1e-6)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"cell": "rnn"}, "cell is 'rnn'; allowed: one of lstm, gru"),
        ({"hidden": 0}, "hidden is 0; allowed: an integer from 1 to 65535"),
        ({"features": 1.5}, "features is 1.5"),
        ({"steps": True}, "steps is True"),
    ],
)
def test_absurd_recurrent_arguments(arguments: dict[str, object], message: str) -> None:
    with pytest.raises(models.ModelArgumentError, match=message):
        models.build_recurrent(**{"cell": "lstm", "hidden": 4, **arguments})  # type: ignore


def test_lenet_dense_weights() -> None:
    """0.8 MB of 16-bit weights in the fully connected layers."""
    model = models.build("lenet")
    dense = [t for t in model.graph.initializer if t.name in ("ip1.weight", "ip2.weight")]
    assert sum(2 * int(np.prod(t.dims)) for t in dense) == 810_000


def test_inception_fifth_convolution() -> None:
    """The layer that the TSO paper takes as its example: 80 x 73 x 73, 192 filters of 3x3."""
    model = onnx.shape_inference.infer_shapes(models.build("inception_v3"))
    node = [node for node in model.graph.node if node.op_type == "Conv"][4]
    shapes = {
        value.name: [dim.dim_value for dim in value.type.tensor_type.shape.dim]
        for value in model.graph.value_info
    }
    weights = {tensor.name: list(tensor.dims) for tensor in model.graph.initializer}
    assert shapes[node.input[0]] == [1, 80, 73, 73]
    assert weights[node.input[1]] == [192, 80, 3, 3]
    assert shapes[node.output[0]] == [1, 192, 71, 71]


@pytest.mark.parametrize("name", models.names())
def test_small_variant_is_deterministic_and_sane(name: str) -> None:
    sizes = {"lenet": 20, "inception_v3": 75, "alexnet": 67, "alexnet_owt": 67, "flownet_s": 48}
    width = 0.5 if name == "linknet" else 0.25  # its decoder has a quarter of the channels inside
    small = {"batch": 2, "input_size": sizes.get(name, 64), "width": width}
    model = models.build(name, seed=3, **small)
    assert model.SerializeToString() == models.build(name, seed=3, **small).SerializeToString()
    assert model.SerializeToString() != models.build(name, seed=4, **small).SerializeToString()
    assert count(model, "Conv") == PUBLISHED[name][0]
    onnx.checker.check_model(model, full_check=True)
    every = onnx.ModelProto()
    every.CopyFrom(model)
    del every.graph.output[:]
    every.graph.output.extend(
        helper.make_empty_tensor_value_info(name)
        for node in model.graph.node
        for name in node.output
    )
    session = ort.InferenceSession(every.SerializeToString())
    values = session.run(None, {"data": noise(model, 5)})
    least, most = (1e-4, 1e4) if any(part in name for part in GATED) else (0.005, 200.0)
    for node, value in zip((n for n in model.graph.node for _ in n.output), values, strict=True):
        assert value.shape[0] == 2, node.name
        power = float(np.square(value).mean())
        inside = "/se/" in node.name or "norm/" in node.name
        assert np.isfinite(power) and (inside or least < power < most), (node.name, power)


def test_macs_of_single_operators() -> None:
    shape = helper.make_tensor_value_info
    weights = [
        numpy_helper.from_array(np.zeros((6, 2, 3, 3), np.float32), "w"),
        numpy_helper.from_array(np.zeros((150, 7), np.float32), "m"),
        numpy_helper.from_array(np.array([1, 150], np.int64), "flat"),
    ]
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["y"], group=2, name="c"),
        helper.make_node("Reshape", ["y", "flat"], ["z"]),
        helper.make_node("MatMul", ["z", "m"], ["o"]),
    ]
    graph = helper.make_graph(
        nodes,
        "g",
        [shape("x", TensorProto.FLOAT, [1, 4, 7, 7])],
        [shape("o", TensorProto.FLOAT, [1, 7])],
        initializer=weights,
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)])
    assert list(models.macs_by_node(model)) == [("c", 6 * 25 * 2 * 9), ("o", 150 * 7)]
    model.graph.input[0].type.tensor_type.shape.dim[0].dim_param = "n"
    with pytest.raises(models.ModelShapeError, match="'y' has no static shape"):
        models.macs(model)
    model.graph.node[0].attribute.append(helper.make_attribute("strides", [0, 0]))
    with pytest.raises(PartitionError, match=r"Conv 'c': strides is \[0, 0\]"):
        models.macs(model)  # ONNX would divide by 0, and the process ends


def test_unknown_name() -> None:
    with pytest.raises(
        models.UnknownModelError, match=r"'resnet51'; known models: lenet, "
    ) as error:
        models.build("resnet51")
    assert error.value.allowed == models.names()
    with pytest.raises(models.UnknownModelError, match="'no_such'; known models: bvlc_alexnet"):
        light.build_light("no_such")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"batch": 0}, "batch is 0; allowed: an integer from 1 to 256"),
        ({"batch": True}, "batch is True; allowed: an integer"),
        ({"seed": -1}, "seed is -1; allowed: an integer from 0"),
        ({"input_size": 31}, "input_size of resnet50 is 31; allowed: an integer from 32 to 2048"),
        ({"input_size": 64.0}, "input_size of resnet50 is 64.0"),
        ({"width": 0.0}, "width is 0.0; allowed: a number above 0 up to 4.0"),
        ({"width": float("nan")}, "width is nan"),
        ({"width": "1"}, "width is '1'"),
    ],
)
def test_absurd_arguments(arguments: dict[str, object], message: str) -> None:
    with pytest.raises(models.ModelArgumentError, match=message):
        models.build("resnet50", **arguments)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", models.names())
def test_smallest_input_builds(name: str) -> None:
    with pytest.raises(models.ModelArgumentError) as error:
        models.build(name, input_size=1)
    minimum = int(error.value.allowed.split()[3])
    models.build(name, input_size=minimum, width=0.1)


def test_light_models_are_the_nine() -> None:
    assert set(light.light_models()) == set(LIGHT_CONVOLUTIONS)


@pytest.mark.parametrize("name", sorted(LIGHT_CONVOLUTIONS))
def test_light_model_runs(name: str) -> None:
    model = light.build_light(name)
    assert count(model, "Conv") == LIGHT_CONVOLUTIONS[name]
    assert count(model, "ConstantOfShape") == 0
    assert len(model.graph.input) == 1
    used = Counter(entry for node in model.graph.node for entry in node.input)
    assert all(used[tensor.name] for tensor in model.graph.initializer)
    if model.ByteSize() > LARGE_BYTES:
        return
    output = run(model, noise(model, 1)).reshape(-1)
    assert output.shape == (1000,)
    assert np.isfinite(output).all()
    assert output.std() > 1e-5
    if count(model, "Softmax"):
        assert output.max() < 0.5


def test_light_model_is_deterministic() -> None:
    first = light.build_light("shufflenet", seed=7).SerializeToString()
    assert first == light.build_light("shufflenet", seed=7).SerializeToString()
    assert first != light.build_light("shufflenet", seed=8).SerializeToString()


def test_digits_lenet_accuracy() -> None:
    model = data.load_digits_lenet()
    onnx.checker.check_model(model, full_check=True)
    images, labels = data.load_digits()
    assert images.shape == (len(labels), 1, 8, 8)
    assert images.dtype == np.float32
    assert images.min() >= 0.0 and images.max() == 1.0
    session = ort.InferenceSession(model.SerializeToString())
    found = [int(session.run(None, {"image": image[None]})[0].argmax()) for image in images]
    assert np.mean(np.array(found) == labels) >= 0.97


def test_digits_calibration_images_are_not_test_images() -> None:
    tests = {image.tobytes() for image in data.load_digits()[0]}
    calibration = data.load_digits_calibration()
    assert calibration.shape == (64, 1, 8, 8)
    assert not any(image.tobytes() in tests for image in calibration)
