"""The Relax door, as `tvm_npu.door` asks for it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import tvm
from numpy.typing import NDArray
from tvm import relax

from tvm_npu.calibration import InputSpec, Sample
from tvm_npu.door.calibrate import RegionRunner
from tvm_npu.door.cpu_code import cpu_code
from tvm_npu.door.partition import Partition
from tvm_npu.door.region import MarkedRegion
from tvm_npu.errors import PartitionError
from tvm_npu.processors import check_runs_here, host_processor
from tvm_npu.relax import expressions as of
from tvm_npu.relax.alone import suspects
from tvm_npu.relax.codegen import region_of, run_codegen
from tvm_npu.relax.dataflow import RelaxDataflow, relax_dataflow
from tvm_npu.relax.extract import extract
from tvm_npu.relax.frontend import from_onnx
from tvm_npu.relax.normalize import normalize
from tvm_npu.relax.run_regions import input_specs, is_region, run_model, run_regions
from tvm_npu.sim.lazy import cached_property

if TYPE_CHECKING:
    from tvm_npu.pipelines.cut import CutModel
    from tvm_npu.relax.stage_libraries import RelaxStageLibraries


@dataclass(frozen=True)
class MachineExecutable:
    """A model on Relax's virtual machine; ``inputs`` are main's parameters in order."""

    library: Any
    inputs: tuple[str, ...]

    @cached_property
    def machine(self) -> Any:
        return relax.VirtualMachine(self.library, tvm.cpu())

    def run(self, inputs: Mapping[str, NDArray[Any]]) -> list[NDArray[Any]]:
        result = self.machine["main"](*(tvm.runtime.tensor(inputs[name]) for name in self.inputs))
        outputs = [result] if hasattr(result, "numpy") else list(result)
        return [output.numpy() for output in outputs]


class RelaxDoor:
    """See `tvm_npu.door.protocol.Door`."""

    name = "relax"
    modules_pickle = False
    """TVM 0.27 ends the process when modules with constants are pickled."""

    def read_onnx(
        self, model: Any, shapes: Mapping[str, tuple[int, ...]] | None
    ) -> tuple[tvm.IRModule, Mapping[str, Any]]:
        return from_onnx(model, shapes), {}

    def read_tflite(self, content: bytes) -> tuple[tvm.IRModule, Mapping[str, Any]]:
        raise PartitionError(
            "TensorFlow Lite models are read through Relay (TVM 0.19: pip install '.[relay]'); "
            f"this is TVM {tvm.__version__}"
        )

    def inputs(self, mod: tvm.IRModule) -> tuple[InputSpec, ...]:
        return input_specs(mod["main"])

    def normalize(self, mod: tvm.IRModule, params: Mapping[str, Any] | None) -> tvm.IRModule:
        return normalize(mod, params)

    def dataflow(self, mod: tvm.IRModule) -> RelaxDataflow:
        return relax_dataflow(mod["main"])

    def extract(self, mod: tvm.IRModule, flow: RelaxDataflow, partition: Partition) -> tvm.IRModule:
        return extract(mod, flow, partition)

    def regions(self, mod: tvm.IRModule) -> tuple[str, ...]:
        return tuple(sorted(str(var.name_hint) for var, f in mod.functions_items() if is_region(f)))

    def region(self, mod: tvm.IRModule, symbol: str) -> MarkedRegion:
        return region_of(mod[symbol], symbol)

    def with_marks(
        self, mod: tvm.IRModule, marks: Mapping[str, str], symbol: str | None = None
    ) -> tvm.IRModule:
        if symbol is None:
            return mod.with_attrs(dict(marks))
        mod = tvm.IRModule(dict(mod.functions_items()), attrs=mod.attrs)
        mod[mod.get_global_var(symbol)] = mod[symbol].with_attrs(dict(marks))
        return mod

    def marks(self, mod: tvm.IRModule) -> Mapping[str, str]:
        if mod.attrs is None:
            return {}
        return {str(k): str(v) for k, v in mod.attrs.items() if isinstance(v, str)}

    def run_regions(
        self, mod: tvm.IRModule, runners: Mapping[str, RegionRunner], samples: Iterable[Sample]
    ) -> None:
        run_regions(mod, runners, samples)

    def run_model(
        self,
        mod: tvm.IRModule,
        runners: Sequence[Mapping[str, RegionRunner]],
        samples: Iterable[Sample],
    ) -> Iterator[list[list[NDArray[Any]]]]:
        return run_model(mod, runners, samples)

    def build(
        self, mod: tvm.IRModule, params: Mapping[str, Any], target: Any, opt_level: int
    ) -> MachineExecutable:
        every = (of.name_of(var) for var in mod["main"].params)
        names = tuple(name for name in every if name not in params)
        if params:
            mod = normalize(mod, params)
        with tvm.transform.PassContext(opt_level=opt_level):
            compiled = run_codegen(mod)
            with cpu_code(partial(suspects, mod)):
                library = tvm.compile(compiled, target=tvm.target.Target(target))
        return MachineExecutable(library, names)

    def stock(
        self,
        model: Any,
        shapes: Mapping[str, tuple[int, ...]],
        threads: int,
        tuning_folder: Path | None = None,
    ) -> MachineExecutable:
        from tvm_npu.relax.stock import build_stock, host_target

        library = build_stock(model, shapes, host_target(threads), tuning_folder)
        return MachineExecutable(library, tuple(shapes))

    def tune(
        self,
        model: Any,
        shapes: Mapping[str, tuple[int, ...]],
        threads: int,
        trials: int,
        tuning_folder: Path,
    ) -> None:
        from tvm_npu.relax.stock import host_target
        from tvm_npu.relax.stock_tuning import tune

        tune(model, shapes, host_target(threads), trials, tuning_folder)

    def cut(
        self, mod: tvm.IRModule, params: Mapping[str, Any] | None, *, target: str, name: str
    ) -> CutModel:
        from tvm_npu.pipelines.cut import cut_graph
        from tvm_npu.relax.primitive_graph import primitive_graph

        return cut_graph(primitive_graph(mod, params, tvm.target.Target(target)), name)

    def cpu_target(self, mcpu: str) -> str:
        if mcpu:
            check_runs_here(mcpu)
        return json.dumps({"kind": "llvm", "mcpu": mcpu or host_processor()})

    def common_target(self, targets: Sequence[str]) -> str:
        """Any: no layout depends on it."""
        return targets[0]

    def stage_libraries(self, folder: Path) -> RelaxStageLibraries:
        from tvm_npu.relax.stage_libraries import RelaxStageLibraries

        return RelaxStageLibraries(folder)


DOOR = RelaxDoor()
