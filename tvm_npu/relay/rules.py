"""What the NPU takes. One rule is one function; its docstring is the rule.

A rule looks at a type-checked call and returns None, or what it found and what is allowed. The
same docstring is the refusal's message and the line in the documentation (`rule_table`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
from tvm import relay

from tvm_npu.codegen.least import LeastNeeds, Need, least_needs
from tvm_npu.relay import operands as of
from tvm_npu.report import Refusal
from tvm_npu.sim.description import MachineDescription
from tvm_npu.sim.machine_parts import Precision

MAX_EXTENT = 65535


@dataclass(frozen=True)
class Context:
    """What the rules may depend on besides the call."""

    machine: MachineDescription
    precision: Precision

    @property
    def least(self) -> LeastNeeds:
        return least_needs(self.machine, self.precision)


@dataclass(frozen=True)
class Violation:
    value: str
    limit: str


Rule = Callable[[relay.Call, Context], Violation | None]


def _text(rule: Rule) -> str:
    return " ".join((rule.__doc__ or "").split())


def static_shapes(call: relay.Call, context: Context) -> Violation | None:
    """Every tensor has a static shape."""
    for type_ in _types(call):
        if of.static_shape(type_) is None:
            return Violation(str(type_), "no unknown extents")
    return None


def float32_tensors(call: relay.Call, context: Context) -> Violation | None:
    """Every tensor of the model is float32; the NPU's own integers come from calibration."""
    for type_ in _types(call):
        if type_.dtype != "float32":
            return Violation(str(type_.dtype), "float32")
    return None


def extents_in_range(call: relay.Call, context: Context) -> Violation | None:
    """Every extent of a tensor is at least 1 and at most 65535 (flat tensors: by memory alone)."""
    for shape in _shapes(call):
        largest = max(shape, default=1)
        if 0 in shape:
            return Violation(str(shape), "extents of at least 1")
        if len(shape) == 4 and largest > MAX_EXTENT:
            return Violation(str(largest), f"at most {MAX_EXTENT}")
    return None


def tensors_fit_memory(call: relay.Call, context: Context) -> Violation | None:
    """Operands and result of one image lie in the machine's DRAM together."""
    data = sum(prod(shape[1:]) for shape in _run_time_shapes(call))
    constants = sum(prod(arg.data.shape) for arg in call.args if isinstance(arg, relay.Constant))
    needed = (data + constants) * context.least.stored_bytes
    capacity = context.machine.dram.capacity_bytes
    if needed > capacity:
        return Violation(f"{needed} bytes", f"{capacity} bytes of DRAM")
    return None


def rank_4_or_2(call: relay.Call, context: Context) -> Violation | None:
    """Tensors are NCHW feature maps (rank 4) or flat (rank 2: image, feature)."""
    for shape in _run_time_shapes(call):
        if len(shape) not in (2, 4):
            return Violation(f"rank {len(shape)}, {shape}", "rank 4 or 2")
    return None


def rank_4(call: relay.Call, context: Context) -> Violation | None:
    """The operand is an NCHW feature map of rank 4."""
    shape = of.shape_of(call.args[0])
    return None if len(shape) == 4 else Violation(f"rank {len(shape)}, {shape}", "rank 4")


def batch_kept(call: relay.Call, context: Context) -> Violation | None:
    """The first extent is the batch and stays what it is."""
    shapes = _run_time_shapes(call)
    if len({shape[0] for shape in shapes}) > 1:
        return Violation(", ".join(map(str, shapes)), "one first extent throughout")
    return None


def finite_constants(call: relay.Call, context: Context) -> Violation | None:
    """Constants contain neither NaN nor infinity."""
    for arg in call.args:
        values = of.constant(arg)
        if values is not None and values.dtype.kind == "f":
            bad = int(values.size - np.count_nonzero(np.isfinite(values)))
            if bad:
                return Violation(f"{bad} of {values.size} values of {values.shape}", "0 values")
    return None


