"""Which rules an operator has to keep, and in which order; the table for the documentation."""

from __future__ import annotations

from functools import cache

from tvm_npu.door import arithmetic_rules, memory_rules, moving_rules, rules, window_rules
from tvm_npu.door.dataflow import OpCall
from tvm_npu.door.layers import FUNCTIONS
from tvm_npu.door.rules import Context, Rule, Violation
from tvm_npu.report import Refusal

TYPES: tuple[Rule, ...] = (
    rules.static_shapes,
    rules.float32_tensors,
    rules.extents_in_range,
    rules.finite_constants,
)
WEIGHTS: tuple[Rule, ...] = (rules.data_is_variable, rules.constant_weights)
SHAPES: tuple[Rule, ...] = (rules.batch_kept, memory_rules.tensors_fit_memory)

WEIGHTED = frozenset(
    {"conv2d", "conv2d_transpose", "dense", "matmul", "bias_add", "batch_norm", "prelu"}
)
"""Operators with constant operands next to the data."""

_POOL: tuple[Rule, ...] = (rules.rank_4, window_rules.nchw_layout, memory_rules.pool_tile_fits)
_WINDOW: tuple[Rule, ...] = (
    rules.rank_4,
    window_rules.nchw_layout,
    window_rules.pool_not_dilated,
    window_rules.windows_move,
    window_rules.padding_not_negative,
    window_rules.windows_meet_tensor,
    memory_rules.pool_tile_fits,
)

RULES: dict[str, tuple[Rule, ...]] = {
    "conv2d": (
        rules.rank_4,
        window_rules.nchw_layout,
        window_rules.windows_move,
        window_rules.padding_not_negative,
        memory_rules.conv_tile_fits,
        memory_rules.conv_weights_fit,
        memory_rules.biases_fit,
    ),
    "conv2d_transpose": (
        rules.rank_4,
        window_rules.transposed_layout,
        window_rules.transposed_not_dilated,
        window_rules.windows_move,
        window_rules.padding_not_negative,
        memory_rules.conv_tile_fits,
        memory_rules.conv_weights_fit,
        memory_rules.biases_fit,
    ),
    "dense": (
        arithmetic_rules.dense_rank_2,
        memory_rules.dense_input_fits,
        memory_rules.biases_fit,
    ),
    "matmul": (
        arithmetic_rules.dense_rank_2,
        memory_rules.dense_input_fits,
        memory_rules.biases_fit,
    ),
    "bias_add": (arithmetic_rules.channel_axis,),
    "batch_norm": (arithmetic_rules.channel_axis, arithmetic_rules.positive_variance),
    "relu": (),
    "leaky_relu": (arithmetic_rules.slope_in_range,),
    "prelu": (arithmetic_rules.slopes_in_range,),
    **dict.fromkeys(FUNCTIONS, ()),
    "clip": (arithmetic_rules.ordered_bounds,),
    "maximum": (arithmetic_rules.two_tensors_or_scalar_bound,),
    "minimum": (arithmetic_rules.scalar_bound,),
    "max_pool2d": _WINDOW,
    "avg_pool2d": _WINDOW,
    "global_max_pool2d": _POOL,
    "global_avg_pool2d": _POOL,
    "adaptive_avg_pool2d": (*_POOL, window_rules.global_output),
    "adaptive_max_pool2d": (*_POOL, window_rules.global_output),
    "mean": (rules.rank_4, window_rules.mean_over_space, memory_rules.pool_tile_fits),
    "add": (arithmetic_rules.same_shape_or_channel_constant,),
    "multiply": (arithmetic_rules.same_shape_or_channel_constant,),
    "subtract": (arithmetic_rules.same_shape_or_channel_constant,),
    "divide": (
        arithmetic_rules.same_shape_or_channel_constant,
        arithmetic_rules.constant_divisor,
        arithmetic_rules.nonzero_divisor,
    ),
    "negative": (),
    "concatenate": (moving_rules.run_time_fields, moving_rules.axis_behind_the_batch),
    "split": (moving_rules.axis_behind_the_batch, moving_rules.equal_split),
    "batch_flatten": (),
    "reshape": (),
    "squeeze": (),
    "expand_dims": (),
    "pad": (rules.rank_4, window_rules.known_padding, memory_rules.padded_pixel_fits),
    "mirror_pad": (rules.rank_4, window_rules.known_padding, memory_rules.padded_pixel_fits),
    "strided_slice": (moving_rules.slices_have_elements, memory_rules.padded_pixel_fits),
    "transpose": (moving_rules.batch_stays_first,),
    "reverse": (moving_rules.axis_behind_the_batch,),
    "softmax": (moving_rules.axis_behind_the_batch, memory_rules.softmax_row_fits),
    "depth_to_space": (rules.rank_4, window_rules.nchw_blocks),
    "space_to_depth": (rules.rank_4, window_rules.nchw_blocks),
    "upsampling": (rules.rank_4, window_rules.known_resize, window_rules.resize_in_runs),
    "image.resize2d": (rules.rank_4, window_rules.known_resize, window_rules.resize_in_runs),
}

