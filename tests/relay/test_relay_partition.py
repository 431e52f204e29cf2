"""Partitioning: which regions, what stays, what the report says."""

from __future__ import annotations

import json
import warnings

import numpy as np
import pytest

pytest.importorskip("tvm.relay", exc_type=ImportError)
import tvm  # noqa: E402
from tvm import relay  # noqa: E402

from tests.relay.relay_cases import const, module, randoms, small_cnn, split, stock, var  # noqa: E402
from tvm_npu.errors import NothingOffloadedWarning, PartitionError, TargetError  # noqa: E402
from tvm_npu.relay import explain, import_region, partition_for_npu, region_functions  # noqa: E402
from tvm_npu.report import PartitionReport  # noqa: E402

pytestmark = pytest.mark.relay

X = randoms(1, 1, 3, 12, 12)


def partition(mod: tvm.IRModule, **options: object) -> tvm.IRModule:
    return partition_for_npu(mod, calibration=X, **options)


def test_one_region_and_the_softmax_on_the_cpu() -> None:
    report = explain(partition(small_cnn()))
    (region,) = report.regions
    assert region.symbol == "tvmgen_default_npu_main_0"
    assert region.inputs == ((1, 3, 12, 12),) and region.outputs == ((1, 5),)
    (refusal,) = report.refusals
    assert refusal.operator == "nn.softmax"
    macs = 8 * 3 * 9 * 144 + 8 * 8 * 9 * 36 + 5 * 8
    assert report.total_macs == report.npu_macs == region.macs == macs
    assert report.mac_share == 1.0


def test_operators_between_make_two_regions() -> None:
    report = explain(partition(small_cnn(with_lrn=True)))
    assert [region.symbol[-1] for region in report.regions] == ["0", "1"]
    assert [refusal.operator for refusal in report.refusals] == ["nn.lrn", "nn.softmax"]


def test_report_survives_the_module_and_json() -> None:
    partitioned = partition(small_cnn(), precision="int8", planner="tso-noburst")
    report = explain(partitioned)
    assert (report.machine, report.precision, report.planner) == ("nmp-4x8", "int8", "tso-noburst")
    again = tvm.ir.load_json(tvm.ir.save_json(partitioned))
    assert explain(again) == report == PartitionReport.from_json(report.to_json())
    values = json.loads(report.to_json())
    assert values["mac_share"] == 1.0 and values["refusals"][0]["operator"] == "nn.softmax"
    text = str(report)
    assert "nn.softmax" in text and "100.0% of 51,880 MACs" in text


def test_report_of_a_module_that_was_not_partitioned() -> None:
    with pytest.raises(ValueError, match="no attribute 'npu.report': it was not partitioned"):
        explain(small_cnn())


def test_partitioned_module_without_npu_code_computes_the_same() -> None:
    found = split(small_cnn(with_lrn=True))
    (want,) = stock(small_cnn(with_lrn=True), [X], opt_level=1)
    inlined = tvm.IRModule(dict(found.mod.functions.items()))
    for region in found.regions:
        inlined[region.symbol] = (
            found.mod[region.symbol].without_attr("Compiler").without_attr("Primitive")
        )
    inlined = relay.transform.Inline()(inlined)
    (got,) = stock(inlined, [X], opt_level=1)
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)


def test_layout_only_region_goes_back_to_the_cpu() -> None:
    y = relay.nn.relu(relay.nn.batch_flatten(var("x", (1, 3, 4, 4))))
    found = split(module(y))
    assert found.regions == () and len(found.refusals) == 2
    assert {refusal.value for refusal in found.refusals} == {
        "a region of 2 layout or activation operators"
    }
    assert found.refusals[0].limit == "at least one that computes"


def test_residual_around_a_cpu_operator_is_no_cycle() -> None:
    x = var("x", (1, 4, 6, 6))
    y = relay.nn.global_avg_pool2d(x)
    pooled = relay.nn.max_pool2d(x, (3, 3), padding=(1, 1))
    z = relay.nn.max_pool2d(relay.add(pooled, relay.sinh(pooled)), (2, 2))
    found = split(module(relay.Tuple([z, y])))
    assert len(found.regions) == 3
    assert [refusal.operator for refusal in found.refusals] == ["sinh"]


def test_value_used_inside_and_outside_is_an_output() -> None:
    x = var("x", (1, 4, 6, 6))
    pooled = relay.nn.max_pool2d(x, (3, 3), padding=(1, 1))
    both = relay.Tuple([relay.nn.relu(pooled), relay.sinh(pooled), pooled])
    found = split(module(both))
    (region,) = found.regions
    assert region.outputs == ((1, 4, 6, 6), (1, 4, 6, 6))


def test_results_of_a_split_leave_the_region_one_by_one() -> None:
    x = var("x", (1, 4, 6, 6))
    parts = relay.split(relay.nn.max_pool2d(x, (3, 3), padding=(1, 1)), 2, axis=1)
    found = split(module(relay.Tuple([parts[1], relay.sinh(parts[1]), parts[0]])))
    (region,) = found.regions
    assert region.outputs == ((1, 2, 6, 6), (1, 2, 6, 6))
    function = found.mod[region.symbol]
    assert len(import_region(function).layers) == 3