def constant_weights(call: relay.Call, context: Context) -> Violation | None:
    """Everything but the first operand (weights, biases, statistics) is a constant."""
    for index, arg in enumerate(call.args[1:], 1):
        if not isinstance(arg, relay.Constant):
            known = f" ({arg.name_hint})" if isinstance(arg, relay.Var) else ""
            return Violation(f"operand {index}{known} is only known at run time", "a constant")
    return None


def data_is_variable(call: relay.Call, context: Context) -> Violation | None:
    """The data operand is computed at run time."""
    if isinstance(call.args[0], relay.Constant):
        return Violation("a constant", "a run-time tensor")
    return None


def nchw_layout(call: relay.Call, context: Context) -> Violation | None:
    """Layouts are NCHW for data and OIHW for weights."""
    attrs = call.attrs
    is_conv = of.op_name(call) == "nn.conv2d"
    layouts = {"data": attrs.data_layout if is_conv else attrs.layout, "out": attrs.out_layout}
    for key, layout in layouts.items():
        if layout not in ("", "NCHW"):
            return Violation(f"{key} layout {layout}", "NCHW")
    if is_conv and attrs.kernel_layout != "OIHW":
        return Violation(f"weight layout {attrs.kernel_layout}", "OIHW")
    return None


def conv_tile_fits(call: relay.Call, context: Context) -> Violation | None:
    """The smallest input tile of a convolution (one channel of one window) fits its memory."""
    window, kernel = _dilated_kernel(call), _kernel(call)
    return _too_large(context.least.conv_input(window, kernel), f"window {_by(window)}")


def conv_weights_fit(call: relay.Call, context: Context) -> Violation | None:
    """The smallest weight tile (one channel of one filter) fits its memory."""
    window, kernel = _dilated_kernel(call), _kernel(call)
    return _too_large(context.least.conv_weight(window, kernel), f"kernel {_by(kernel)}")


def biases_fit(call: relay.Call, context: Context) -> Violation | None:
    """The biases of a layer fit the bias memories of all cores together."""
    groups = int(call.attrs.groups) if of.op_name(call) == "nn.conv2d" else 1
    filters = of.shape_of(call)[1] // groups
    return _too_large(context.least.biases(filters), f"{filters} filters")


def pool_tile_fits(call: relay.Call, context: Context) -> Violation | None:
    """One channel of one pooling window fits the memory for input tiles."""
    window, _, _ = of.pool_windows(call)
    return _too_large(context.least.pool_input(window), f"window {_by(window)}")


def _too_large(need: Need, what: str) -> Violation | None:
    if need.fits:
        return None
    value = f"{what} = {need.needed} bytes {need.where}".rstrip()
    return Violation(value, f"{need.available} bytes of {need.memory}")


def pool_not_dilated(call: relay.Call, context: Context) -> Violation | None:
    """Pooling windows are not dilated."""
    dilation = of.pair(call.attrs.dilation)
    return None if dilation == (1, 1) else Violation(f"dilation {dilation}", "(1, 1)")


def windows_meet_tensor(call: relay.Call, context: Context) -> Violation | None:
    """Every pooling window contains at least one element of the tensor."""
    kernel, stride, padding = of.pool_windows(call)
    extents, outs = of.shape_of(call.args[0])[2:], of.shape_of(call)[2:]
    for axis, (extent, out) in enumerate(zip(extents, outs, strict=True)):
        before = padding[axis]
        if before >= kernel[axis] or (out - 1) * stride[axis] - before >= extent:
            return Violation(
                f"kernel {kernel}, stride {stride}, padding {padding} on {extents}",
                "no window that lies in the padding",
            )
    return None


def padding_not_negative(call: relay.Call, context: Context) -> Violation | None:
    """The padding of a window operation is not negative."""
    padding = of.padding_of(call.attrs.padding)
    return Violation(str(padding), "at least 0") if min(padding) < 0 else None


