"""Stages of Relax primitives as libraries for the virtual machine.

A primitive is compiled once for each target, as an object file; a stage's main calls it like
external code, and its library is linked from the objects.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import tvm
from tvm import relax

from tvm_npu.pipelines.cut import Stage
from tvm_npu.pipelines.primitives import Value
from tvm_npu.relax import expressions as of
from tvm_npu.relax.codegen import compile_region
from tvm_npu.relax.primitive_graph import RelaxPrimitives, packed_symbol, read
from tvm_npu.runtime.pipeline.artifact import RELAX_LIBRARY

Expr = Any


class RelaxStageLibraries:
    """See `tvm_npu.door.protocol.StageLibraries`."""

    loader = RELAX_LIBRARY

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._objects: dict[str, dict[str, Path]] = {}
        """By target and symbol; regions do not depend on a target."""
        self._files: dict[Path, list[str]] = {}

    @property
    def compiled(self) -> int:
        return sum(map(len, self._files.values()))

    def export(self, stage: Stage, target: str, path: Path) -> None:
        builder = _Builder(stage)
        mod = builder.module()
        found = {self._region(symbol, one) for symbol, one in builder.regions.items()}
        found |= self._primitives(builder.functions, target)
        objects = [
            tvm.runtime.load_static_library(str(one), self._files[one]) for one in sorted(found)
        ]
        mod = mod.with_attr("external_mods", objects) if objects else mod
        tvm.compile(mod, target=tvm.target.Target(target)).export_library(str(path))

    def _region(self, symbol: str, function: relax.Function) -> Path:
        known = self._objects.setdefault("", {})
        if symbol not in known:
            known[symbol] = self._saved(compile_region(function), [symbol])
        return known[symbol]

    def _primitives(self, functions: Mapping[str, Any], target: str) -> set[Path]:
        """Object files of functions of TIR. Those that no file holds yet get one together: a call
        of TVM's compiler costs more than a function."""
        known = self._objects.setdefault(target, {})
        new = {symbol: one for symbol, one in functions.items() if symbol not in known}
        if new:
            named = {symbol: one.with_attr("global_symbol", symbol) for symbol, one in new.items()}
            library = tvm.compile(tvm.IRModule(named), target=tvm.target.Target(target))
            path = self._saved(getattr(library, "mod", library), list(new))
            known.update(dict.fromkeys(new, path))
        return {known[symbol] for symbol in functions}

    def _saved(self, library: Any, symbols: list[str]) -> Path:
        path = self._folder / f"s{len(self._files)}.o"
        library.write_to_file(str(path))
        self._files[path] = symbols
        return path


class _Builder:
    """Copies calls; what comes from outside becomes a parameter of the new main. ``functions`` and
    ``regions`` are what it calls, by symbol: functions of TIR, and those of regions."""

    def __init__(self, stage: Stage) -> None:
        assert isinstance(stage.graph, RelaxPrimitives)
        self.stage, self.graph = stage, stage.graph
        self.functions: dict[str, Any] = {}
        self.regions: dict[str, relax.Function] = {}
        self._made: dict[Value, Expr] = {
            value: relax.Var(spec.name, of.TensorType(spec.shape, spec.dtype))
            for value, spec in stage.read.items()
        }

    def module(self) -> tvm.IRModule:
        """Main with the stage's inputs that it reads as parameters."""
        builder = relax.BlockBuilder()
        with builder.function("main", list(self._made.values())):
            with builder.dataflow():
                for number in self.stage.primitives:
                    self._add(builder, number)
                outputs = [builder.emit_output(self._made[value]) for value in self.stage.computed]
            builder.emit_func_output(outputs[0] if len(outputs) == 1 else of.Tuple(outputs))
        return builder.get()

    def _add(self, builder: relax.BlockBuilder, number: int) -> None:
        primitive = self.graph.primitives[number]
        var = builder.emit(self._copied(primitive.call))
        if of.is_tensor(var):
            self._made[Value(number, 0)] = var
            return
        for position in range(len(primitive.results)):
            self._made[Value(number, position)] = builder.emit(of.TupleGetItem(var, position))

    def _copied(self, call: Any) -> Expr:
        arguments = [self._argument(read(arg, self.graph.worth)) for arg in call.args]
        symbol = packed_symbol(call)
        if symbol in self.graph.regions:
            self.regions[symbol] = self.graph.regions[symbol]
        elif of.op_name(call) == "relax.call_tir":
            symbol = f"{call.args[0].name_hint}_stage"
            self.functions[symbol] = self.graph.mod[call.args[0]]
            return relax.call_dps_packed(symbol, arguments[1], call.ty_args[0])
        return of.Call(call.op, arguments, call.attrs, call.ty_args)

    def _argument(self, worth: Any) -> Expr:
        if isinstance(worth, Value):
            return self._made[worth]
        if isinstance(worth, tuple):
            return of.Tuple([self._argument(item) for item in worth])
        return worth
