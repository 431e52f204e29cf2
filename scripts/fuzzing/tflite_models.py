"""TensorFlow Lite models: small valid ones, which changes begin with."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

FLOAT, INT32, UINT8, INT8 = 0, 2, 3, 9
CONV, POOL, RESHAPE, DENSE, SOFTMAX, ADD = 3, 17, 22, 9, 25, 0
CONV_OPTIONS, POOL_OPTIONS, DENSE_OPTIONS, SOFTMAX_OPTIONS, ADD_OPTIONS = 1, 5, 8, 9, 11


@dataclass(frozen=True)
class _Tensor:
    shape: tuple[int, ...]
    kind: int
    data: bytes = b""
    scale: float | None = None


def _vector(builder: Any, values: Sequence[int], begin: Callable[..., Any], add: str) -> int:
    """Of numbers, or of offsets."""
    begin(builder, len(values))
    for value in reversed(values):
        getattr(builder, add)(value)
    place: int = builder.EndVector()
    return place


def _tensor(builder: Any, tensor: _Tensor, name: str, buffer: int) -> int:
    import tflite

    label = builder.CreateString(name)
    shape = _vector(builder, tensor.shape, tflite.TensorStartShapeVector, "PrependInt32")
    quantization = None
    if tensor.scale is not None:
        begin = tflite.QuantizationParametersStartScaleVector
        scale = _vector(builder, [tensor.scale], begin, "PrependFloat32")  # type: ignore[list-item]
        begin = tflite.QuantizationParametersStartZeroPointVector
        zero = _vector(builder, [0], begin, "PrependInt64")
        tflite.QuantizationParametersStart(builder)
        tflite.QuantizationParametersAddScale(builder, scale)
        tflite.QuantizationParametersAddZeroPoint(builder, zero)
        quantization = tflite.QuantizationParametersEnd(builder)
    tflite.TensorStart(builder)
    tflite.TensorAddShape(builder, shape)
    tflite.TensorAddType(builder, tensor.kind)
    tflite.TensorAddBuffer(builder, buffer)
    tflite.TensorAddName(builder, label)
    if quantization is not None:
        tflite.TensorAddQuantization(builder, quantization)
    place: int = tflite.TensorEnd(builder)
    return place


def _options(builder: Any, kind: int) -> int:
    import tflite

    if kind == CONV_OPTIONS:
        tflite.Conv2DOptionsStart(builder)
        tflite.Conv2DOptionsAddStrideW(builder, 1)
        tflite.Conv2DOptionsAddStrideH(builder, 1)
        tflite.Conv2DOptionsAddFusedActivationFunction(builder, 1)
        end = tflite.Conv2DOptionsEnd
    elif kind == POOL_OPTIONS:
        tflite.Pool2DOptionsStart(builder)
        for add in ("StrideW", "StrideH", "FilterWidth", "FilterHeight"):
            getattr(tflite, f"Pool2DOptionsAdd{add}")(builder, 2)
        end = tflite.Pool2DOptionsEnd
    elif kind == DENSE_OPTIONS:
        tflite.FullyConnectedOptionsStart(builder)
        end = tflite.FullyConnectedOptionsEnd
    elif kind == SOFTMAX_OPTIONS:
        tflite.SoftmaxOptionsStart(builder)
        tflite.SoftmaxOptionsAddBeta(builder, 1.0)
        end = tflite.SoftmaxOptionsEnd
    else:
        tflite.AddOptionsStart(builder)
        end = tflite.AddOptionsEnd
    place: int = end(builder)
    return place


def _operator(
    builder: Any, code: int, inputs: Sequence[int], outputs: Sequence[int], kind: int
) -> int:
    import tflite

    options = _options(builder, kind) if kind else None
    one = _vector(builder, inputs, tflite.OperatorStartInputsVector, "PrependInt32")
    two = _vector(builder, outputs, tflite.OperatorStartOutputsVector, "PrependInt32")
    tflite.OperatorStart(builder)
    tflite.OperatorAddOpcodeIndex(builder, code)
    tflite.OperatorAddInputs(builder, one)
    tflite.OperatorAddOutputs(builder, two)
    if options is not None:
        tflite.OperatorAddBuiltinOptionsType(builder, kind)
        tflite.OperatorAddBuiltinOptions(builder, options)
    place: int = tflite.OperatorEnd(builder)
    return place


def _model(
    tensors: Sequence[_Tensor], operators: Sequence[tuple[int, list[int], list[int], int]]
) -> bytes:
    """The first tensor is the input, the last one the output; buffer 0 is empty, as it must be."""
    import flatbuffers
    import tflite

    builder = flatbuffers.Builder(4096)
    builder.ForceDefaults(True)  # so that every number has a place
    buffers, places = [], []
    for data in (b"", *(tensor.data for tensor in tensors)):
        content = builder.CreateByteVector(data) if data else None
        tflite.BufferStart(builder)
        if content is not None:
            tflite.BufferAddData(builder, content)
        buffers.append(tflite.BufferEnd(builder))
    for number, tensor in enumerate(tensors):
        places.append(_tensor(builder, tensor, f"t{number}", number + 1))
    codes = sorted({code for code, *_ in operators})
    known = []
    for code in codes:
        tflite.OperatorCodeStart(builder)
        tflite.OperatorCodeAddDeprecatedBuiltinCode(builder, code)
        tflite.OperatorCodeAddBuiltinCode(builder, code)
        tflite.OperatorCodeAddVersion(builder, 1)
        known.append(tflite.OperatorCodeEnd(builder))
    steps = [
        _operator(builder, codes.index(code), inputs, outputs, kind)
        for code, inputs, outputs, kind in operators
    ]
    offset, last = "PrependUOffsetTRelative", len(tensors) - 1
    of_tensors = _vector(builder, places, tflite.SubGraphStartTensorsVector, offset)
    inputs = _vector(builder, [0], tflite.SubGraphStartInputsVector, "PrependInt32")
    outputs = _vector(builder, [last], tflite.SubGraphStartOutputsVector, "PrependInt32")
    of_steps = _vector(builder, steps, tflite.SubGraphStartOperatorsVector, offset)
    tflite.SubGraphStart(builder)
    tflite.SubGraphAddTensors(builder, of_tensors)
    tflite.SubGraphAddInputs(builder, inputs)
    tflite.SubGraphAddOutputs(builder, outputs)
    tflite.SubGraphAddOperators(builder, of_steps)
    graph = tflite.SubGraphEnd(builder)
    graphs = _vector(builder, [graph], tflite.ModelStartSubgraphsVector, offset)
    of_codes = _vector(builder, known, tflite.ModelStartOperatorCodesVector, offset)
    of_buffers = _vector(builder, buffers, tflite.ModelStartBuffersVector, offset)
    tflite.ModelStart(builder)
    tflite.ModelAddVersion(builder, 3)
    tflite.ModelAddOperatorCodes(builder, of_codes)
    tflite.ModelAddSubgraphs(builder, graphs)
    tflite.ModelAddBuffers(builder, of_buffers)
    builder.Finish(tflite.ModelEnd(builder), b"TFL3")
    return bytes(builder.Output())


@lru_cache(maxsize=1)
def tflite_models() -> tuple[bytes, ...]:
    """A float one and one of int8: window, sum, pool, reshape, fully connected, softmax."""
    draw = np.random.default_rng(0)

    def tensors(kind: int) -> Iterator[_Tensor]:
        quantized = kind == INT8
        scale = 0.05 if quantized else None

        def weights(*shape: int) -> _Tensor:
            values = draw.integers(-99, 99, shape).astype(np.int8 if quantized else np.float32)
            return _Tensor(shape, kind, values.tobytes(), scale)

        def bias(count: int) -> _Tensor:
            values = np.zeros(count, np.int32 if quantized else np.float32)
            bias_scale = 0.0025 if quantized else None
            return _Tensor((count,), INT32 if quantized else FLOAT, values.tobytes(), bias_scale)

        for shape in ((1, 6, 6, 3), (1, 6, 6, 4), (1, 6, 6, 4), (1, 3, 3, 4), (1, 36), (1, 5)):
            yield _Tensor(shape, kind, scale=scale)
        yield from (weights(4, 3, 3, 3), bias(4), weights(5, 36), bias(5))
        yield _Tensor((2,), INT32, np.array([1, 36], np.int32).tobytes())
        yield _Tensor((1, 5), kind, scale=1 / 256 if quantized else None)

    operators = [
        (CONV, [0, 6, 7], [1], CONV_OPTIONS), (ADD, [1, 1], [2], ADD_OPTIONS),
        (POOL, [2], [3], POOL_OPTIONS), (RESHAPE, [3, 10], [4], 0),
        (DENSE, [4, 8, 9], [5], DENSE_OPTIONS), (SOFTMAX, [5], [11], SOFTMAX_OPTIONS),
    ]  # fmt: skip
    return tuple(_model(list(tensors(kind)), operators) for kind in (FLOAT, INT8))
