"""LSTMs and GRUs of ONNX models: one layer each, with the values of onnxruntime."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

pytest.importorskip("tvm.relay", exc_type=ImportError)
ort = pytest.importorskip("onnxruntime")

import onnx  # noqa: E402

from tests.door.flows import all_layers  # noqa: E402
from tvm_npu import models  # noqa: E402
from tvm_npu.codegen.ops import Gru, Lstm  # noqa: E402
from tvm_npu.codegen.program.parts import as_batch  # noqa: E402
from tvm_npu.codegen.reference import run_fixed  # noqa: E402
from tvm_npu.errors import PartitionError  # noqa: E402
from tvm_npu.relay import (  # noqa: E402
    from_onnx,
    import_region,
    partition_for_npu,
    partition_report,
    region_fixed_graphs,
)
from tvm_npu.relay.run_regions import region_calls  # noqa: E402

pytestmark = pytest.mark.relay

Array = np.ndarray[Any, Any]
SIZES = {"hidden": 7, "features": 5, "steps": 3, "layers": 2}


@pytest.fixture(autouse=True)
def _machine_of_all_layers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tvm_npu.door.partition.machine_layers", lambda machine: all_layers())


def samples(model: onnx.ModelProto) -> dict[str, Array]:
    random = np.random.default_rng(4)
    return {
        entry.name: random.uniform(
            -1, 1, [dim.dim_value for dim in entry.type.tensor_type.shape.dim]
        ).astype(np.float32)
        for entry in model.graph.input
    }


def run(model: onnx.ModelProto, feed: Mapping[str, Array]) -> list[Array]:
    found: list[Array] = ort.InferenceSession(model.SerializeToString()).run(None, dict(feed))
    return found


def build(cell: str, with_states: bool) -> onnx.ModelProto:
    """``reset``: a GRU whose reset gate comes before the products of weights, ONNX's default."""
    kind: Any = "gru" if cell == "reset" else cell
    model = models.build_recurrent(kind, with_states=with_states, **SIZES)
    if cell == "reset":
        for node in model.graph.node:
            for item in node.attribute:
                if item.name == "linear_before_reset":
                    item.i = 0
    return model


@pytest.mark.parametrize(
    ("cell", "with_states"), [("lstm", True), ("gru", False), ("reset", True)]
)
def test_stacked_layers_run_as_layers(cell: str, with_states: bool) -> None:
    model = build(cell, with_states)
    feed = samples(model)
    mod = partition_for_npu(*from_onnx(model), calibration=feed)
    report = partition_report(mod)
    assert not report.refusals and report.npu_macs == models.macs(model)
    ((symbol, fixed),) = region_fixed_graphs(mod).items()
    layers = import_region(mod[symbol]).layers
    assert [type(one) for one in layers] == [Lstm if cell == "lstm" else Gru] * 2
    kind = "lstm" if cell == "lstm" else "gru"
    assert [one.source for one in layers] == [(f"{kind}1",), (f"{kind}2",)]
    if kind == "gru":
        assert {one.linear_before_reset for one in layers} == {cell == "gru"}  # type: ignore
    arrays = [feed[arg.name_hint] for arg in region_calls(mod)[symbol].args]
    integers = run_fixed(
        fixed,
        {
            name: fixed.scales[name].quantize(as_batch(array, fixed.shapes[name]), 2)
            for name, array in zip(fixed.inputs, arrays, strict=True)
        },
    )
    for name, expected in zip(fixed.outputs, run(model, feed), strict=True):
        made = fixed.scales[name].dequantize(integers[name]).reshape(expected.shape)
        assert np.abs(made - expected).max() < 1e-3


def test_calibration_behind_operators_of_the_cpu() -> None:
    """The region gets a tensor that TVM has computed, with the steps first."""
    model = models.build_recurrent("lstm", **SIZES)
    front = onnx.helper.make_node("Sin", ["data"], ["waves"], name="sin")
    model.graph.node[0].input[0] = "waves"
    model.graph.node.insert(0, front)
    feed = samples(model)
    mod = partition_for_npu(*from_onnx(model), calibration=feed)
    assert [refusal.operator for refusal in partition_report(mod).refusals] == ["sin"]
    (fixed,) = region_fixed_graphs(mod).values()
    x = as_batch(np.sin(feed["data"]), fixed.shapes["in0"])
    made = run_fixed(fixed, {"in0": fixed.scales["in0"].quantize(x, 2)})[fixed.outputs[0]]
    (expected,) = run(model, feed)
    error = fixed.scales[fixed.outputs[0]].dequantize(made)[0] - expected[:, 0]
    assert np.abs(error).max() < 1e-3


@pytest.mark.parametrize("cell", ["lstm", "gru"])
def test_without_the_layer_all_products_are_offloaded(
    cell: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    rest = frozenset(one for one in all_layers() if one.__name__ not in ("FixedLstm", "FixedGru"))
    monkeypatch.setattr("tvm_npu.door.partition.machine_layers", lambda machine: rest)
    model = models.build_recurrent(cell, batch=3, **(SIZES | {"steps": 2}))
    mod = partition_for_npu(*from_onnx(model), calibration=samples(model))
    report = partition_report(mod)
    assert report.npu_macs == models.macs(model) and len(report.regions) == 2
    assert {refusal.operator for refusal in report.refusals} == {
        "split", "squeeze", "zeros", "stack", "expand_dims",
        *(["zeros_like"] if cell == "lstm" else []),
    }  # fmt: skip


def test_a_batch_stays_operators() -> None:
    model = models.build_recurrent("lstm", batch=2, **(SIZES | {"steps": 2}))
    mod = partition_for_npu(*from_onnx(model), calibration=samples(model))
    layers = [type(one) for name in region_calls(mod) for one in import_region(mod[name]).layers]
    assert Lstm not in layers and partition_report(mod).npu_macs == models.macs(model)


@pytest.mark.parametrize(
    ("attribute", "value", "message"),
    [
        ("direction", "reverse", "LSTM 'lstm1' has direction reverse, which TVM 0.19 ignores"),
        ("clip", 3.0, "has clip 3.0"),
        ("input_forget", 1, "has input_forget 1"),
    ],
)
def test_what_tvm_ignores_is_refused(attribute: str, value: Any, message: str) -> None:
    model = models.build_recurrent("lstm", **SIZES)
    model.graph.node[0].attribute.append(onnx.helper.make_attribute(attribute, value))
    with pytest.raises(PartitionError, match=message):
        from_onnx(model)


def with_lengths(less: int) -> onnx.ModelProto:
    model = models.build_recurrent("lstm", **SIZES)
    extent = model.graph.input[0].type.tensor_type.shape.dim[0].dim_value
    values = np.array([extent - less], np.int32)
    model.graph.initializer.append(onnx.numpy_helper.from_array(values, "lengths"))
    model.graph.node[0].input[4] = "lengths"
    return model


def test_lengths_of_sequences_are_refused() -> None:
    from_onnx(with_lengths(0))  # those of the sequences themselves say nothing
    with pytest.raises(PartitionError, match="has lengths of sequences"):
        from_onnx(with_lengths(1))