def test_if_keeps_its_branches_on_the_cpu() -> None:
    x, condition = var("x", (1, 4, 6, 6)), var("c", (), "bool")
    pooled = relay.nn.max_pool2d(x, (2, 2))
    chosen = relay.If(condition, relay.nn.relu(pooled), relay.nn.max_pool2d(pooled, (1, 1)))
    found = split(module(relay.nn.global_avg_pool2d(chosen)))
    assert [refusal.operator for refusal in found.refusals] == ["If"]
    assert [len(region.operators) for region in found.regions] == [1]


def test_let_bindings_are_dataflow() -> None:
    x, y = var("x", (1, 4, 6, 6)), relay.var("y")
    body = relay.Let(y, relay.nn.max_pool2d(x, (2, 2)), relay.nn.relu(relay.add(y, y)))
    found = split(tvm.IRModule.from_expr(relay.Function([x], body)))
    assert len(found.regions) == 1 and not found.refusals


def test_deep_networks_need_no_recursion() -> None:
    y = var("x", (1, 2, 4, 4))
    for _ in range(400):
        y = relay.nn.max_pool2d(y, (1, 1))
    found = split(module(y))
    assert [len(region.operators) for region in found.regions] == [400]
    assert len(import_region(found.mod[found.regions[0].symbol]).layers) == 400


def test_dynamic_slices_become_static() -> None:
    x = var("x", (1, 4, 8, 8))
    begin = relay.const(np.array([0, 0, 0, 0]), "int64")
    step = relay.const(np.array([1, 1, 2, 2]), "int64")
    whole = var("end", (4,), "int64")
    y = relay.op.dyn._make.strided_slice(x, begin, whole, step, "end")
    mod = module(relay.nn.max_pool2d(y, (1, 1)))
    params = {"end": np.full(4, 2**63 - 1, np.int64)}
    found = split(mod, params=params)
    assert not found.refusals and found.regions[0].outputs == ((1, 4, 4, 4),)


def test_channels_last_convolutions_are_turned() -> None:
    x = var("x", (1, 8, 8, 3))
    weight = const(randoms(0, 3, 3, 3, 5))
    y = relay.nn.conv2d(
        x, weight, channels=5, kernel_size=(3, 3), data_layout="NHWC", kernel_layout="HWIO"
    )
    y = relay.nn.relu(relay.nn.bias_add(y, const(randoms(1, 5)), axis=3))
    found = split(module(relay.nn.max_pool2d(y, (2, 2), layout="NHWC")))
    assert len(found.regions) == 1
    names = [name for _, name in found.regions[0].operators]
    assert "nn.conv2d" in names and "nn.max_pool2d" in names and len(names) >= 4
    assert {refusal.operator for refusal in found.refusals} == {"layout_transform"}


def test_nothing_to_offload_warns_and_runs_on_the_cpu() -> None:
    mod = module(relay.tanh(var("x", (1, 4))))
    with pytest.warns(NothingOffloadedWarning, match="no operator runs on the NPU.*first: tanh"):
        partitioned = partition_for_npu(mod)
    assert explain(partitioned).regions == () and region_functions(partitioned) == {}
    values = randoms(0, 1, 4)
    np.testing.assert_allclose(stock(partitioned, [values])[0], np.tanh(values), rtol=1e-5)


def test_missing_weights_are_named() -> None:
    weight = var("conv1.weight", (4, 3, 3, 3))
    x = var("x", (1, 3, 8, 8))
    y = relay.nn.conv2d(x, weight, channels=4, kernel_size=(3, 3))
    mod = module(y)
    with pytest.warns(NothingOffloadedWarning, match=r"operand 1 \(conv1.weight\)"):
        partition_for_npu(mod)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        filled = partition_for_npu(
            mod, {"conv1.weight": randoms(0, 4, 3, 3, 3)}, calibration=randoms(1, 1, 3, 8, 8)
        )
    assert len(explain(filled).regions) == 1


def test_wrong_parameters_are_errors() -> None:
    mod = module(relay.nn.dense(var("x", (1, 4)), var("w", (2, 4))))
    with pytest.raises(PartitionError, match=r"'w' has shape \(3, 4\), the model wants \(2, 4\)"):
        partition_for_npu(mod, {"w": randoms(0, 3, 4)})
    with pytest.raises(PartitionError, match="'w' is float64, the model wants float32"):
        partition_for_npu(mod, {"w": np.zeros((2, 4))})
    with pytest.raises(PartitionError, match="no function 'main'"):
        partition_for_npu(tvm.IRModule())


def test_unknown_machine_planner_precision() -> None:
    mod = small_cnn()
    with pytest.raises(TargetError, match="unknown machine 'nope'"):
        partition(mod, target="npu/nope")
    with pytest.raises(TargetError, match="precision 'int4': must be one of int16, int8"):
        partition(mod, precision="int4")
    with pytest.raises(TargetError, match="planner 'best': must be one of tso"):
        partition(mod, planner="best")
    with pytest.raises(TargetError, match="percentile 0"):
        partition(mod, percentile=0.0)
    with pytest.raises(TargetError, match="max_tile_m = 0"):
        partition(mod, tile_limits={"max_tile_m": 0})


def test_input_module_is_left_alone() -> None:
    mod = small_cnn()
    before = tvm.ir.structural_hash(mod)
    partition(mod)
    assert tvm.ir.structural_hash(mod) == before and len(mod.get_global_vars()) == 1


def test_module_name_goes_into_symbols() -> None:
    assert list(region_functions(partition(small_cnn(), mod_name="my-net"))) == [
        "tvmgen_my_net_npu_main_0"
    ]