MOVES = frozenset(
    {
        "concatenate",
        "split",
        "batch_flatten",
        "reshape",
        "squeeze",
        "expand_dims",
        "strided_slice",
        "transpose",
        "reverse",
    }
)
"""Operators that move elements of tensors of any rank."""

LAYOUT_ONLY = frozenset(
    {
        "relu",
        "leaky_relu",
        "prelu",
        *FUNCTIONS,
        "clip",
        "maximum",
        "minimum",
        "concatenate",
        "split",
        "batch_flatten",
        "reshape",
        "squeeze",
        "expand_dims",
        "pad",
        "mirror_pad",
        "strided_slice",
        "transpose",
        "reverse",
        "depth_to_space",
        "space_to_depth",
        "upsampling",
        "image.resize2d",
    }
)
"""Operators that are worth nothing on the NPU alone: they only ride along in a region."""

UNKNOWN_OPERATOR = "The operator is one of those that an NPU may have instructions for."
NOTHING_TO_COMPUTE = "A region computes something: a convolution, a pooling, a sum or a product."
DOES_NOT_PAY = "A region without weights and windows saves the CPU more than calling it costs."
SOFTMAX_IS_ROUNDED = (
    "A softmax that a quantized model rounds to 8 bits runs on the CPU: the NPU's steps round more."
)
SOFTMAX_STEPS = "A softmax at the end of a region saves the CPU more than its steps cost the NPU."
TOO_WIDE = "The values that a tensor takes in calibration fit the smallest Q-point."
CANCELS = "Sums and bounds leave enough digits of what the CPU hands over."
PAGE = "docs/rules.md"
"""Has an anchor for each operator that has rules."""
CONTROL_FLOW = "Conditionals, functions and other control flow run on the CPU."
MACHINE_LACKS = "The machine has instructions for the layer that the operator becomes."
ONLY_A_PART = (
    "Logarithms, roots and roundings are parts: of functions that have a table, such as softplus, "
    "or of the roundings of a model of 8 bits."
)
STEPS_ARE_NO_BATCH = "Only a recurrent layer takes a sequence of another, its steps first."
TUPLE_IS_PICKED = "The result of an operator with several results is taken apart at once."

EVERY_OPERATOR = "every-operator"
ANCHORS: dict[str, str] = {
    UNKNOWN_OPERATOR: "unknown-operator",
    CONTROL_FLOW: "control-flow",
    TUPLE_IS_PICKED: "several-results",
    NOTHING_TO_COMPUTE: "nothing-to-compute",
    DOES_NOT_PAY: "does-not-pay",
    SOFTMAX_STEPS: "softmax-steps",
    SOFTMAX_IS_ROUNDED: "rounded-softmax",
    MACHINE_LACKS: "machine-lacks",
    STEPS_ARE_NO_BATCH: "steps",
    ONLY_A_PART: "only-a-part",
    TOO_WIDE: "too-wide",
    CANCELS: "cancels",
}
"""Where `PAGE` has the rules that go with no single operator."""

