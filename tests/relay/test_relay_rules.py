"""Every refusal: which rule, what was found, what is allowed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

pytest.importorskip("tvm.relay", exc_type=ImportError)
from tvm import relay  # noqa: E402

from tests.relay.relay_cases import const, module, randoms, split, stock, var  # noqa: E402
from tvm_npu.relay import explain, partition_for_npu  # noqa: E402

pytestmark = pytest.mark.relay

ANY = relay.Any()


def x(*shape: Any, dtype: str = "float32") -> Any:
    return var("x", shape or (1, 4, 8, 8), dtype)


def conv(data: Any, weight: Any = None, size: int = 3, **attrs: Any) -> Any:
    if weight is None:
        weight = const(randoms(0, 4, 4, size, size))
    return relay.nn.conv2d(data, weight, channels=4, kernel_size=(size, size), **attrs)


def nan_weight() -> Any:
    values = randoms(0, 4, 4, 3, 3)
    values[1, 2, 0, 0] = np.nan
    values[0, 0, 0, 0] = np.inf
    return const(values)


CASES: dict[str, tuple[Callable[[], Any], str, str, str]] = {
    "unknown operator": (
        lambda: relay.cos(x()),
        "have instructions for",
        "cos",
        "those listed in docs/rules.md",
    ),
    "leaky relu": (
        lambda: relay.nn.leaky_relu(x(), 1.5),
        "slope of a leaky ReLU",
        "slope 1.5",
        "0 to 1",
    ),
    "dynamic": (
        lambda: relay.nn.relu(x(ANY, 4, 8, 8)),
        "static shape",
        "Tensor[(?, 4, 8, 8), float32]",
        "no unknown",
    ),
    "float64": (
        lambda: conv(x(dtype="float64"), const(randoms(0, 4, 4, 3, 3), "float64")),
        "float32",
        "float64",
        "float32",
    ),
    "int8": (lambda: relay.nn.relu(x(dtype="int8")), "float32", "int8", "float32"),
    "zero extent": (
        lambda: relay.nn.relu(x(1, 0, 8, 8)),
        "at least 1",
        "(1, 0, 8, 8)",
        "at least 1",
    ),
    "long extent": (
        lambda: relay.nn.relu(x(1, 1, 1, 70000)),
        "at most 65535",
        "70000",
        "at most 65535",
    ),
    "too large": (
        lambda: relay.nn.relu(x(1, 4096, 300, 600)),
        "DRAM",
        "2949120000 bytes",
        "1073741824 bytes",
    ),
    "rank 3": (lambda: relay.nn.relu(x(1, 4, 8)), "rank 4", "rank 3, (1, 4, 8)", "rank 4 or 2"),
    "rank 1": (lambda: relay.nn.relu(x(4)), "rank 4", "rank 1, (4,)", "rank 4 or 2"),
    "batch changes": (
        lambda: relay.reshape(x(2, 4, 8, 8), (4, 128)),
        "batch",
        "(2, 4, 8, 8), (4, 128)",
        "one first extent",
    ),
    "batch is cut": (
        lambda: relay.strided_slice(x(2, 4, 8, 8), [0], [1], axes=[0]),
        "batch",
        "(2, 4, 8, 8), (1, 4, 8, 8)",
        "one first extent",
    ),
    "variable weight": (
        lambda: conv(x(), var("w", (4, 4, 3, 3))),
        "is a constant",
        "operand 1 (w) is only known at run time",
        "a constant",
    ),
    "constant data": (
        lambda: conv(const(randoms(0, 1, 4, 8, 8)), var("w", (4, 4, 3, 3))),
        "data operand",
        "a constant",
        "run-time",
    ),
    "nan weight": (lambda: conv(x(), nan_weight()), "neither NaN", "2 of 144", "0 values"),
    "kernel too large for MB0": (
        lambda: conv(x(1, 4, 80, 80), size=65),
        "fits its memory",
        "window 65x65 = 8450 bytes",
        "8192 bytes of MB0",
    ),
    "dilated window with strides too large": (
        lambda: conv(x(1, 4, 80, 80), dilation=(33, 33), strides=(2, 2)),
        "fits its memory",
        "window 67x67 = 8978 bytes",
        "8192 bytes of MB0",
    ),
    "rows of a dilated window too long": (
        lambda: conv(x(1, 4, 8, 1500), dilation=(1, 700)),
        "fits its memory",
        "window 3x1401 = 8406 bytes",
        "8192 bytes of MB0",
    ),
    "more biases than the TLTs have room for": (
        lambda: relay.nn.dense(x(1, 4), const(np.zeros((32769, 4)))),
        "fit the bias memories",
        "32769 filters = 4100 bytes in each TLT",
        "4096 bytes of bias buffer",
    ),
    "as many in a group of a convolution": (
        lambda: relay.nn.conv2d(
            x(1, 2, 1, 1),
            const(np.zeros((65538, 1, 1, 1))),
            channels=65538,
            kernel_size=(1, 1),
            groups=2,
        ),
        "at most 65535",
        "65538",
        "at most 65535",
    ),
    "negative padding": (
        lambda: conv(x(), padding=(-1, 0)),
        "not negative",
        "(-1, 0, -1, 0)",
        "at least 0",
    ),
    "kernel layout": (
        lambda: relay.nn.conv2d(
            x(),
            const(randoms(0, 3, 3, 4, 4)),
            channels=4,
            kernel_size=(3, 3),
            kernel_layout="HWIO",
        ),
        "Layouts are NCHW",
        "weight layout HWIO",
        "OIHW",
    ),
    "pool window too large": (
        lambda: relay.nn.max_pool2d(x(1, 4, 80, 80), (65, 65)),
        "fits the memory for input",
        "window 65x65 = 8450 bytes",
        "8192 bytes of MB0",
    ),
    "global pool that no equal parts fit": (
        lambda: relay.nn.global_avg_pool2d(x(1, 4, 4099, 1)),
        "equal parts do",
        "window 4099x1 = 8198 bytes",
        "8192 bytes of MB0",
    ),
    "dilated pool": (
        lambda: relay.nn.max_pool2d(x(), (2, 2), dilation=(2, 2)),
        "not dilated",
        "dilation (2, 2)",
        "(1, 1)",
    ),
    "window that stays where it is": (
        lambda: conv(x(), dilation=(0, 1)),
        "Strides and dilations are at least 1",
        "dilation (0, 1)",
        "at least 1",
    ),
    "window that moves back": (
        lambda: conv(x(), strides=(1, -1)),
        "Strides and dilations are at least 1",
        "strides (1, -1)",
        "at least 1",
    ),
    "window in the padding": (
        lambda: relay.nn.avg_pool2d(x(), (2, 2), (2, 2), padding=(2, 2)),
        "at least one element",
        "kernel (2, 2)",
        "no window",
    ),
    "adaptive pool": (
        lambda: relay.nn.adaptive_avg_pool2d(x(), (2, 2)),
        "to 1x1",
        "output 2x2",
        "1x1",
    ),
    "mean over channels": (
        lambda: relay.mean(x(), axis=1, keepdims=True),
        "rows and columns",
        "axes [1]",
        "(2, 3)",
    ),
    "concatenate images": (
        lambda: relay.concatenate([x(), x()], axis=0),
        "stays what it is",
        "(2, 4, 8, 8)",
        "one first extent",
    ),
    "concatenate a constant": (
        lambda: relay.concatenate([x(), const(randoms(0, 1, 4, 8, 8))], axis=1),
        "run-time tensors",
        "field 1 is a constant",
        "run-time",
    ),
    "broadcast": (
        lambda: relay.multiply(x(), var("gate", (1, 4, 8, 1))),
        "two tensors of one shape",
        "(1, 4, 8, 1) broadcast",
        "equal",
    ),
    "constant per element": (
        lambda: relay.add(x(), const(randoms(0, 8, 8))),
        "constant per channel",
        "constant (8, 8)",
        "one value per channel",
    ),
    "quotient of tensors": (
        lambda: relay.divide(x(), var("y", (1, 4, 8, 8))),
        "A divisor is a constant",
        "a run-time divisor",
        "a constant",
    ),
    "division by zero": (
        lambda: relay.divide(x(), const(0.0)),
        "finite reciprocal",
        "1 values",
        "0 values",
    ),
    "minimum of tensors": (
        lambda: relay.minimum(x(), var("y", (1, 4, 8, 8))),
        "one constant number",
        "two tensors",
        "a number",
    ),
    "clip upside down": (lambda: relay.clip(x(), 2.0, 1.0), "lower bound", "clip(2, 1)", "low"),
    "edge padding": (
        lambda: relay.nn.pad(x(), ((0, 0), (0, 0), (1, 1), (1, 1)), pad_mode="edge"),
        "one finite constant",
        "mode edge",
        "constant",
    ),
    "control flow": (
        lambda: relay.If(var("c", (), "bool"), relay.nn.relu(x()), x()),
        "control flow",
        "If",
        "operator calls",
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_refusal(case: str) -> None:
    make, rule, value, limit = CASES[case]
    found = split(module(make()))
    assert found.regions == ()
    (refusal,) = found.refusals
    assert rule in refusal.rule and value in refusal.value and limit in refusal.limit, refusal
    for part in (refusal.rule, refusal.value, refusal.limit, "stays on the CPU"):
        assert part in str(refusal)


def test_variance_must_be_positive() -> None:
    ones = const(np.ones(4))
    y = relay.nn.batch_norm(x(), ones, ones, ones, const(-np.ones(4)))[0]
    (refusal,) = split(module(y)).refusals
    assert "variance" in refusal.rule and refusal.value == "-0.99999"


def test_running_statistics_are_not_the_npu_s() -> None:
    ones = const(np.ones(4))
    y = relay.nn.batch_norm(x(), ones, ones, ones, ones)
    (refusal,) = split(module(relay.Tuple([y[0], y[1]]))).refusals
    assert refusal.value == "running statistics"


def test_large_windows_that_need_not_lie_in_a_buffer_at_once() -> None:
    """Of a dilated convolution only the rows that it reads come; a global pool takes two steps."""
    for large, atol in (
        (conv(x(1, 4, 80, 80), dilation=(33, 33)), 4e-3),
        (relay.nn.global_avg_pool2d(x(1, 4, 65, 65)), 2e-4),
        (relay.nn.global_max_pool2d(x(1, 4, 65, 65)), 2e-4),
    ):
        mod = module(large)
        shape = mod["main"].params[0].type_annotation.shape
        values = randoms(7, *map(int, shape))
        mine = partition_for_npu(mod, calibration=values)
        assert len(explain(mine).regions) == 1 and not explain(mine).refusals
        (want,), (got,) = stock(mod, [values]), stock(mine, [values], "npu/nmp-4x8")
        np.testing.assert_allclose(got, want, rtol=0, atol=atol)


def test_limits_come_from_the_machine_and_the_precision() -> None:
    mod = module(conv(x(1, 4, 80, 80), size=65))
    assert split(mod, element_bytes=2).regions == ()
    assert len(split(mod, element_bytes=1).regions) == 1
