"""Running a partitioned module on samples, its regions by whatever the caller wants.

Regions that read only model inputs are handed those at once. When CPU operators or other regions
come before, the module is built once with every region replaced by a call back into Python: only
the CPU operators are compiled.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np
import tvm
import tvm_ffi
from numpy.typing import NDArray
from tvm import relax

from tvm_npu.calibration import InputSpec, Sample, static_input
from tvm_npu.codegen.freed_memory import give_back
from tvm_npu.door.calibrate import RegionRunner, call_back
from tvm_npu.door.cpu_code import cpu_code
from tvm_npu.relax import expressions as of
from tvm_npu.relax.alone import suspects
from tvm_npu.relax.carried_errors import carried, own_errors
from tvm_npu.relax.rewriting import rewrite_calls

_numbers = itertools.count()


def input_specs(main: relax.Function) -> tuple[InputSpec, ...]:
    """The model's inputs. Raises CalibrationError for one without a static shape."""
    specs = []
    for var in main.params:
        shape = of.static_shape(var.ty) if of.is_tensor(var) else None
        dtype = "" if shape is None else of.dtype_of(var.ty)
        specs.append(static_input(of.name_of(var), shape, dtype, var.ty))
    return tuple(specs)


def is_region(function: Any) -> bool:
    attrs = getattr(function, "attrs", None)
    return attrs is not None and "Codegen" in attrs and str(attrs["Codegen"]) == "npu"


def region_calls(mod: tvm.IRModule) -> dict[str, Any]:
    """The call of every NPU region in main, by symbol, in execution order."""
    found = {}
    for binding in of.bindings(mod["main"]):
        call = binding.value
        if isinstance(call, of.Call) and isinstance(call.op, tvm.ir.GlobalVar):
            if is_region(mod[call.op]):
                found[str(call.op.name_hint)] = call
    return found


def run_regions(
    mod: tvm.IRModule, runners: Mapping[str, RegionRunner], samples: Iterable[Sample]
) -> None:
    """Hands every region's inputs to its runner (by symbol), once for each sample.

    Of main only what comes before a region is computed; TVM compiles it for the CPU.
    """
    calls = region_calls(mod)
    inputs = set(mod["main"].params)
    if all(arg in inputs for call in calls.values() for arg in call.args):
        for sample in samples:
            for symbol, call in calls.items():
                runners[symbol].run([sample[of.name_of(arg)] for arg in call.args])
    else:
        _run_model(mod, calls, runners, samples)


def _run_model(
    mod: tvm.IRModule,
    calls: Mapping[str, Any],
    runners: Mapping[str, RegionRunner],
    samples: Iterable[Sample],
) -> None:
    """Runs what the regions need of main, with the regions as call-backs."""
    with _callbacks(runners) as names:
        needed = _with_callbacks(mod, calls, names)
        machine = _machine(needed, mod)
        order = [of.name_of(var) for var in mod["main"].params]
        for sample in samples:
            arguments = [tvm.runtime.tensor(np.asarray(sample[name])) for name in order]
            with own_errors():
                machine["main"](*arguments)


class _Switch:
    """Hands on to the runner that is set."""

    runner: RegionRunner

    def run(self, arrays: list[Any], /) -> Sequence[Any]:
        return self.runner.run(arrays)


def run_model(
    mod: tvm.IRModule, runners: Sequence[Mapping[str, RegionRunner]], samples: Iterable[Sample]
) -> Iterator[list[list[NDArray[Any]]]]:
    """For each sample the model's outputs, once with each set of ``runners`` (by symbol); TVM
    compiles what is outside of the regions for the CPU, once."""
    calls = region_calls(mod)
    switches = {symbol: _Switch() for symbol in calls}
    with _callbacks(switches) as names:
        whole = _with_callbacks(mod, calls, names, cut=False)
        machine = _machine(whole, mod)
        order = [of.name_of(var) for var in mod["main"].params]
        for sample in samples:
            arguments = [tvm.runtime.tensor(np.asarray(sample[name])) for name in order]
            results = []
            for one in runners:
                for symbol, switch in switches.items():
                    switch.runner = one[symbol]
                with own_errors():
                    found = machine["main"](*arguments)
                outputs = [found] if hasattr(found, "numpy") else list(found)
                results.append([output.numpy() for output in outputs])
            yield results


def _machine(called_back: tvm.IRModule, mod: tvm.IRModule) -> relax.VirtualMachine:
    """A virtual machine of ``mod`` with call-backs for regions, on the CPU."""
    with cpu_code(partial(suspects, mod)):
        machine = relax.VirtualMachine(tvm.compile(called_back, target="llvm"), tvm.cpu())
    give_back()  # what TVM and LLVM took
    return machine


@contextmanager
def _callbacks(runners: Mapping[str, RegionRunner]) -> Iterator[dict[str, str]]:
    """A packed function for every region, by symbol, for the time of a run."""
    run = next(_numbers)
    names = {symbol: f"tvm_npu.calibrate.{run}.{symbol}" for symbol in runners}
    for symbol, name in names.items():
        tvm.register_global_func(name, _callback(runners[symbol]), override=True)
    try:
        yield names
    finally:
        for name in names.values():
            tvm_ffi.registry.remove_global_func(name)


def _callback(runner: RegionRunner) -> Any:
    @carried
    def call(count: int, *tensors: Any) -> None:
        call_back(runner, int(count), tensors)

    return call


def _with_callbacks(
    mod: tvm.IRModule, calls: Mapping[str, Any], names: Mapping[str, str], cut: bool = True
) -> tvm.IRModule:
    """Main with call-backs for regions; with ``cut`` no further than to the last of them."""

    def change(call: Any, definitions: Mapping[Any, Any]) -> Any:
        symbol = str(call.op.name_hint) if isinstance(call.op, tvm.ir.GlobalVar) else ""
        if symbol not in calls:
            return None
        types = of.tensor_types(mod[call.op].ret_ty)
        arguments = [relax.prim_value(len(call.args)), *call.args]
        out = types if len(types) > 1 else types[0]
        return relax.op.call_dps_packed(names[symbol], arguments, out)

    main = rewrite_calls(mod["main"], change)
    main = _up_to_regions(main) if cut else main
    others = {
        var: function
        for var, function in mod.functions_items()
        if str(var.name_hint) != "main" and not is_region(function)
    }
    builder = relax.BlockBuilder(tvm.IRModule(others))
    builder.add_func(main, "main")
    return relax.transform.Normalize()(builder.get())


def _up_to_regions(main: relax.Function) -> relax.Function:
    """``main`` up to the last call-back, with what call-backs make as its outputs."""
    bindings = list(of.bindings(main))
    regions = [n for n, one in enumerate(bindings) if _calls_back(one.value)]
    needed = bindings[: regions[-1] + 1]
    variables = [bindings[number].var for number in regions]
    body = relax.SeqExpr([relax.BindingBlock(needed)], of.Tuple(variables))
    types = of.TupleType([var.ty for var in variables])
    return relax.Function(main.params, body, types, main.is_pure, main.attrs)


def _calls_back(expr: Any) -> bool:
    return of.op_name(expr) == "relax.call_dps_packed"
