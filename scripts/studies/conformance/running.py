"""One model on stock TVM and on the NPU, with what either makes of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import numpy_helper

import tvm_npu.runtime as npu_runtime
from studies.conformance.rows import (
    NOT_ASKED,
    REFUSED,
    RIGHT,
    SQNR_DB,
    WRONG,
    Row,
    close,
    first_line,
    sqnr_db,
)
from tvm_npu.codegen.reference import run_fixed
from tvm_npu.door.find import door
from tvm_npu.door.models import BuiltModel, build_onnx
from tvm_npu.processors import host_processor
from tvm_npu.targets import make_target

Array = NDArray[Any]
Inputs = Mapping[str, Array]
WEIGHTED = (
    "BatchNormalization", "Clip", "Conv", "ConvTranspose", "Gemm", "GRU", "LSTM",
    "LayerNormalization", "PRelu", "RNN",
)  # fmt: skip


def with_constants(model: onnx.ModelProto, inputs: Inputs) -> tuple[onnx.ModelProto, Inputs]:
    """A copy in which small inputs of whole numbers (axes, shapes, bounds) and weights are
    constants, and the inputs that are left: TVM's graph executor knows no shapes that come at run
    time, and networks have their weights with them."""
    weights = {
        name for node in model.graph.node if node.op_type in WEIGHTED for name in node.input[1:]
    }
    fixed = {
        name: values
        for name, values in inputs.items()
        if (values.dtype.kind in "iub" and values.dtype.isbuiltin and values.ndim <= 1)
        or name in weights
    }
    if not fixed or len(fixed) == len(inputs):
        return model, inputs
    copy = onnx.ModelProto.FromString(model.SerializeToString())
    kept = [value for value in copy.graph.input if value.name not in fixed]
    del copy.graph.input[:]
    copy.graph.input.extend(kept)
    copy.graph.initializer.extend(numpy_helper.from_array(v, n) for n, v in fixed.items())
    return copy, {name: values for name, values in inputs.items() if name not in fixed}


def run_case(
    name: str,
    group: str,
    model: onnx.ModelProto,
    inputs: Inputs,
    wanted: Sequence[Array],
    target: Any = "nmp-4x8",
    *,
    always_stock: bool = True,
    **options: Any,
) -> Row:
    """``options`` are those of `partition_for_npu`. Without ``always_stock`` stock TVM is only
    asked where the NPU is not right."""
    model, inputs = with_constants(model, inputs)
    row = Row(name, group, NOT_ASKED, REFUSED)
    row = _npu(row, model, inputs, wanted, target, options)
    if row.npu == RIGHT and not always_stock:
        return row
    stock, reason = _stock(model, inputs, wanted)
    return replace(row, stock=stock, stock_reason=reason)


def _stock(model: onnx.ModelProto, inputs: Inputs, wanted: Sequence[Array]) -> tuple[str, str]:
    """What stock TVM makes of it, and the reason."""
    try:
        shapes = {name: values.shape for name, values in inputs.items()}
        found = door().stock(model, shapes, threads=1).run(inputs)
    except Exception as error:  # whatever TVM's passes run into
        return REFUSED, first_line(error)
    if not all(map(close, wanted, found)) or len(found) != len(wanted):
        return WRONG, "another answer"
    return RIGHT, ""


def _npu(
    row: Row, model: onnx.ModelProto, inputs: Inputs, wanted: Sequence[Array], target: Any,
    options: Mapping[str, Any],
) -> Row:  # fmt: skip
    npu_runtime.clear_sessions()
    settings = ", ".join([str(target), *(str(value) for value in options.values())])
    row = replace(row, settings=settings)
    try:
        shapes = {name: values.shape for name, values in inputs.items()}
        # Stock TVM builds for this processor, and so must the CPU's part: without its name TVM 0.19
        # converts float64 to float16 by a function that answers in another register.
        own = make_target(target, mcpu=host_processor())
        built = build_onnx(model, own, dict(inputs), shapes=shapes, **options)
        found = built.run(inputs)
        bits_off = _bits_off(built, inputs)
    except Exception as error:  # whatever TVM's passes run into
        return replace(row, reason=first_line(error))
    regions = 0 if built.report is None else len(built.report.regions)
    worst = min(map(_finite_sqnr, wanted, found), default=200.0)
    row = replace(row, npu=WRONG, regions=regions, sqnr_db=round(worst, 1), bits_off=bits_off)
    if len(found) != len(wanted) or [w.shape for w in wanted] != [f.shape for f in found]:
        return replace(row, reason="outputs of other shapes")
    if bits_off:
        return replace(row, reason=f"{bits_off} elements off")
    least_db = SQNR_DB[options.get("precision", "int16")]
    is_near = regions > 0 and (least_db is None or worst >= least_db)
    if not is_near and not all(map(close, wanted, found)):
        return replace(row, reason=f"{worst:.1f} dB" if regions else "another answer")
    return replace(row, npu=RIGHT)


def _finite_sqnr(wanted: Array, found: Array) -> float:
    if wanted.shape != found.shape or wanted.dtype.kind != "f" or not np.isfinite(wanted).all():
        return 200.0 if np.array_equal(wanted, found) else -200.0
    return sqnr_db(wanted, found)


def _bits_off(built: BuiltModel, inputs: Inputs) -> int:
    """Elements of regions' outputs that are not those of the fixed-point reference."""
    if built.partitioned is None or not built.partitioned.symbols:
        return 0
    count = 0
    graphs = built.partitioned.fixed_graphs()
    for symbol, session in npu_runtime.sessions().items():

        def compare(arrays: list[Array], results: list[Array], symbol: str = symbol) -> None:
            nonlocal count
            graph = graphs[symbol]
            right = run_fixed(graph, dict(zip(graph.inputs, arrays, strict=True)))
            for name, result in zip(graph.outputs, results, strict=True):
                count += int(np.count_nonzero(right[name] != result))

        session.observer = compare
    built.run(inputs)
    return count