_LARGER_MEMORY = (
    "a machine with more memory: 'tvm-npu machines NAME > own.toml', change it, "
    "'--machine own.toml'"
)
_ALL = "'--offload all' (offload='all' in Python) takes it all the same"
REMEDIES: dict[Rule | str, str] = {
    rules.static_shapes: "'--shape NAME=1,3,224,224' (shape= in Python) gives an input its extents",
    rules.float32_tensors: "export the model in float32; only numbers that are computed with count",
    rules.finite_constants: "export the weights anew; NaN spoils the answer on the CPU, too",
    rules.data_is_variable: "fold constants when the model is exported",
    rules.constant_weights: "if it is a weight, make it an initializer, not an input of the model",
    window_rules.nchw_layout: "export the model with channels first",
    window_rules.global_output: "a pool with a window of a fixed size",
    DOES_NOT_PAY: _ALL,
    SOFTMAX_STEPS: _ALL,
    CANCELS: f"{_ALL}, with fewer digits",
    MACHINE_LACKS: "another machine may have them ('tvm-npu machines' lists all)",
    **dict.fromkeys(
        (
            memory_rules.tensors_fit_memory, memory_rules.conv_tile_fits,
            memory_rules.conv_weights_fit, memory_rules.biases_fit,
            memory_rules.dense_input_fits, memory_rules.padded_pixel_fits,
            memory_rules.pool_tile_fits, memory_rules.softmax_row_fits,
        ),
        _LARGER_MEMORY,
    ),
}  # fmt: skip
"""What a user can do about a broken rule, where there is something."""


def check(call: OpCall, context: Context) -> Refusal | None:
    """The first rule that ``call`` breaks, as a refusal; None when the NPU takes it."""
    if not call.is_call:
        return refusal(call, CONTROL_FLOW, Violation(call.spelling, "operator calls"))
    if call.name not in RULES:
        found = Violation(call.spelling or "a function", f"those listed in {PAGE}")
        return refusal(call, UNKNOWN_OPERATOR, found)
    for rule in _rules_of(call.name):
        violation = rule(call, context)
        if violation is not None:
            return refusal(call, _text(rule), violation)
    return None


def check_types(call: OpCall, context: Context) -> Refusal | None:
    """The first rule about tensors and constants that a call of a recurrent layer breaks."""
    for rule in (*TYPES, memory_rules.tensors_fit_memory):
        violation = rule(call, context)
        if violation is not None:
            return refusal(call, _text(rule), violation)
    return None


def refusal(call: OpCall, rule: str, violation: Violation) -> Refusal:
    """What a user reads of a broken rule."""
    name = call.spelling or "call"
    remedy = remedies().get(rule, "")
    page = f"{PAGE}#{_anchor(call.name, rule)}"
    return Refusal(
        call.source, name, rule, violation.value, violation.limit, page=page, remedy=remedy
    )


def _anchor(operator: str, rule: str) -> str:
    if rule in ANCHORS:
        return ANCHORS[rule]
    common = any(_text(one) == rule for one in (*TYPES, *SHAPES))
    return EVERY_OPERATOR if common or operator not in RULES else operator


@cache
def remedies() -> dict[str, str]:
    """By the rule's text."""
    return {one if isinstance(one, str) else _text(one): what for one, what in REMEDIES.items()}


def rule_table() -> tuple[tuple[str, tuple[str, ...]], ...]:
    """(operator, its rules' texts) in alphabetical order; the rules of all operators come
    first, under "every operator"."""
    common = (*TYPES, *SHAPES)
    own = [
        (name, tuple(_text(rule) for rule in _rules_of(name) if rule not in common))
        for name in sorted(RULES)
    ]
    return (("every operator", tuple(_text(rule) for rule in common)), *own)


def _rules_of(name: str) -> tuple[Rule, ...]:
    """All rules of an operator in the order in which they may rely on each other."""
    weights = WEIGHTS if name in WEIGHTED else ()
    rank = rules.rank_2_to_6 if name in MOVES or name == "softmax" else rules.rank_4_or_2
    return (*TYPES, *weights, rank, *SHAPES, *RULES[name])


def _text(rule: Rule) -> str:
    return " ".join((rule.__doc__ or "").split())
