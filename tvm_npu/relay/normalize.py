"""Before partitioning: parameters become constants, dynamic operators static, identities go.

Batch norms, biases and channel-wise constants are left as they are: the importer reads them and
`codegen.fuse` folds them into convolutions, so every operator keeps its source name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import tvm
from tvm import relay

from tvm_npu.errors import PartitionError
from tvm_npu.relay import operands as of
from tvm_npu.relay.divisors import check_division
from tvm_npu.relay.quantized import with_real_numbers
from tvm_npu.relay.roundings import layouts_apart
from tvm_npu.relay.spelling import plain_spelling

INT32_MAX = 2**31 - 1
_CHANNELS_LAST = {
    "nn.conv2d": ["NCHW", "OIHW"],
    "nn.max_pool2d": ["NCHW"],
    "nn.avg_pool2d": ["NCHW"],
    "nn.global_max_pool2d": ["NCHW"],
    "nn.global_avg_pool2d": ["NCHW"],
}


def normalize(mod: tvm.IRModule, params: Mapping[str, Any] | None) -> tvm.IRModule:
    """A copy of ``mod`` with checked types, ready for the rules.

    Raises PartitionError without a main function, for parameters that fit no variable and for
    integers that a constant 0 divides.
    """
    if "main" not in [var.name_hint for var in mod.get_global_vars()]:
        raise PartitionError("the module has no function 'main'")
    mod = tvm.IRModule(dict(mod.functions.items()), mod.type_definitions, attrs=mod.attrs)
    mod["main"] = _bind(mod["main"], params or {})
    mod = relay.transform.InferType()(mod)
    if _contains(mod, lambda expr: isinstance(expr, relay.Let)):
        mod = relay.transform.ToGraphNormalForm()(mod)
        mod = relay.transform.InferType()(mod)
    if _contains(mod, lambda expr: of.op_name(expr).startswith("dyn.")):
        mod["main"] = _clamp_slice_ends(mod["main"])
        mod = relay.transform.DynamicToStatic()(mod)
        mod = relay.transform.InferType()(mod)
    is_quantized = _contains(mod, lambda expr: of.op_name(expr).startswith("qnn."))
    if is_quantized:
        mod["main"] = with_real_numbers(mod["main"])
        mod = relay.transform.InferType()(mod)
    if _contains(mod, _is_channels_last):
        mod = relay.transform.CanonicalizeOps()(mod)  # ConvertLayout leaves bias_add behind
        mod = relay.transform.InferType()(mod)
        mod = relay.transform.ConvertLayout(_CHANNELS_LAST)(mod)
        mod = relay.transform.InferType()(mod)
    for expr in of.post_order(mod["main"].body):
        check_division(expr)
    if _contains(mod, _is_constant_call):
        mod = relay.transform.FoldConstant()(mod)
    if is_quantized:
        mod["main"] = rewrite_calls(mod["main"], layouts_apart)
        mod = relay.transform.InferType()(mod)
    mod["main"] = rewrite_calls(mod["main"], _drop_identity)
    if _contains(mod, lambda expr: of.op_name(expr) == "nn.prelu"):
        mod = relay.transform.InferType()(mod)
        mod["main"] = rewrite_calls(mod["main"], plain_spelling)
    return relay.transform.InferType()(mod)


def _bind(function: relay.Function, params: Mapping[str, Any]) -> relay.Function:
    """Parameters by name; every one must be a parameter of ``function``, in shape and type."""
    variables = {var.name_hint: var for var in function.params}
    bound: dict[str, Any] = {}
    for name, value in params.items():
        var = variables.get(name)
        if var is None:
            continue
        array = value if isinstance(value, tvm.nd.NDArray) else tvm.nd.array(np.asarray(value))
        annotation = var.type_annotation
        if isinstance(annotation, relay.TensorType):
            shape = of.static_shape(annotation)
            if shape is not None and tuple(array.shape) != shape:
                raise PartitionError(
                    f"parameter {name!r} has shape {tuple(array.shape)}, the model wants {shape}"
                )
            if array.dtype != annotation.dtype:
                raise PartitionError(
                    f"parameter {name!r} is {array.dtype}, the model wants {annotation.dtype}"
                )
        bound[name] = array
    if not bound:
        return function
    return relay.build_module.bind_params_by_name(function, bound)


def _contains(mod: tvm.IRModule, wanted: Callable[[Any], bool]) -> bool:
    return any(wanted(expr) for expr in of.post_order(mod["main"].body))


def _is_channels_last(expr: Any) -> bool:
    name = of.op_name(expr)
    if name not in _CHANNELS_LAST:
        return False
    return (expr.attrs.data_layout if name == "nn.conv2d" else expr.attrs.layout) == "NHWC"


def _is_constant_call(expr: Any) -> bool:
    """Is there something for FoldConstant to do? It compiles what it folds, so only then."""
    if not isinstance(expr, relay.Call) or not expr.args:
        return False
    return all(
        isinstance(item, relay.Constant)
        for arg in expr.args
        for item in (arg.fields if isinstance(arg, relay.Tuple) else [arg])
    )


def _clamp_slice_ends(function: relay.Function) -> relay.Function:
    """Slice bounds beyond 32 bits ("to the end") become the largest that DynamicToStatic takes."""

    def clamp(call: relay.Call, args: list[Any]) -> Any:
        if of.op_name(call) != "dyn.strided_slice":
            return None
        clamped = []
        for arg in args:
            values = of.constant(arg)
            if values is not None and values.dtype == np.int64:
                arg = relay.const(np.clip(values, -INT32_MAX, INT32_MAX), "int64")
            clamped.append(arg)
        return relay.Call(call.op, clamped, call.attrs, call.type_args, call.span)

    return rewrite_calls(function, clamp)


def _drop_identity(call: relay.Call, args: list[Any]) -> Any:
    """Inference does nothing in a dropout (handled where it is taken apart) or an identity."""
    return args[0] if of.op_name(call) in ("identity", "copy", "annotation.stop_fusion") else None


def rewrite_calls(
    function: relay.Function, change: Callable[[relay.Call, list[Any]], Any]
) -> relay.Function:
    """``function`` with every call replaced by ``change(call, new operands)`` (None: kept);
    spans are kept, and ``dropout(x).0`` becomes x."""
    memo: dict[Any, Any] = {}
    for expr in of.post_order(function.body):
        new: Any = expr
        if isinstance(expr, relay.Call):
            args = [memo[arg] for arg in expr.args]
            new = change(expr, args)
            if new is None:
                kept = all(a.same_as(b) for a, b in zip(args, expr.args, strict=True))
                new = expr if kept else rebuilt_call(expr, args)
        elif isinstance(expr, relay.Tuple):
            new = relay.Tuple([memo[field] for field in expr.fields], expr.span)
        elif isinstance(expr, relay.TupleGetItem):
            value = memo[expr.tuple_value]
            if of.op_name(value) == "nn.dropout" and expr.index == 0:
                new = value.args[0]
            else:
                new = relay.TupleGetItem(value, expr.index, expr.span)
        memo[expr] = new
    return relay.Function(
        function.params,
        memo[function.body],
        function.ret_type,
        function.type_params,
        function.attrs,
        function.span,
    )


def rebuilt_call(call: relay.Call, args: list[Any]) -> relay.Call:
    return relay.Call(call.op, args, call.attrs, call.type_args, call.span)
