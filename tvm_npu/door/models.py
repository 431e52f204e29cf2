"""From an ONNX model to region programs or to something that runs, for programs that hold no IR."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from numpy.typing import NDArray

from tvm_npu.calibration import InputSpec, Sample
from tvm_npu.codegen.graph import FixedGraph
from tvm_npu.codegen.phases import phase
from tvm_npu.door.calibrate import RegionRunner
from tvm_npu.door.cpu_code import reason_of
from tvm_npu.door.find import door
from tvm_npu.door.given_inputs import checked_inputs, given_shapes
from tvm_npu.door.offload import offload_regions, report_of
from tvm_npu.door.onnx.batch import with_batch_axes
from tvm_npu.door.protocol import Door, Executable, Module
from tvm_npu.door.region import ComparedRegion, MarkedRegion
from tvm_npu.errors import NpuError, PartitionError
from tvm_npu.options import NpuOptions
from tvm_npu.report import PartitionReport
from tvm_npu.sim.description import MachineDescription
from tvm_npu.sim.interrupted import taken_back
from tvm_npu.sim.making_code import Stopwatch
from tvm_npu.targets import build_target, options_from_target

if TYPE_CHECKING:
    from tvm_npu.pipelines.cut import CutModel
    from tvm_npu.pipelines.platform import Platform


@dataclass(frozen=True)
class PartitionedModel:
    """A model whose regions have ranges; ``report`` says what runs where. ``machine`` is another
    than the one that it was partitioned for."""

    door: Door[Any]
    mod: Module
    report: PartitionReport
    machine: MachineDescription | None = None

    def on(self, machine: MachineDescription) -> PartitionedModel:
        """The same regions on another machine of the kind that the model was partitioned for."""
        return replace(self, machine=machine)

    @property
    def symbols(self) -> tuple[str, ...]:
        """Of the regions, in execution order."""
        return tuple(region.symbol for region in self.report.regions)

    def program(self, symbol: str) -> bytes:
        """One region compiled to a Program file; raises what `compile_graph` raises."""
        return self.region(symbol).program()

    def fixed_graph(self, symbol: str) -> FixedGraph:
        """The fixed-point graph of one region; raises what `program` raises."""
        return self.region(symbol).fixed_graph()

    def region(self, symbol: str) -> MarkedRegion:
        """One region with its marks."""
        found = self.door.region(self.mod, symbol)
        return found if self.machine is None else found.on(self.machine)

    def fixed_graphs(self) -> dict[str, FixedGraph]:
        """The fixed-point graphs of all regions by symbol."""
        return {symbol: self.fixed_graph(symbol) for symbol in self.symbols}

    def run_regions(self, runners: Mapping[str, RegionRunner], samples: Iterable[Sample]) -> None:
        """Runs every region by its runner, once a sample; operators before it run on the CPU."""
        self.door.run_regions(self.mod, runners, samples)

    def run(
        self, runners: Sequence[Mapping[str, RegionRunner]], samples: Iterable[Sample]
    ) -> Iterator[list[list[NDArray[Any]]]]:
        """For each sample the model's outputs, once with each set of ``runners``."""
        return self.door.run_model(self.mod, runners, samples)

    def cut(self, platform: Platform, name: str) -> CutModel:
        """The model, regions included, as a chain for the places of ``platform``. Raises
        CutError."""
        target = _target_of(platform, self.door)
        return self.door.cut(self.mod, None, target=target, name=name)

    @property
    def is_quantized(self) -> bool:
        """Whether the model says scales of tensors on the NPU itself."""
        return any(self.region(symbol).graph().scales for symbol in self.symbols)

    def int16_layers(self, symbol: str) -> int:
        """How many layers of an int8 region compute in int16."""
        fixed = self.compared(symbol).fixed
        others = [one for one in fixed.layers if fixed.precision_of(one) != "int8"]
        return len(others) if self.region(symbol).options.int16_layers else 0

    def compared(self, symbol: str) -> ComparedRegion:
        """One region, float and fixed."""
        return self.region(symbol).compared()


@dataclass(frozen=True)
class ImportedModel:
    """A model as the door's TVM reads it, its parameters bound later."""

    door: Door[Any]
    mod: Module
    params: Mapping[str, Any]
    inputs: tuple[InputSpec, ...]

    def partition(
        self, options: NpuOptions, calibration: Iterable[Sample] | None
    ) -> PartitionedModel:
        """As `partition_for_npu`, with the same warnings and errors."""
        mod = offload_regions(self.door, self.mod, self.params, options, calibration)
        return PartitionedModel(self.door, mod, report_of(self.door, mod))

    def cut(self, platform: Platform, name: str) -> CutModel:
        """The model as a chain for the places of ``platform``. Raises CutError."""
        target = _target_of(platform, self.door)
        return self.door.cut(self.mod, self.params, target=target, name=name)


