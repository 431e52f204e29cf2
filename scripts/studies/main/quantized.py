"""Quantized models with what their own runtimes compute, in integers.

TensorFlow Lite files lie in the folder of pretrained models, with inputs and outputs of their
runtime. ONNX models are float ones that onnxruntime's quantizer makes QDQ models of (per channel,
after its own preparation); they end at their integers, without the last DequantizeLinear.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray

from tvm_npu.accuracy import Labelled
from tvm_npu.door.models import ImportedModel, import_onnx, import_tflite
from tvm_npu.models import data
from tvm_npu.models.shared import MODELS, SharedModels, find_shared_models

Array = NDArray[Any]
TFLITE = (
    "resnet8_cifar10_int8", "kws_dscnn_int8", "toycar_ad01_int8", "mobilenet_v1_0.25_vww96_int8",
    "mobilenet_v2_1.0_224_quant",
)  # fmt: skip
QDQ = ("resnet20_cifar10", "squeezenet1.1", "mobilenet_v2_1.0_224", "ultraface_rfb320")
DIGITS = "digits_lenet"
CALIBRATION_IMAGES = 8
LARGEST_IMAGES = 200
OPSET = 13
"""The first in which QuantizeLinear takes a scale for each channel."""


@dataclass(frozen=True)
class Source:
    """``images`` [N, ...] as the model takes them, ``outputs`` [N, ...] of its own runtime, classes
    of the first output where they are known. ``agrees`` is the share of ``outputs`` within one step
    of those of the same runtime without its optimisations, where it can be asked: what is expected
    of another machine at most."""

    model: ImportedModel
    images: Array
    outputs: tuple[Array, ...]
    labels: Array | None
    agrees: float | None = None

    def samples(self) -> Iterator[Labelled]:
        name = self.model.inputs[0].name
        for index, image in enumerate(self.images):
            label = None if self.labels is None else (int(self.labels[index]),)
            wanted = tuple(one[index : index + 1] for one in self.outputs)
            yield Labelled({name: image[None]}, label, wanted)


def sources() -> Mapping[str, Callable[[], Source]]:
    """By name; nothing is loaded before a function is called."""
    found: dict[str, Callable[[], Source]] = {f"{DIGITS}_qdq": _digits}
    root = find_shared_models()
    if root is not None:
        shared = SharedModels(root)
        found |= {name: partial(_tflite, shared, name) for name in TFLITE}
        found |= {f"{name}_qdq": partial(_qdq, shared, name) for name in QDQ}
    return found


def _tflite(shared: SharedModels, name: str) -> Source:
    model = import_tflite((shared.root / "models" / f"{name}.tflite").read_bytes())
    with np.load(shared.root / "refs" / f"{name}.npz", allow_pickle=False) as stored:
        outputs = stored["outputs"]
        images = stored["inputs"] if "inputs" in stored else None
    labels = None
    if images is None:
        pixels, labels = shared.cifar_test() if "cifar" in name else shared.photographs()
        as_int8 = model.inputs[0].dtype == "int8"
        images = (pixels.astype(np.int16) - 128).astype(np.int8) if as_int8 else pixels
        labels = labels + (outputs.shape[1] == 1001)
    return Source(model, images, (outputs,), labels)


def _qdq(shared: SharedModels, name: str) -> Source:
    images = np.concatenate([image for _, image in shared.inputs(name)])
    calibration, labels = images[:CALIBRATION_IMAGES], None
    if MODELS[name].images in ("cifar32", "photo224"):
        is_small = MODELS[name].images == "cifar32"
        pixels, classes = shared.cifar_test() if is_small else shared.photographs()
        chosen = np.random.default_rng(0).permutation(len(pixels))[:LARGEST_IMAGES]
        images = shared.preprocess(name, pixels[chosen])
        labels = classes[chosen] + MODELS[name].label_offset
    return _of_onnx(shared.load(name), images, labels, calibration)


def _digits() -> Source:
    images, labels = data.load_digits()
    calibration = data.load_digits_calibration()[:CALIBRATION_IMAGES]
    return _of_onnx(data.load_digits_lenet(), images[:LARGEST_IMAGES], labels, calibration)


def _of_onnx(
    model: onnx.ModelProto, images: Array, labels: Array | None, calibration: Array
) -> Source:
    import onnxruntime

    quantized = quantized_model(model, calibration)
    levels = onnxruntime.GraphOptimizationLevel
    outputs = _in_onnxruntime(quantized, images, levels.ORT_ENABLE_ALL)
    others = _in_onnxruntime(quantized, images, levels.ORT_DISABLE_ALL)
    near = [abs(a.astype(np.int16) - b) <= 1 for a, b in zip(outputs, others, strict=True)]
    agrees = sum(map(np.sum, near)) / sum(map(np.size, near))
    return Source(import_onnx(quantized, {}), images, outputs, labels, float(agrees))


def _in_onnxruntime(model: onnx.ModelProto, images: Array, level: Any) -> tuple[Array, ...]:
    import onnxruntime

    settings = onnxruntime.SessionOptions()
    settings.intra_op_num_threads = 1
    settings.log_severity_level = 3
    settings.graph_optimization_level = level
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), settings, providers=["CPUExecutionProvider"]
    )
    entry = session.get_inputs()[0].name
    made = [session.run(None, {entry: image[None]}) for image in images]
    return tuple(np.concatenate(one) for one in zip(*made, strict=True))


def quantized_model(model: onnx.ModelProto, calibration: Array) -> onnx.ModelProto:
    """A QDQ model with int8 activations and weights, whose outputs are integers."""
    from onnxruntime.quantization import (
        CalibrationDataReader,
        QuantFormat,
        QuantType,
        quantize_static,
    )
    from onnxruntime.quantization.shape_inference import quant_pre_process

    weights = {tensor.name for tensor in model.graph.initializer}
    entry = next(one.name for one in model.graph.input if one.name not in weights)

    class Images(CalibrationDataReader):  # type: ignore[misc]
        def __init__(self) -> None:
            self._rest = iter(calibration)

        def get_next(self) -> dict[str, Array] | None:
            image = next(self._rest, None)
            return None if image is None else {entry: image[None]}

    with tempfile.TemporaryDirectory(prefix="tvm-npu-qdq-") as folder:
        float_file, prepared, made = (Path(folder) / f"{one}.onnx" for one in "abc")
        if max(one.version for one in model.opset_import) < OPSET:
            model = onnx.version_converter.convert_version(model, OPSET)
        onnx.save(model, float_file)
        quant_pre_process(str(float_file), str(prepared), skip_symbolic_shape=True)
        quantize_static(
            str(prepared), str(made), Images(), quant_format=QuantFormat.QDQ, per_channel=True,
            activation_type=QuantType.QInt8, weight_type=QuantType.QInt8,
        )  # fmt: skip
        return _ending_at_integers(onnx.load(made))


def _ending_at_integers(model: onnx.ModelProto) -> onnx.ModelProto:
    """``model`` without the DequantizeLinear in front of each output."""
    graph = model.graph
    producers = {name: node for node in graph.node for name in node.output}
    for output in graph.output:
        last = producers[output.name]
        if last.op_type == "DequantizeLinear":
            output.name = last.input[0]
            output.type.tensor_type.elem_type = onnx.TensorProto.INT8
            graph.node.remove(last)
    return model
