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

import tvm
from numpy.typing import NDArray
from tvm import relay
from tvm.contrib import graph_executor

from tvm_npu.calibration import InputSpec, Sample, static_input
from tvm_npu.codegen.freed_memory import give_back
from tvm_npu.door.calibrate import RegionRunner, call_back
from tvm_npu.door.cpu_code import cpu_code
from tvm_npu.relay import operands as of
from tvm_npu.relay.alone import suspects
from tvm_npu.relay.build_context import build_context
from tvm_npu.relay.codegen import CALIBRATE, CALIBRATION_ATTR
from tvm_npu.sim.interrupted import handed_on
from tvm_npu.sim.locks import ForkedLock

_runs: dict[str, Mapping[str, RegionRunner]] = {}
_numbers = itertools.count()
_lock = ForkedLock()


@tvm.register_func(CALIBRATE, override=True)
def _calibrate(symbol: str, run: str, input_count: int, *tensors: Any) -> None:
    with handed_on():
        call_back(_runs[run][symbol], input_count, tensors)


def input_specs(main: relay.Function) -> tuple[InputSpec, ...]:
    """The model's inputs. Raises CalibrationError for one without a static shape."""
    specs = []
    for var in main.params:
        shape = of.static_shape(var.checked_type) if of.is_tensor(var) else None
        dtype = "" if shape is None else str(var.checked_type.dtype)
        specs.append(static_input(var.name_hint, shape, dtype, var.checked_type))
    return tuple(specs)


def run_regions(
    mod: tvm.IRModule, runners: Mapping[str, RegionRunner], samples: Iterable[Sample]
) -> None:
    """Hands every region's inputs to its runner (by symbol), once for each sample.

    Of main only what comes before a region is computed; TVM compiles it for the CPU.
    """
    calls = region_calls(mod)
    if all(isinstance(arg, relay.Var) for call in calls.values() for arg in call.args):
        for sample in samples:
            for symbol, call in calls.items():
                runners[symbol].run([sample[arg.name_hint] for arg in call.args])
    else:
        _run_model(mod, calls, runners, samples)


def region_calls(mod: tvm.IRModule) -> dict[str, relay.Call]:
    """The call of every NPU region in main, by symbol, in execution order."""
    return {
        expr.op.name_hint: expr
        for expr in of.post_order(mod["main"].body)
        if isinstance(expr, relay.Call)
        and isinstance(expr.op, relay.GlobalVar)
        and is_region(mod[expr.op])
    }


def is_region(function: Any) -> bool:
    attrs = getattr(function, "attrs", None)
    return attrs is not None and "Compiler" in attrs and str(attrs["Compiler"]) == "npu"


def run_model(
    mod: tvm.IRModule,
    runners: Sequence[Mapping[str, RegionRunner]],
    samples: Iterable[Sample],
) -> Iterator[list[list[NDArray[Any]]]]:
    """For each sample the model's outputs, once with each set of ``runners`` (by symbol); TVM
    compiles what is outside of the regions for the CPU, once."""
    with _calling(mod, mod["main"], region_calls(mod)) as (run, executor):
        for sample in samples:
            for name, values in sample.items():
                executor.set_input(name, values)
            results = []
            for one in runners:
                _runs[run] = one
                executor.run()
                count = executor.get_num_outputs()
                results.append([executor.get_output(index).numpy() for index in range(count)])
            yield results


def _run_model(
    mod: tvm.IRModule,
    calls: Mapping[str, relay.Call],
    runners: Mapping[str, RegionRunner],
    samples: Iterable[Sample],
) -> None:
    """Runs what the regions need of main, with the regions as call-backs."""
    results = [
        relay.TupleGetItem(call, 0) if isinstance(call.checked_type, relay.TupleType) else call
        for call in calls.values()
    ]
    main = relay.Function(mod["main"].params, relay.Tuple(results))
    with _calling(mod, main, calls) as (run, executor):
        _runs[run] = runners
        for sample in samples:
            for name, values in sample.items():
                executor.set_input(name, values)
            executor.run()


@contextmanager
def _calling(
    mod: tvm.IRModule, main: relay.Function, calls: Iterable[str]
) -> Iterator[tuple[str, Any]]:
    """(key of `_runs`, an executor of ``main`` in which regions call the runners of that key)."""
    with _lock():
        run = f"run{next(_numbers)}"
    functions = dict(mod.functions.items())
    for symbol in calls:
        variable = mod.get_global_var(symbol)
        functions[variable] = mod[symbol].with_attr(CALIBRATION_ATTR, run)
    functions[mod.get_global_var("main")] = main
    needed = relay.transform.InferType()(tvm.IRModule(functions, mod.type_definitions))
    try:
        with cpu_code(partial(suspects, needed)), build_context(2):
            library = relay.build(needed, target="llvm")
        executor = graph_executor.GraphModule(library["default"](tvm.cpu()))
        give_back()  # what TVM and LLVM took
        yield run, executor
    finally:
        _runs.pop(run, None)