def _target_of(platform: Platform, found: Door[Any]) -> str:
    """What a chain is cut for: TVM's plain CPU target where places are simulated."""
    from tvm_npu.pipelines.stage_compiler import place_targets

    if platform.simulated:
        return "llvm"
    return found.common_target([one.target for one in place_targets(found, platform)])


def import_onnx(model: Any, shapes: Mapping[str, tuple[int, ...]]) -> ImportedModel:
    """An onnx.ModelProto as the installed door reads it; ``shapes`` by input name, batch in front.

    Raises PartitionError for what TVM's frontend cannot read.
    """
    found = door()
    mod, params = _read(partial(found.read_onnx, model, given_shapes(shapes)))
    return ImportedModel(found, mod, params, with_batch_axes(model, found.inputs(mod)))


def _read(
    reads: Callable[[], tuple[Module, Mapping[str, Any]]]
) -> tuple[Module, Mapping[str, Any]]:
    try:
        return reads()
    except NpuError:
        raise
    except Exception as error:  # the frontend raises whatever its handlers run into
        raise PartitionError(f"TVM cannot import the model: {reason_of(error)}") from error


def import_tflite(content: bytes) -> ImportedModel:
    """The content of a TensorFlow Lite file as the installed door reads it.

    Raises PartitionError for what the door cannot read.
    """
    found = door()
    mod, params = _read(partial(found.read_tflite, content))
    return ImportedModel(found, mod, params, found.inputs(mod))


@dataclass(frozen=True)
class BuiltModel:
    """A compiled model. ``partitioned`` is the model with its regions and ``report`` says what runs
    where; both None when the whole model was built for the CPU. ``compile_s`` is the time from the
    imported module to the library, in seconds."""

    executable: Executable
    report: PartitionReport | None
    partitioned: PartitionedModel | None
    compile_s: float
    inputs: tuple[InputSpec, ...]

    @property
    def library(self) -> Any:
        """TVM's, for `export_library`."""
        return self.executable.library

    def run(self, inputs: Mapping[str, NDArray[Any]]) -> list[NDArray[Any]]:
        """All outputs for inputs by name. Raises RunError for inputs that are not the model's."""
        with taken_back():
            return self.executable.run(checked_inputs(inputs, self.inputs))


@taken_back()
def build_onnx(
    model: Any,
    target: Any = "npu/nmp-4x8",
    calibration: Any = None,
    *,
    shapes: Mapping[str, Sequence[int]] | None = None,
    opt_level: int = 3,
    **options: Any,
) -> BuiltModel:
    """Imports, partitions and builds an onnx.ModelProto, or the one in a file (a path), which then
    is not kept in memory beside what TVM makes of it.

    ``target``, ``calibration`` and ``options`` as `partition_for_npu` takes them; without a target
    the model stays as it is, float32 on the CPU. ``shapes`` sets inputs' shapes that the model
    leaves open; without them it raises CalibrationError, and else what `partition_for_npu` raises.
    """
    found = door()
    given = given_shapes(shapes)
    with phase("read"):
        mod, params = _read(partial(found.read_onnx, model, given or None))
        inputs = found.inputs(mod)
    del model
    watch = Stopwatch()
    partitioned = None
    with watch.part("compile"):
        if target is not None:
            chosen = options_from_target(target, **options)
            mod = offload_regions(found, mod, params, chosen, calibration)
            partitioned = PartitionedModel(found, mod, report_of(found, mod))
            params = {}
        with phase("TVM"):
            executable = found.build(mod, params, build_target(target), opt_level)
    report = None if partitioned is None else partitioned.report
    return BuiltModel(executable, report, partitioned, watch.seconds["compile"], inputs)


def build_stock(
    model: Any, target: str = "llvm", shapes: Mapping[str, Sequence[int]] | None = None
) -> Any:
    """The library that stock TVM makes of an onnx.ModelProto for a CPU, all optimisations on."""
    found = door()
    given = given_shapes(shapes)
    mod, params = _read(partial(found.read_onnx, model, given or None))
    return found.build(mod, params, target, 3).library