def global_output(call: relay.Call, context: Context) -> Violation | None:
    """Adaptive pooling reduces every feature map to 1x1."""
    out = of.shape_of(call)[2:]
    return None if out == (1, 1) else Violation(f"output {out[0]}x{out[1]}", "1x1")


def mean_over_space(call: relay.Call, context: Context) -> Violation | None:
    """A mean is taken over rows and columns, the axes (2, 3), and nothing else."""
    rank = len(of.shape_of(call.args[0]))
    axes = sorted(of.normalized_axis(axis, rank) for axis in of.integers(call.attrs.axis))
    if rank != 4 or axes != [2, 3] or call.attrs.exclude:
        return Violation(f"axes {axes} of rank {rank}", "axes (2, 3) of rank 4")
    return None


def channel_axis(call: relay.Call, context: Context) -> Violation | None:
    """Biases, batch norms, concatenations and splits go along the channels (axis 1)."""
    rank = len(_run_time_shapes(call)[0])
    axis = of.normalized_axis(int(call.attrs.axis), rank)
    return None if axis == 1 else Violation(f"axis {axis}", "axis 1")


def run_time_fields(call: relay.Call, context: Context) -> Violation | None:
    """A concatenation joins run-time tensors only, written as a tuple."""
    if not isinstance(call.args[0], relay.Tuple):
        return Violation("a tuple from elsewhere", "a tuple of tensors")
    for index, field in enumerate(call.args[0].fields):
        if isinstance(field, relay.Constant):
            return Violation(f"field {index} is a constant", "a run-time tensor")
    return None


def dense_rank_2(call: relay.Call, context: Context) -> Violation | None:
    """A fully connected layer takes a flat tensor, not transposed, and a matrix."""
    shapes = [of.shape_of(arg) for arg in call.args]
    if any(len(shape) != 2 for shape in shapes):
        return Violation(f"ranks {[len(shape) for shape in shapes]}", "rank 2")
    if of.op_name(call) == "nn.matmul" and call.attrs.transpose_a:
        return Violation("transpose_a", "data as it is")
    return None


def same_shape_or_channel_constant(call: relay.Call, context: Context) -> Violation | None:
    """Arithmetic joins two tensors of one shape, or a tensor and a constant per channel."""
    constants = [of.constant(arg) for arg in call.args]
    shape = of.shape_of(call)
    if all(values is not None for values in constants):
        return Violation("two constants", "at least one run-time tensor")
    for arg, values in zip(call.args, constants, strict=True):
        if values is None and of.shape_of(arg) != shape:
            return Violation(f"{of.shape_of(arg)} broadcast to {shape}", "equal shapes")
        if values is not None and of.channel_vector(values, shape) is None:
            return Violation(f"constant {values.shape} on {shape}", "one value per channel")
    return None


def one_constant(call: relay.Call, context: Context) -> Violation | None:
    """Subtraction and division have a constant second operand (subtraction: either)."""
    constants = [isinstance(arg, relay.Constant) for arg in call.args]
    if of.op_name(call) == "divide":
        return None if constants[1] else Violation("a run-time divisor", "a constant divisor")
    return None if any(constants) else Violation("two run-time tensors", "one constant")


def nonzero_divisor(call: relay.Call, context: Context) -> Violation | None:
    """A constant divisor has a finite reciprocal."""
    values = of.constant(call.args[1])
    if values is not None:
        with np.errstate(divide="ignore", over="ignore"):
            bad = int(np.count_nonzero(~np.isfinite(np.float32(1) / values.astype(np.float32))))
        if bad:
            return Violation(f"{bad} values without", "0 values without")
    return None


