"""Calibration data in all forms, and ranges for regions with CPU operators before them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tvm_npu

pytest.importorskip("tvm.relay", exc_type=ImportError)
from tvm import relay  # noqa: E402

from tests.relay.relay_cases import const, module, randoms, small_cnn, var  # noqa: E402
from tvm_npu.calibration import InputSpec, samples_from, synthetic  # noqa: E402
from tvm_npu.codegen.passes.quantize import Ranges  # noqa: E402
from tvm_npu.codegen.program.format import Program  # noqa: E402
from tvm_npu.codegen.reference import run_fixed, run_float  # noqa: E402
from tvm_npu.door.region import ADJUSTMENTS, RANGES  # noqa: E402
from tvm_npu.errors import (  # noqa: E402
    CalibrationError,
    SyntheticCalibrationWarning,
    TargetError,
)
from tvm_npu.relay import (  # noqa: E402
    import_region,
    partition_for_npu,
    region_fixed_graphs,
    region_functions,
    region_programs,
)
from tvm_npu.runtime.session import Session  # noqa: E402

pytestmark = pytest.mark.relay

X = randoms(1, 1, 3, 12, 12)
ONE = (InputSpec("x", (2, 3), "float32"),)
TWO = (*ONE, InputSpec("n", (2,), "int32"))


def ranges_of(mod: Any) -> dict[str, Ranges]:
    return {
        name: Ranges.from_json(str(function.attrs[RANGES]))
        for name, function in region_functions(mod).items()
    }


def test_array_dict_iterable_and_file_give_the_same_samples(tmp_path: Path) -> None:
    data = randoms(0, 6, 3)
    np.savez(tmp_path / "named.npz", x=data)
    np.savez(tmp_path / "plain.npz", data)

    def stream() -> Iterator[dict[str, Any]]:
        for begin in (0, 2, 4):
            yield {"x": data[begin : begin + 2]}

    forms: list[Any] = [data, {"x": data}, stream(), [data[:4], data[4:]]]
    forms += [tmp_path / "named.npz", str(tmp_path / "plain.npz"), data.astype(np.float64)]
    for form in forms:
        samples = list(samples_from(form, ONE))
        assert [list(sample) for sample in samples] == [["x"]] * 3
        np.testing.assert_array_equal(np.concatenate([s["x"] for s in samples]), data)


def test_synthetic_samples_are_seeded_and_fit() -> None:
    first, second = list(synthetic(TWO, 3)), list(synthetic(TWO, 3))
    assert len(first) == 4
    for a, b in zip(first, second, strict=True):
        np.testing.assert_array_equal(a["x"], b["x"])
        assert a["x"].shape == (2, 3) and a["x"].dtype == np.float32
        assert a["n"].dtype == np.int32 and not a["n"].any()
    assert not np.array_equal(first[0]["x"], next(iter(synthetic(TWO, 4)))["x"])


BAD: dict[str, tuple[Any, tuple[InputSpec, ...], str]] = {
    "one array for two inputs": (randoms(0, 2, 3), TWO, r"one array.*2 inputs \('x', 'n'\)"),
    "missing and unknown": (
        {"y": randoms(0, 2, 3)},
        ONE,
        r"missing: \['x'\], unknown: \['y'\]; the model has \['x'\]",
    ),
    "shape": (randoms(0, 2, 4), ONE, r"'x' has shape \(2, 4\); expected \(2, 3\)"),
    "rank": (randoms(0, 6), ONE, r"'x' has shape \(6,\); expected \(2, 3\)"),
    "part of a batch": (randoms(0, 3, 3), ONE, r"'x' has shape \(3, 3\).*a multiple"),
    "empty array": (randoms(0, 0, 3), ONE, r"'x' has shape \(0, 3\)"),
    "no samples": ([], ONE, "no samples; at least 1"),
    "nan": (np.array([[0, np.nan, 1], [np.inf, 0, 0]]), ONE, "2 NaN or infinite values of 6"),
    "overflow": (
        np.array([[0, 1e300, 1], [-2e300, 0, 0]]),
        ONE,
        r"2 values of 6 that do not fit in float32 \(the largest is 2e\+300\); at most 3.4e\+38",
    ),
    "nan and overflow": (np.array([[0, np.nan, 1e300]] * 2), ONE, "2 NaN or infinite values of 6"),
    "text": (np.array([["a"] * 3] * 2), ONE, "'x' is <U1; expected numbers for float32"),
    "fraction for integer": (
        {"x": randoms(0, 2, 3), "n": np.array([0.5, 1])},
        TWO,
        "'n' is float64; expected int32",
    ),
    "counts": (
        {"x": randoms(0, 4, 3), "n": np.array([1, 2])},
        TWO,
        r"different numbers of samples: \{'x': 2, 'n': 1\}",
    ),
    "sample type": ([3], ONE, "sample 0 is a int; expected a dict"),
    "data type": (3, ONE, "calibration is a int; expected an array"),
    "no file": ("/nowhere/data.npz", ONE, "cannot read calibration file '/nowhere/data.npz'"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_calibration_data(case: str) -> None:
    data, inputs, message = BAD[case]
    with pytest.raises(CalibrationError, match=message):
        list(samples_from(data, inputs))


def test_file_that_is_no_archive(tmp_path: Path) -> None:
    (tmp_path / "x.npz").write_bytes(b"nothing")
    with pytest.raises(CalibrationError, match="cannot read calibration file"):
        list(samples_from(tmp_path / "x.npz", ONE))
    np.save(tmp_path / "x.npy", randoms(0, 2, 3))
    with pytest.raises(CalibrationError, match="not an .npz file"):
        list(samples_from(tmp_path / "x.npy", ONE))


def test_without_data_a_warning_names_the_seed() -> None:
    with pytest.warns(SyntheticCalibrationWarning, match="seed 7"):
        first = partition_for_npu(small_cnn(), seed=7)
    with pytest.warns(SyntheticCalibrationWarning):
        second = partition_for_npu(small_cnn(), seed=7)
    assert ranges_of(first) == ranges_of(second)


def test_samples_widen_ranges() -> None:
    one = ranges_of(partition_for_npu(small_cnn(), calibration=X))
    both = ranges_of(partition_for_npu(small_cnn(), calibration=[X, 3 * X]))
    (name,) = one
    assert one[name]["in0"].high == X.max() and both[name]["in0"].high == (3 * X).max()
    cut = ranges_of(partition_for_npu(small_cnn(), calibration=X, percentile=50.0))
    assert cut[name]["in0"].high < X.max()


def test_ranges_behind_a_cpu_operator_are_those_of_its_values() -> None:
    x = var("x", (1, 4, 6, 6))
    y = relay.multiply(relay.nn.max_pool2d(x, (2, 2)), const(2.0))
    z = relay.nn.max_pool2d(relay.sinh(y), (2, 2))
    values = randoms(3, 1, 4, 6, 6)
    ranges = ranges_of(partition_for_npu(module(relay.atan(z)), calibration=values))
    first, second = (ranges[f"tvmgen_default_npu_main_{n}"] for n in (0, 1))
    low, high = first["t1"].low, first["t1"].high
    assert first["in0"].low == values.min() and high == 2 * first["t0"].high
    assert second["in0"].low == pytest.approx(np.sinh(low), rel=1e-5)
    assert second["in0"].high == pytest.approx(np.sinh(high), rel=1e-5)


def test_several_outputs_and_samples_through_the_cpu() -> None:
    x = var("x", (2, 4, 6, 6))
    pooled = relay.nn.max_pool2d(x, (3, 3), padding=(1, 1))
    other = relay.add(relay.atan(pooled), relay.nn.relu(pooled))
    values = randoms(3, 6, 4, 6, 6)
    ranges = ranges_of(partition_for_npu(module(other), calibration=values, offload="all"))
    windows = np.pad(values, ((0, 0), (0, 0), (1, 1), (1, 1)), constant_values=-np.inf)
    views = np.lib.stride_tricks.sliding_window_view(windows, (3, 3), axis=(2, 3))
    best = np.arctan(views.max(axis=(-1, -2)))
    last = ranges["tvmgen_default_npu_main_1"]
    assert last["in0"].high == pytest.approx(best.max(), rel=1e-5)
    assert last["in0"].low == pytest.approx(best.min(), rel=1e-5)


def test_wrong_input_name_reaches_the_user() -> None:
    with pytest.raises(CalibrationError, match=r"unknown: \['image'\]"):
        partition_for_npu(small_cnn(), calibration={"image": X})


@pytest.mark.parametrize("quantization", ["equalised", "bias-corrected"])
def test_adjusted_int8_regions_run_on_the_simulator(quantization: str) -> None:
    """What calibration changes reaches the program, and the simulator computes it to the bit."""
    chosen = tvm_npu.target("nmp-4x8-int8", quantization=quantization)
    samples = randoms(7, 6, 3, 12, 12)
    mod = partition_for_npu(small_cnn(), target=chosen, calibration=samples)
    ((name, function),) = region_functions(mod).items()
    plain = partition_for_npu(small_cnn(), target="npu/nmp-4x8-int8", calibration=samples)
    assert ADJUSTMENTS in function.attrs and ADJUSTMENTS not in plain[name].attrs
    fixed, before = (region_fixed_graphs(one)[name] for one in (mod, plain))
    ((entry, out),) = zip(fixed.inputs, fixed.outputs, strict=True)
    session = Session(Program.from_bytes(region_programs(mod)[name]))
    (made,) = session.run([samples[:1]])
    errors = []
    for graph in (fixed, before):
        integers = {entry: graph.scales[entry].quantize(samples, 1)}
        errors.append(graph.scales[out].dequantize(run_fixed(graph, integers)[out]))
    np.testing.assert_array_equal(made.reshape(1, -1), errors[0][:1].reshape(1, -1))
    wanted = run_float(import_region(function), {entry: samples})[out]
    first, second = (float(np.square(values - wanted).sum()) for values in errors)
    assert first < second


def test_unknown_quantization() -> None:
    with pytest.raises(TargetError, match="'finest': must be one of plain, equalised, bias-correc"):
        tvm_npu.target("nmp-4x8-int8", quantization="finest")
