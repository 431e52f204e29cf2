"""One model on stock TVM and on the NPU, with what either makes of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import numpy_helper

import tvm_npu.runtime as npu_runtime
from studies.conformance.rows import (
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
from tvm_npu.door.models import BuiltModel, build_onnx
from tvm_npu.relay.stock import run_stock_onnx

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
        if (values.dtype.kind in "iub" and values.ndim <= 1) or name in weights
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
    **options: Any,
) -> Row:
    """Stock TVM first; ``options`` are those of `partition_for_npu`."""
    model, inputs = with_constants(model, inputs)
    stock, stock_reason = RIGHT, ""
    try:
        found = run_stock_onnx(model, inputs)
        if not all(map(close, wanted, found)) or len(found) != len(wanted):
            stock, stock_reason = WRONG, "another answer"
    except Exception as error:  # whatever TVM's passes run into
        stock, stock_reason = REFUSED, first_line(error)
    row = Row(name, group, stock, REFUSED, stock_reason=stock_reason)
    return _npu(row, model, inputs, wanted, target, options)


def _npu(
    row: Row, model: onnx.ModelProto, inputs: Inputs, wanted: Sequence[Array], target: Any,
    options: Mapping[str, Any],
) -> Row:  # fmt: skip
    npu_runtime.clear_sessions()
    settings = ", ".join([str(target), *(str(value) for value in options.values())])

    def verdict(npu: str, reason: str = "", **known: Any) -> Row:
        return Row(
            row.name, row.group, row.stock, npu, reason=reason, stock_reason=row.stock_reason,
            settings=settings, **known,
        )  # fmt: skip

    try:
        shapes = {name: values.shape for name, values in inputs.items()}
        built = build_onnx(model, target, dict(inputs), shapes=shapes, **options)
        found = built.run(inputs)
        bits_off = _bits_off(built, inputs)
    except Exception as error:  # whatever TVM's passes run into
        return verdict(REFUSED, first_line(error))
    regions = 0 if built.report is None else len(built.report.regions)
    worst = min(map(_finite_sqnr, wanted, found), default=200.0)
    known: dict[str, Any] = {"regions": regions, "sqnr_db": round(worst, 1), "bits_off": bits_off}
    if len(found) != len(wanted) or [w.shape for w in wanted] != [f.shape for f in found]:
        return verdict(WRONG, "outputs of other shapes", **known)
    if bits_off:
        return verdict(WRONG, f"{bits_off} elements off", **known)
    right = all(map(close, wanted, found))
    if not right and (not regions or worst < SQNR_DB):
        return verdict(WRONG, f"{worst:.1f} dB" if regions else "another answer", **known)
    return verdict(RIGHT, **known)


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
