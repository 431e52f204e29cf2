"""One network under one technique."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from studies.int8.sets import labelled_set
from tvm_npu.accuracy import measure
from tvm_npu.door.models import import_onnx
from tvm_npu.options import NpuOptions, make_options

MAX_LOSS = 0.015
"""Of `auto`, for all networks: 19 dB where regions end, which are logits for most."""
TECHNIQUES: Mapping[str, NpuOptions] = {
    "per-tensor": make_options("nmp-4x8-paper", precision="int8"),
    "per-channel": make_options("nmp-4x8-int8"),
    "equalised": make_options("nmp-4x8-int8", quantization="equalised"),
    "bias-corrected": make_options("nmp-4x8-int8", quantization="bias-corrected"),
    "auto": make_options(
        "nmp-4x8-int8", precision="auto", max_loss=MAX_LOSS, quantization="equalised"
    ),
    "int16": make_options("nmp-4x8"),
}
"""Each has what stands above it, but for int16, which is here to compare with; auto is
equalised, with layers in int16 up to MAX_LOSS."""


@dataclass(frozen=True)
class Row:
    """Shares and counts of right answers over ``images``, in float (by onnxruntime) and on the NPU
    (by the reference, whose bits the simulator shares); ``sqnr_db`` of the output (None: nothing
    differs). ``cycles`` of one inference: the simulator runs the first image and must agree with
    the reference. ``int16_layers`` counts layers of an int8 program that compute in int16."""

    model: str
    technique: str
    machine: str
    images: int
    top1_float: float
    top1_npu: float
    right_float: int
    right_npu: int
    sqnr_db: float | None
    cycles: float | None
    int16_layers: int


def measured(model: str, technique: str, count: int | None) -> Row:
    """On the first ``count`` images (None: all); the simulator runs the first."""
    options, labelled = TECHNIQUES[technique], labelled_set(model)
    partitioned = import_onnx(labelled.model, {}).partition(
        options, ({labelled.entry: image[None]} for image in labelled.calibration)
    )
    found = measure(partitioned, labelled.samples(count), layer_samples=0)
    return Row(
        model, technique, options.machine.name, found.images,
        found.top1_float / found.images, found.top1_npu / found.images, found.top1_float,
        found.top1_npu, found.sqnr_db if np.isfinite(found.sqnr_db) else None, found.cycles,
        sum(partitioned.int16_layers(symbol) for symbol in partitioned.symbols),
    )  # fmt: skip