def scalar_bound(call: relay.Call, context: Context) -> Violation | None:
    """A maximum or minimum compares with one constant number."""
    for number, other in ((0, call.args[1]), (1, call.args[0])):
        values = of.constant(call.args[number])
        if values is not None and np.all(values == values.flat[0]):
            if not isinstance(other, relay.Constant) and of.shape_of(other) == of.shape_of(call):
                return None
    return Violation("two tensors", "a tensor and a number")


def positive_variance(call: relay.Call, context: Context) -> Violation | None:
    """The variance of a batch norm plus epsilon is above 0."""
    variance = of.constant(call.args[4])
    if variance is not None:
        lowest = float(variance.min()) + float(call.attrs.epsilon)
        if not lowest > 0:
            return Violation(f"{lowest:g}", "above 0")
    return None


def ordered_bounds(call: relay.Call, context: Context) -> Violation | None:
    """The lower bound of a clip is not above the upper and neither is NaN."""
    low, high = float(call.attrs.a_min), float(call.attrs.a_max)
    return None if low <= high else Violation(f"clip({low:g}, {high:g})", "low <= high")


def slope_in_range(call: relay.Call, context: Context) -> Violation | None:
    """The slope of a leaky ReLU is a number from 0 to 1."""
    slope = float(call.attrs.alpha)
    return None if 0.0 <= slope <= 1.0 else Violation(f"slope {slope:g}", "0 to 1")


def constant_padding(call: relay.Call, context: Context) -> Violation | None:
    """Padding fills with one finite constant."""
    if call.attrs.pad_mode != "constant":
        return Violation(f"mode {call.attrs.pad_mode}", "constant")
    values = of.constant(call.args[1])
    if values is None or values.size != 1 or not np.all(np.isfinite(values)):
        return Violation("another fill value", "one finite number")
    return None


def forward_slices(call: relay.Call, context: Context) -> Violation | None:
    """Slices go forward; channels are contiguous and the batch is whole."""
    bounds = of.slice_bounds(call)
    for axis, (begin, end, step) in enumerate(bounds):
        if step < 1:
            return Violation(f"step {step} on axis {axis}", "at least 1")
        if axis == 1 and step != 1:
            return Violation(f"step {step} over the channels", "1")
        if end <= begin:
            return Violation(f"{begin}:{end} on axis {axis}", "at least one element")
    return None


def equal_split(call: relay.Call, context: Context) -> Violation | None:
    """A split cuts a feature map or flat tensor into non-empty parts in order."""
    starts = of.split_sections(call)
    if list(starts) != sorted(set(starts)):
        return Violation(f"parts begin at {starts}", "increasing positions")
    return None


TYPES: tuple[Rule, ...] = (static_shapes, float32_tensors, extents_in_range, finite_constants)
WEIGHTS: tuple[Rule, ...] = (data_is_variable, constant_weights)
SHAPES: tuple[Rule, ...] = (rank_4_or_2, batch_kept, tensors_fit_memory)

WEIGHTED = frozenset({"nn.conv2d", "nn.dense", "nn.matmul", "nn.bias_add", "nn.batch_norm"})
"""Operators with constant operands next to the data."""

_POOL: tuple[Rule, ...] = (rank_4, nchw_layout, pool_tile_fits)
_WINDOW: tuple[Rule, ...] = (
    rank_4,
    nchw_layout,
    pool_not_dilated,
    padding_not_negative,
    windows_meet_tensor,
    pool_tile_fits,
)

