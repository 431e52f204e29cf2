"""The Relay door, as `tvm_npu.door` asks for it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import tvm
from numpy.typing import NDArray
from tvm import relay
from tvm.contrib import graph_executor

from tvm_npu.calibration import InputSpec, Sample
from tvm_npu.door.calibrate import RegionRunner
from tvm_npu.door.cpu_code import cpu_code
from tvm_npu.door.partition import Partition
from tvm_npu.door.region import MarkedRegion
from tvm_npu.processors import check_runs_here, host_processor
from tvm_npu.relay.alone import suspects
from tvm_npu.relay.build_context import build_context
from tvm_npu.relay.codegen import region_of
from tvm_npu.relay.dataflow import RelayDataflow, relay_dataflow
from tvm_npu.relay.extract import extract
from tvm_npu.relay.frontend import from_onnx, from_tflite
from tvm_npu.relay.normalize import normalize
from tvm_npu.relay.prepared import prepared
from tvm_npu.relay.run_regions import input_specs, is_region, run_model, run_regions
from tvm_npu.sim.lazy import cached_property

if TYPE_CHECKING:
    from tvm_npu.pipelines.cut import CutModel
    from tvm_npu.relay.stage_libraries import RelayStageLibraries

TUNING_LOG = "autotvm.log"
"""In the folder of a tuning."""


@dataclass(frozen=True)
class GraphExecutable:
    """A model on TVM's graph executor."""

    library: Any

    @cached_property
    def executor(self) -> Any:
        return graph_executor.GraphModule(self.library["default"](tvm.cpu()))

    def run(self, inputs: Mapping[str, NDArray[Any]]) -> list[NDArray[Any]]:
        for name, values in inputs.items():  # as keywords, TVM takes `key` and `value` for its own
            self.executor.set_input(name, np.asarray(values))
        self.executor.run()
        return [self.executor.get_output(n).numpy() for n in range(self.executor.get_num_outputs())]


class RelayDoor:
    """See `tvm_npu.door.protocol.Door`."""

    name = "relay"
    modules_pickle = True

    def read_onnx(
        self, model: Any, shapes: Mapping[str, tuple[int, ...]] | None
    ) -> tuple[tvm.IRModule, Mapping[str, Any]]:
        mod, params = from_onnx(model, None if shapes is None else dict(shapes))
        return relay.transform.InferType()(mod), params

    def read_tflite(self, content: bytes) -> tuple[tvm.IRModule, Mapping[str, Any]]:
        mod, params = from_tflite(content)
        mod["main"] = relay.build_module.bind_params_by_name(mod["main"], params)
        return relay.transform.InferType()(mod), {}

    def inputs(self, mod: tvm.IRModule) -> tuple[InputSpec, ...]:
        return input_specs(mod["main"])

    def normalize(self, mod: tvm.IRModule, params: Mapping[str, Any] | None) -> tvm.IRModule:
        return normalize(mod, params)

    def dataflow(self, mod: tvm.IRModule) -> RelayDataflow:
        return relay_dataflow(mod["main"])

    def extract(self, mod: tvm.IRModule, flow: RelayDataflow, partition: Partition) -> tvm.IRModule:
        return extract(mod, flow, partition)

    def regions(self, mod: tvm.IRModule) -> tuple[str, ...]:
        names = sorted(str(var.name_hint) for var in mod.get_global_vars())
        return tuple(name for name in names if is_region(mod[name]))

    def region(self, mod: tvm.IRModule, symbol: str) -> MarkedRegion:
        return region_of(mod[symbol], symbol)

    def with_marks(
        self, mod: tvm.IRModule, marks: Mapping[str, str], symbol: str | None = None
    ) -> tvm.IRModule:
        if symbol is None:
            for key, text in marks.items():
                mod = mod.with_attr(key, text)
            return mod
        function = mod[symbol]
        for key, text in marks.items():
            function = function.with_attr(key, text)
        mod[symbol] = function
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
    ) -> GraphExecutable:
        regions = {symbol: self.region(mod, symbol) for symbol in self.regions(mod)}
        alone = partial(suspects, mod, params)
        with cpu_code(alone), prepared(mod, regions) as light, build_context(opt_level):
            return GraphExecutable(relay.build(light, target=target, params=dict(params)))

    def stock(
        self,
        model: Any,
        shapes: Mapping[str, tuple[int, ...]],
        threads: int,
        tuning_folder: Path | None = None,
    ) -> GraphExecutable:
        from tvm_npu.relay.stock import build_stock, host_target

        log = None if tuning_folder is None else tuning_folder / TUNING_LOG
        return GraphExecutable(build_stock(model, shapes, host_target(), log))

    def tune(
        self,
        model: Any,
        shapes: Mapping[str, tuple[int, ...]],
        threads: int,
        trials: int,
        tuning_folder: Path,
    ) -> None:
        from tvm_npu.relay.stock import host_target
        from tvm_npu.relay.stock_tuning import tune

        tune(model, shapes, host_target(), trials, tuning_folder / TUNING_LOG)

    def cut(
        self, mod: tvm.IRModule, params: Mapping[str, Any] | None, *, target: str, name: str
    ) -> CutModel:
        from tvm_npu.pipelines.cut import cut_graph
        from tvm_npu.relay.primitive_graph import primitive_graph

        return cut_graph(primitive_graph(mod, params, tvm.target.Target(target)), name)

    def cpu_target(self, mcpu: str) -> str:
        if mcpu:
            check_runs_here(mcpu)
        from tvm_npu.relay.stock import cpu_target

        return cpu_target(mcpu or host_processor())

    def common_target(self, targets: Sequence[str]) -> str:
        """The one with the narrowest vectors, which every place can fill; of equals the first."""
        from tvm.target.x86 import get_simd_32bit_lanes

        def lanes(target: str) -> int:
            with tvm.target.Target(target):
                return int(get_simd_32bit_lanes())

        return min(targets, key=lanes)

    def stage_libraries(self, folder: Path) -> RelayStageLibraries:
        from tvm_npu.relay.stage_libraries import RelayStageLibraries

        return RelayStageLibraries(folder)


DOOR = RelayDoor()
