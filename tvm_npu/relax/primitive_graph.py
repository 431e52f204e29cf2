"""A Relax module as primitives: legalized and fused once, as TVM's own pipeline for static shapes
does it, so that they are the functions that it would compile."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
import tvm
from tvm import relax
from tvm.relax import transform

from tvm_npu.door.cpu_code import reason_of
from tvm_npu.door.dataflow import OpCall, TensorType
from tvm_npu.door.region import SOURCES
from tvm_npu.door.work import call_work, total
from tvm_npu.errors import CutError
from tvm_npu.pipelines.primitives import Primitive, PrimitiveGraph, Value
from tvm_npu.relax import expressions as of
from tvm_npu.relax.dataflow import is_plain, relax_dataflow
from tvm_npu.relax.folding import folded
from tvm_npu.relax.fused_calls import FusedCalls
from tvm_npu.relax.normalize import normalize, with_main
from tvm_npu.relax.run_regions import is_region

Expr = Any


@dataclass(frozen=True)
class RelaxPrimitives(PrimitiveGraph):
    """Knows what variables of main are worth (a tensor, the tensors of a tuple; shapes and the like
    are worth what they are bound to), and the functions of regions by symbol."""

    worth: Mapping[Any, Any]
    regions: Mapping[str, relax.Function]


def primitive_graph(
    mod: tvm.IRModule, params: Mapping[str, Any] | None, target: tvm.target.Target
) -> RelaxPrimitives:
    """``mod`` (before or after `partition_for_npu`) as primitives for ``target``.

    Raises CutError for a model with control flow, open shapes or no operator, and for what TVM
    cannot compile.
    """
    if "main" not in [of.name_of(var) for var in mod.get_global_vars()]:
        raise CutError("the module has no function 'main'")
    mod = normalize(mod, params)
    _check_plain(mod["main"])
    regions = {str(var.name_hint): one for var, one in mod.functions_items() if is_region(one)}
    try:
        with target:
            before = _decomposed(_without_regions(mod, regions))
            legal = _legalized(before)
            fused = transform.FuseOps()(legal)
            optimised = transform.FuseTIR()(fused)
    except tvm.error.TVMError as error:
        raise CutError(f"TVM cannot compile the model: {reason_of(error)}") from error
    inside = FusedCalls(before["main"], legal).of_main(fused)
    return _Reader(optimised, regions).graph(inside)


def _check_plain(main: relax.Function) -> None:
    for binding in of.bindings(main):
        value = binding.value
        if not isinstance(binding, relax.VarBinding) or isinstance(
            value, of.Conditional | relax.Function | relax.SeqExpr
        ):
            kind = type(value if isinstance(binding, relax.VarBinding) else binding).__name__
            raise CutError(f"the model has a {kind}: only plain dataflow can be cut into stages")
    for var in (*main.params, *(binding.var for binding in of.bindings(main))):
        for type_ in of.tensor_types(var.ty):
            if of.static_shape(type_) is None:
                raise CutError(
                    f"tensor of {of.name_of(var)!r} has type {type_}: stages need static shapes"
                )


def _without_regions(mod: tvm.IRModule, regions: Mapping[str, relax.Function]) -> tvm.IRModule:
    """Main with calls of symbols in place of calls of regions, as `RunCodegen` leaves it."""

    def change(call: Any, definitions: Mapping[Any, Any]) -> Any:
        symbol = str(getattr(call.op, "name_hint", ""))
        if symbol not in regions:
            return None
        types = of.tensor_types(regions[symbol].ret_ty)
        out = types if len(types) > 1 else types[0]
        return relax.op.call_dps_packed(symbol, list(call.args), out)

    mod = with_main(mod, change)
    for var in [var for var, one in mod.functions_items() if is_region(one)]:
        del mod[var]
    return mod


def _decomposed(mod: tvm.IRModule) -> tvm.IRModule:
    """Batch norms become arithmetic, and what that computes of constants a constant: TVM's own
    folding would compile code for each."""
    mod = with_main(transform.DecomposeOpsForInference()(transform.Normalize()(mod)), folded)
    passes = [
        transform.ConvertToDataflow(min_size=1),
        transform.CanonicalizeBindings(),
        transform.DeadCodeElimination(["main"]),
    ]
    return tvm.transform.Sequential(passes)(mod)


def _legalized(mod: tvm.IRModule) -> tvm.IRModule:
    passes = [
        relax.backend.DispatchSampling(),
        relax.backend.DispatchSortScan(),
        transform.LegalizeOps(),
        transform.AnnotateTIROpPattern(),
        transform.FoldConstant(),
    ]
    return tvm.transform.Sequential(passes)(mod)


class _Reader:
    """Reads main after fusion, binding by binding."""

    def __init__(self, mod: tvm.IRModule, regions: Mapping[str, relax.Function]) -> None:
        self.mod, self.main, self.regions = mod, mod["main"], regions
        self.worth: dict[Any, Any] = {
            var: Value(-1, number) for number, var in enumerate(self.main.params)
        }

    def graph(self, inside: Iterator[tuple[OpCall, ...]]) -> RelaxPrimitives:
        """``inside`` says for each call of main what operators it computes."""
        primitives: list[Primitive] = []
        for binding in of.bindings(self.main):
            value = binding.value
            types = of.tensor_types(binding.var.ty)
            if is_plain(value):
                self.worth[binding.var] = read(value, self.worth)
                continue
            calls = next(inside)
            if not types:
                raise CutError(f"{of.op_name(value)} returns {binding.var.ty}: stages need tensors")
            values = tuple(Value(len(primitives), position) for position in range(len(types)))
            self.worth[binding.var] = values if not of.is_tensor(binding.var) else values[0]
            primitives.append(self._primitive(value, types, calls))
        if not primitives:
            raise CutError("the model has no operator: nothing can be cut into stages")
        outputs = _values(read(self.main.body.body, self.worth))
        if len(outputs) != len(of.tensor_types(self.main.body.body.ty)):
            raise CutError("an output of the model is a constant: it belongs to no stage")
        inputs = ((of.name_of(var), _type(var.ty)) for var in self.main.params)
        return RelaxPrimitives(
            self.mod, tuple(inputs), tuple(primitives), outputs, self.worth, self.regions
        )

    def _primitive(self, call: Any, types: list[Any], inside: tuple[OpCall, ...]) -> Primitive:
        region = self.regions.get(packed_symbol(call))
        constants = [expr for expr in _leaves(call.args) if of.is_constant(expr)]
        sources = tuple(one.source for one in inside if one.source and call_work(one).weight)
        if region is not None:
            inside = relax_dataflow(region).calls
            sources = tuple(json.loads(str(region.attrs[SOURCES])))
            constants = [
                expr
                for binding in of.bindings(region)
                for expr in _leaves(getattr(binding.value, "args", ()))
                if of.is_constant(expr)
            ]
        return Primitive(
            call=call,
            reads=tuple(dict.fromkeys(_values(tuple(read(arg, self.worth) for arg in call.args)))),
            results=tuple(_type(type_) for type_ in types),
            work=total(map(call_work, inside)),
            parameter_bytes=sum(_bytes(expr.ty) for expr in constants),
            operators=tuple(one.spelling for one in inside),
            source=sources,
            is_region=region is not None,
        )


def packed_symbol(call: Any) -> str:
    """The function that a ``call_dps_packed`` calls; "" for other calls."""
    if of.op_name(call) != "relax.call_dps_packed":
        return ""
    return str(getattr(call.args[0], "global_symbol", ""))


def read(expr: Expr, worth: Mapping[Any, Any]) -> Any:
    """What an argument is worth: a Value, a tuple of what its fields are worth, or itself."""
    if isinstance(expr, relax.Var):
        return worth[expr]
    if isinstance(expr, of.Tuple):
        return tuple(read(item, worth) for item in expr.fields)
    if isinstance(expr, of.TupleGetItem):
        return read(expr.tuple_value, worth)[int(expr.index)]
    return expr


def _values(found: Any) -> tuple[Value, ...]:
    if isinstance(found, tuple):
        return tuple(value for item in found for value in _values(item))
    return (found,) if isinstance(found, Value) else ()


def _leaves(args: Any) -> Iterator[Expr]:
    for arg in args:
        if isinstance(arg, of.Tuple):
            yield from _leaves(arg.fields)
        else:
            yield arg


def _type(type_: Any) -> TensorType:
    return TensorType(of.static_shape(type_) or (), of.dtype_of(type_))


def _bytes(type_: Any) -> int:
    return prod(of.static_shape(type_) or ()) * np.dtype(of.dtype_of(type_)).itemsize
