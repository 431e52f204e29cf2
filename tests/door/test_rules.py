"""Rules on hand-built calls: what is found, what is allowed; the table; the vocabulary."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from tests.door.flows import call, const, conv, flow, of, randoms, split, x
from tvm_npu.door.dataflow import Dataflow, Input, OpCall, TensorType, Value, constant
from tvm_npu.door.document import rules_document
from tvm_npu.door.layers import HANDLERS, MAKES
from tvm_npu.door.operators import ATTRIBUTES
from tvm_npu.door.rule_table import ANCHORS, LAYOUT_ONLY, RULES, WEIGHTED, remedies, rule_table

F = (1, 4, 8, 8)
WEIGHT = (4, 4, 3, 3)


def spoiled() -> np.ndarray:  # type: ignore[type-arg]
    values = randoms(0, *WEIGHT)
    values[1, 2, 0, 0], values[0, 0, 0, 0] = np.nan, np.inf
    return values


CASES: dict[str, tuple[Callable[[], Value], str, str, str]] = {
    "unknown": (
        lambda: of("cos", x(*F), to=F), "instructions for", "my.cos", "those listed in docs/rules",
    ),
    "open": (
        lambda: of("relu", x("n", 4, 8, 8), to=("n", 4, 8, 8)),
        "static shape", "Tensor[(n, 4, 8, 8), float32]", "no unknown",
    ),
    "double": (lambda: of("relu", x(*F, dtype="float64"), to=F), "float32", "float64", "float32"),
    "wide": (
        lambda: of("relu", x(1, 1, 1, 70000), to=(1, 1, 1, 70000)),
        "at most 65535", "70000", "at most 65535",
    ),
    "nan": (
        lambda: of("conv2d", x(*F), constant(spoiled()), to=(1, 4, 6, 6)),
        "neither NaN", "2 of 144 values of (4, 4, 3, 3)", "0 values",
    ),
    "weight from outside": (
        lambda: of("conv2d", x(*F), x(*WEIGHT, name="w"), to=(1, 4, 6, 6)),
        "is a constant", "operand 1 (w) is only known at run time", "a constant",
    ),
    "layout": (
        lambda: of("conv2d", x(*F), const(*WEIGHT), to=(1, 4, 6, 6), kernel_layout="HWIO"),
        "Layouts are NCHW", "weight layout HWIO", "OIHW",
    ),
    "transposed layout": (
        lambda: of(
            "conv2d_transpose", x(*F), const(*WEIGHT), to=(1, 4, 10, 10), kernel_layout="OIHW"
        ),
        "IOHW for weights", "weight layout OIHW", "IOHW",
    ),
    "transposed and dilated": (
        lambda: of("conv2d_transpose", x(*F), const(*WEIGHT), to=(1, 4, 12, 12), dilation=2),
        "transposed convolution is not dilated", "dilation (2, 2)", "(1, 1)",
    ),
    "logarithm alone": (
        lambda: of("log", x(*F), to=F), "of functions that have a table", "log", "poles"
    ),
    "two that broadcast": (
        lambda: of("add", x(1, 4, 1, 1), x(1, 4, 8, 1), to=(1, 4, 8, 8)),
        "Arithmetic joins", "two tensors that broadcast", "the result's shape",
    ),
    "rows that broadcast": (
        lambda: of("multiply", x(*F), x(1, 4, 8, 1), to=F),
        "one number a channel (N, C, 1, 1)", "(1, 4, 8, 1) broadcast to", "one number a channel",
    ),
    "reflected too far": (
        lambda: of("mirror_pad", x(*F), to=(1, 4, 16, 8), mode="REFLECT",
                   pad_width=((0, 0), (0, 0), (8, 0), (0, 0))),
        "or reflects", "(8, 0) on axis 2", "0 to 7",
    ),
    "reflected channels": (
        lambda: of("pad", x(*F), const(1), to=(1, 6, 8, 8), pad_mode="reflect",
                   pad_width=((0, 0), (1, 1), (0, 0), (0, 0))),
        "or reflects", "(1, 1) on axis 1", "0 to 0",
    ),
    "symmetric": (
        lambda: of("mirror_pad", x(*F), to=(1, 4, 9, 8), mode="SYMMETRIC",
                   pad_width=((0, 0), (0, 0), (1, 0), (0, 0))),
        "or reflects", "mode SYMMETRIC", "constant or reflect",
    ),
    "edge": (
        lambda: of("pad", x(*F), const(1), to=(1, 4, 9, 8), pad_mode="edge",
                   pad_width=((0, 0), (0, 0), (1, 0), (0, 0))),
        "or reflects", "mode edge", "constant or reflect",
    ),
    "maximum that widens": (
        lambda: of("maximum", x(*F), x(1, 4, 1, 1), to=F),
        "A maximum has two", "(1, 4, 8, 8) and (1, 4, 1, 1)", "equal shapes",
    ),
    "maximum with a vector": (
        lambda: of("maximum", x(*F), const(4, 1, 1), to=F),
        "A maximum has two", "a constant of several", "a number",
    ),
    "minimum of tensors": (
        lambda: of("minimum", x(*F), x(*F), to=F), "one constant number", "two tensors", "a number"
    ),
    "run-time divisor": (
        lambda: of("divide", x(*F), x(*F), to=F), "A divisor", "a run-time divisor", "a constant"
    ),
    "window": (
        lambda: conv(x(1, 4, 80, 80), 4, 65),
        "fits its memory", "window 65x65 = 8450 bytes", "8192 bytes of MB0",
    ),
    "mean": (
        lambda: of("mean", x(*F), to=(1, 1, 8, 8), axis=-3),
        "rows and columns", "axes [1] of rank 4", "(2, 3)",
    ),
    "concatenation": (
        lambda: of("concatenate", x(*F), const(*F), to=(1, 8, 8, 8), axis=1),
        "run-time tensors", "field 1 is a constant", "a run-time tensor",
    ),
    "tuple": (
        lambda: of(
            "concatenate", Input((TensorType(F),), is_tuple=True), to=F, axis=1
        ),
        "run-time tensors", "a tuple from elsewhere", "a tuple of tensors",
    ),
    "slice": (
        lambda: of(
            "strided_slice", x(*F), to=(1, 1, 8, 8), begin=[2], end=[2], strides=[1], axes=[-3]
        ),
        "Slices take", "2:2:1 on axis 1", "at least one",
    ),
    "slice of the batch": (
        lambda: of(
            "strided_slice", x(2, 4, 8, 8), to=(2, 4, 8, 8), begin=[-1], end=[-9], strides=[-1]
        ),
        "Slices take", "(1, -1, -1) of the batch", "all of it",
    ),
    "transposed batch": (
        lambda: of("transpose", x(1, 1, 8, 8), to=(1, 1, 8, 8), axes=[1, 0, 2, 3]),
        "leaves the batch", "axes (1, 0, 2, 3)", "axis 0 first",
    ),
    "reversed batch": (
        lambda: of("reverse", x(*F), to=F, axis=0), "any axis but", "axis 0", "at least 1"
    ),
    "seven axes": (
        lambda: of("transpose", x(1, 2, 2, 2, 2, 2, 2), to=(1, 2, 2, 2, 2, 2, 2)),
        "only moved", "rank 7", "rank 2 to 6",
    ),
    "blocks of NHWC": (
        lambda: of("depth_to_space", x(*F), to=(1, 4, 8, 8), block_size=2, layout="NHWC"),
        "Blocks between", "layout NHWC", "NCHW",
    ),
    "crop and resize": (
        lambda: of("image.resize2d", x(*F), to=(1, 4, 16, 16), method="linear",
                   coordinate_transformation_mode="tf_crop_and_resize"),
        "A resize is", "tf_crop_and_resize", "half_pixel, ",
    ),
    "cubic without the border": (
        lambda: of("image.resize2d", x(*F), to=(1, 4, 16, 16), method="cubic", cubic_exclude=1),
        "A resize is", "cubic_exclude", "outside",
    ),
    "resize without a pattern": (
        lambda: of("image.resize2d", x(1, 4, 8, 331), to=(1, 4, 8, 997),
                   method="nearest_neighbor", coordinate_transformation_mode="align_corners"),
        "patterns that repeat", "patterns", "at most 48",
    ),
    "slope": (lambda: of("leaky_relu", x(*F), to=F, alpha=1.5), "leaky", "slope 1.5", "0 to 1"),
    "control flow": (
        lambda: OpCall("", (), (TensorType(F),), spelling="If", is_call=False).result(),
        "control flow", "If", "operator calls",
    ),
    "function": (
        lambda: OpCall("", (x(*F),), (TensorType(F),)).result(),
        "instructions for", "a function", "those listed in docs/rules.md",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_refusal(case: str) -> None:
    make, rule, value, limit = CASES[case]
    found = split(make())
    assert found.regions == ()
    (refusal,) = found.refusals
    assert rule in refusal.rule and value in refusal.value and limit in refusal.limit, refusal
    page, _, anchor = refusal.page.partition("#")
    (place,) = [line for line in rules_document().splitlines() if f'<a id="{anchor}">' in line]
    assert page == "docs/rules.md" and (anchor == "unknown-operator" or refusal.rule in place)


def test_every_remedy_is_of_a_rule_that_says_it() -> None:
    known = {rule for _, texts in rule_table() for rule in texts} | ANCHORS.keys()
    assert remedies().keys() <= known
    (refusal,) = split(of("relu", x(*F), to=F)).refusals
    assert refusal.remedy == remedies().get(refusal.rule, "")
    (refusal,) = split(conv(x(1, 4, 80, 80), 4, 65)).refusals
    assert "own.toml" in refusal.remedy == remedies()[refusal.rule]


LACKING = {
    "softmax": lambda: of("softmax", conv(x(*F), 4), to=(1, 4, 8, 8), axis=1),
    "table": lambda: of("sigmoid", conv(x(*F), 4), to=(1, 4, 8, 8)),
}


@pytest.mark.parametrize("layer", LACKING)
def test_machines_without_code_for_a_layer(layer: str) -> None:
    (refusal,) = split(LACKING[layer](), machine="zynq-7020").refusals
    assert "machine has instructions for the layer" in refusal.rule
    assert refusal.value == layer and "conv, difference, elementwise" in refusal.limit
    assert not split(LACKING[layer]()).refusals


def test_limits_come_from_the_machine_and_the_precision() -> None:
    assert split(conv(x(1, 4, 80, 80), 4, 65)).regions == ()
    assert len(split(conv(x(1, 4, 80, 80), 4, 65), precision="int8").regions) == 1


@pytest.mark.parametrize("name", ("nmp-4x8", "zynq-7020", "setup-a", "snowflake-1cc"))
def test_taps_that_meet_nothing_but_padding_need_no_memory(name: str) -> None:
    def dilated(rate: int, extent: int) -> Value:
        made = (1, 4, extent, extent)
        return of("conv2d", x(1, 960, extent, extent), const(4, 960, 3, 3), to=made,
                  dilation=rate, padding=rate)  # fmt: skip

    assert split(dilated(9000, 14), machine=name).refusals == ()
    assert split(dilated(14, 14), machine=name).refusals == ()


@pytest.mark.parametrize(
    ("name", "stride", "value"),
    [
        ("snowflake-1cc", 1, None), ("snowflake-4cc", 2, None), ("nmp-4x8", 1, None),
        ("nmp-4x8", 2, "window 73x73 = 10658 bytes"),
    ],
)  # fmt: skip
def test_what_lies_between_taps_needs_no_memory_where_it_stays_outside(
    name: str, stride: int, value: str | None
) -> None:
    """On Snowflake rows and columns, on NMPs rows where windows follow each other."""
    out = 80 // stride
    made = of("conv2d", x(1, 960, 80, 80), const(4, 960, 3, 3), to=(1, 4, out, out), dilation=36,
              padding=36, strides=stride)  # fmt: skip
    refusals = split(made, machine=name).refusals
    assert len(refusals) == (value is not None)
    assert all(value in one.value for one in refusals if value is not None)


@pytest.mark.parametrize(
    ("make", "value"),
    [
        (
            lambda: of("dense", x(1, 40000), const(2, 40000), to=(1, 2)),
            "40000 inputs = 80032 bytes",
        ),
        (
            lambda: of("matmul", x(1, 40000), const(40000, 2), to=(1, 2)),
            "40000 inputs = 80032 bytes",
        ),
        (
            lambda: of("pad", conv(x(1, 1, 2, 2), 20000, 1), const(1), to=(1, 20000, 3, 2),
                       pad_mode="constant", pad_width=((0, 0), (0, 0), (1, 0), (0, 0))),
            "20000 channels = 80000 bytes",
        ),
    ],
    ids=("dense", "matmul", "pad"),
)  # fmt: skip
def test_a_machine_without_partial_sums_takes_all_inputs(
    make: Callable[[], Value], value: str
) -> None:
    assert split(make()).refusals == ()
    (refusal,) = split(make(), machine="snowflake-4cc").refusals
    assert value in refusal.value and refusal.limit == "65536 bytes of MBuf"


def test_attributes_of_open_shapes_are_not_looked_at() -> None:
    def never(name: str) -> object:
        raise AssertionError(f"attribute {name} was read")

    operand = x(1, "n", 8, 8)
    made = OpCall("conv2d", (operand, const(*WEIGHT)), operand.types, raw_attribute=never)
    (refusal,) = split(made.result()).refusals
    assert refusal.value == "Tensor[(1, n, 8, 8), float32]"


def test_a_tuple_is_taken_apart_at_once() -> None:
    parts = call("split", conv(x(*F), 4), to=[(1, 2, 8, 8)] * 2, axis=1, indices_or_sections=2)
    assert split(parts.result(0), parts.result(1)).refusals == ()
    (refusal,) = split(parts.result()).refusals
    assert (refusal.operator, refusal.value) == ("my.split", "a tuple as it is")


def test_running_statistics_are_not_the_npu_s() -> None:
    ones = constant(np.ones(4, np.float32))
    made = call("batch_norm", x(*F), ones, ones, ones, ones, to=[F, (4,), (4,)])
    assert split(made.result(0)).refusals == ()
    (refusal,) = split(made.result(0), made.result(2)).refusals
    assert refusal.value == "running statistics"


def test_each_operator_has_rules_an_importer_and_attributes() -> None:
    assert set(RULES) == set(HANDLERS) == set(MAKES) <= set(ATTRIBUTES)
    assert all(MAKES.values())
    assert LAYOUT_ONLY < set(RULES) and WEIGHTED < set(RULES)
    table = dict(rule_table())
    assert set(table) == {"every operator", *RULES}
    assert all(text.endswith(".") for texts in table.values() for text in texts)
    assert all(len(set(texts)) == len(texts) for texts in table.values())


def test_nothing_is_refused_where_nothing_is_called() -> None:
    assert split(x(*F)).pieces == () and flow(x(*F)).calls == ()
    assert Dataflow((), ()).constants == ()