RULES: dict[str, tuple[Rule, ...]] = {
    "nn.conv2d": (
        rank_4,
        nchw_layout,
        padding_not_negative,
        conv_tile_fits,
        conv_weights_fit,
        biases_fit,
    ),
    "nn.dense": (dense_rank_2, biases_fit),
    "nn.matmul": (dense_rank_2, biases_fit),
    "nn.bias_add": (channel_axis,),
    "nn.batch_norm": (channel_axis, positive_variance),
    "nn.relu": (),
    "nn.leaky_relu": (slope_in_range,),
    "clip": (ordered_bounds,),
    "maximum": (scalar_bound,),
    "minimum": (scalar_bound,),
    "nn.max_pool2d": _WINDOW,
    "nn.avg_pool2d": _WINDOW,
    "nn.global_max_pool2d": _POOL,
    "nn.global_avg_pool2d": _POOL,
    "nn.adaptive_avg_pool2d": (*_POOL, global_output),
    "nn.adaptive_max_pool2d": (*_POOL, global_output),
    "mean": (rank_4, mean_over_space, pool_tile_fits),
    "add": (same_shape_or_channel_constant,),
    "multiply": (same_shape_or_channel_constant,),
    "subtract": (same_shape_or_channel_constant, one_constant),
    "divide": (same_shape_or_channel_constant, one_constant, nonzero_divisor),
    "negative": (),
    "concatenate": (run_time_fields, channel_axis),
    "split": (channel_axis, equal_split),
    "nn.batch_flatten": (),
    "reshape": (),
    "squeeze": (),
    "expand_dims": (),
    "nn.pad": (rank_4, constant_padding),
    "strided_slice": (rank_4, forward_slices),
}

LAYOUT_ONLY = frozenset(
    {
        "nn.relu",
        "nn.leaky_relu",
        "clip",
        "maximum",
        "minimum",
        "concatenate",
        "split",
        "nn.batch_flatten",
        "reshape",
        "squeeze",
        "expand_dims",
        "nn.pad",
        "strided_slice",
    }
)
"""Operators that are worth nothing on the NPU alone: they only ride along in a region."""

UNKNOWN_OPERATOR = "The operator is one that the NPU has instructions for."
NOTHING_TO_COMPUTE = "A region computes something: a convolution, a pooling, a sum or a product."
CONTROL_FLOW = "Conditionals, functions and other control flow run on the CPU."
TUPLE_IS_PICKED = "The result of an operator with several results is taken apart at once."


def check(call: relay.Call, context: Context, source: str) -> Refusal | None:
    """The first rule that ``call`` breaks, as a refusal; None when the NPU takes it."""
    name = of.op_name(call)
    if name not in RULES:
        return Refusal(source, name or "call", UNKNOWN_OPERATOR, name or "a function", "the table")
    for rule in _rules_of(name):
        violation = rule(call, context)
        if violation is not None:
            return Refusal(source, name, _text(rule), violation.value, violation.limit)
    return None


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
    return (*TYPES, *weights, *SHAPES, *RULES[name])


def _types(call: relay.Call) -> list[Any]:
    tensors = list(call.args)[:1] if of.op_name(call) == "nn.pad" else call.args  # fill: any type
    args = [type_ for arg in tensors for type_ in of.tensor_types(arg.checked_type)]
    return args + of.tensor_types(call.checked_type)


def _shapes(call: relay.Call) -> list[of.TensorShape]:
    shapes = [of.static_shape(type_) for type_ in _types(call)]
    return [shape for shape in shapes if shape is not None]


def _run_time_shapes(call: relay.Call) -> list[of.TensorShape]:
    """Shapes of the run-time operands and of the results (a batch norm's first result only)."""
    types = [t for arg in of.data_operands(call) for t in of.tensor_types(arg.checked_type)]
    results = of.tensor_types(call.checked_type)
    types += results[:1] if of.op_name(call) == "nn.batch_norm" else results
    return [shape for shape in map(of.static_shape, types) if shape is not None]


def _by(extents: tuple[int, int]) -> str:
    return f"{extents[0]}x{extents[1]}"


def _kernel(call: relay.Call) -> tuple[int, int]:
    rows, columns = of.shape_of(call.args[1])[2:]
    return rows, columns


def _dilated_kernel(call: relay.Call) -> tuple[int, int]:
    rows, columns = _kernel(call)
    dilation = of.pair(call.attrs.dilation)
    return (rows - 1) * dilation[0] + 1, (columns - 1) * dilation[1] + 1
