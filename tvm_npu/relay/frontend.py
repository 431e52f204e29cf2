"""Reading ONNX and TensorFlow Lite models where TVM's own frontends need help."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import tvm
from tvm import relay

from tvm_npu.door.onnx.model import read_model, with_explicit_padding, with_folded_views
from tvm_npu.door.onnx.names import named
from tvm_npu.door.onnx.plain import check_domains
from tvm_npu.errors import PartitionError
from tvm_npu.relay.onnx.clip import with_bounds_apart
from tvm_npu.relay.onnx.four_bits import with_four_bits_in_bytes
from tvm_npu.relay.onnx.gelu import with_tanh_gelu_written_out
from tvm_npu.relay.onnx.readers import whole_nodes
from tvm_npu.relay.onnx.zero_points import with_zero_points
from tvm_npu.relay.opset import check_opset, check_understood, opset_of
from tvm_npu.relay.quick_reading import quick_reading
from tvm_npu.relay.weights_apart import Weights, handed_over, with_weights_apart
from tvm_npu.relay.window_sizes import check_windows
from tvm_npu.sim.bounded_files import read_bounded
from tvm_npu.sim.texts import cause


def from_onnx(
    model: Any, shape: dict[str, tuple[int, ...]] | None = None, **options: Any
) -> tuple[tvm.IRModule, dict[str, tvm.nd.NDArray]]:
    """`tvm.relay.frontend.from_onnx` for a model or its path, with automatic padding spelled out,
    Clips with one bound kept, Gelu by tanh and zero points written out, views of weights folded.

    TVM 0.19 computes ``auto_pad`` by compiling integer divisions, which LLVM 20 and later reject
    ("location of #dbg_declare must be a pointer or int"), and compiles a program for every
    Unsqueeze of a weight. ``shape`` and ``options`` are TVM's.
    Raises PartitionError for a file that is not an ONNX model and for operator sets and operators
    that TVM 0.19 would misread.
    """
    with quick_reading(), whole_nodes():
        light, weights = _light(read_model(model), shape)
        with handed_over(weights):
            return relay.frontend.from_onnx(light, shape=shape, **options)


def _light(model: Any, shape: dict[str, tuple[int, ...]] | None) -> tuple[Any, Weights]:
    """The model as TVM 0.19 reads it well, and its large weights."""
    with named(model):
        model = with_tanh_gelu_written_out(model)
        check_opset(model)
        check_domains(model)
        model = with_four_bits_in_bytes(model)
        check_understood(model)
        model = with_bounds_apart(model, opset_of(model))
        model = with_zero_points(with_folded_views(with_explicit_padding(model, shape)))
        return with_weights_apart(model)


TFLITE_MARK = b"TFL3"
"""Bytes 4 to 8 of a TensorFlow Lite file."""


def from_tflite(
    model: bytes | str | Path, **options: Any
) -> tuple[tvm.IRModule, dict[str, tvm.nd.NDArray]]:
    """`tvm.relay.frontend.from_tflite` for the content of a TensorFlow Lite file or its path;
    float, int8 and uint8 models. ``options`` are TVM's.

    Raises PartitionError for a file that is no such model, for operators that TVM 0.19 does not
    know, for windows that are too large, and without the package `tflite`.
    """
    try:
        import tflite
    except ImportError as error:
        raise PartitionError(
            "reading TensorFlow Lite models needs the package tflite: in the checkout, "
            "pip install '.[relay]'"
        ) from error
    content, name = model, "the model"
    if not isinstance(content, bytes):
        name = repr(str(model))
        try:
            content = read_bounded(content)
        except OSError as error:
            raise PartitionError(
                f"cannot read TensorFlow Lite model {name}: {cause(error)}"
            ) from error
    if content[4:8] != TFLITE_MARK:
        raise PartitionError(
            f"{name} is no TensorFlow Lite model: bytes 4 to 8 of its {len(content)} are "
            f"{content[4:8]!r}, not {TFLITE_MARK!r}"
        )
    try:
        found = relay.frontend.from_tflite(tflite.Model.GetRootAsModel(content, 0), **options)
    except Exception as error:  # a damaged file fails wherever TVM looks into it
        raise PartitionError(f"TVM cannot read {name}: {type(error).__name__}: {error}") from error
    check_windows(found[0])
    return found
