"""What a door (one TVM front end) does for the project; everything else of it is neutral.

A door reads models, shows them as a `Dataflow`, takes regions out of them and builds what is left.
Its modules are TVM's: nobody else looks into them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from numpy.typing import NDArray

from tvm_npu.calibration import InputSpec, Sample
from tvm_npu.door.calibrate import RegionRunner
from tvm_npu.door.dataflow import Dataflow
from tvm_npu.door.partition import Partition
from tvm_npu.door.region import MarkedRegion

if TYPE_CHECKING:
    from tvm_npu.pipelines.cut import CutModel, Stage

Module = Any
"""An IRModule of the door's TVM."""
F = TypeVar("F", bound=Dataflow)


class Executable(Protocol):
    """A compiled model."""

    @property
    def library(self) -> Any:
        """TVM's, for `export_library`."""
        ...

    def run(self, inputs: Mapping[str, NDArray[Any]]) -> list[NDArray[Any]]:
        """All outputs for inputs by name."""
        ...


class StageLibraries(Protocol):
    """Libraries of stages of one model, whose primitives are compiled once for each target."""

    @property
    def loader(self) -> str:
        """Of the stages, for a `StageArtifact`."""
        ...

    @property
    def compiled(self) -> int:
        """Functions that had to be compiled so far."""
        ...

    def export(self, stage: Stage, target: str, path: Path) -> None:
        """Writes a stage's library for a target: inputs by the names of what it reads, results in
        the order of what it computes."""
        ...


class Door(Protocol[F]):
    """One front end. ``F`` is its dataflow, which may know more than others see."""

    name: str
    modules_pickle: bool
    """Whether modules can be sent to other processes."""

    def read_onnx(
        self, model: Any, shapes: Mapping[str, tuple[int, ...]] | None
    ) -> tuple[Module, Mapping[str, Any]]:
        """(module with checked types, parameters) of an onnx.ModelProto; ``shapes`` by input name.
        Raises PartitionError for a model that this TVM would misread, else what TVM raises."""
        ...

    def read_tflite(self, content: bytes) -> tuple[Module, Mapping[str, Any]]:
        """(module with checked types, parameters) of a TensorFlow Lite file. Raises PartitionError
        for what it or its TVM cannot read."""
        ...

    def inputs(self, mod: Module) -> tuple[InputSpec, ...]:
        """The model's inputs. Raises CalibrationError for one without a static shape."""
        ...

    def normalize(self, mod: Module, params: Mapping[str, Any] | None) -> Module:
        """A copy in which parameters are constants and operators are spelled as rules know them.
        Raises PartitionError for a module that cannot be partitioned at all."""
        ...

    def dataflow(self, mod: Module) -> F:
        """The main function of a normalized module."""
        ...

    def extract(self, mod: Module, flow: F, partition: Partition) -> Module:
        """``mod`` with the regions of ``partition`` as functions that the build compiles for the
        NPU; ``flow`` is the dataflow that was partitioned."""
        ...

    def regions(self, mod: Module) -> tuple[str, ...]:
        """Symbols of a partitioned module's regions, sorted."""
        ...

    def region(self, mod: Module, symbol: str) -> MarkedRegion:
        """One of them, with its marks."""
        ...

    def with_marks(
        self, mod: Module, marks: Mapping[str, str], symbol: str | None = None
    ) -> Module:
        """``mod`` with texts attached to a region, or to the module."""
        ...

    def marks(self, mod: Module) -> Mapping[str, str]:
        """The texts attached to the module."""
        ...

    def run_regions(
        self, mod: Module, runners: Mapping[str, RegionRunner], samples: Iterable[Sample]
    ) -> None:
        """Hands every region's inputs to its runner (by symbol), once for each sample; what comes
        before a region runs on the CPU."""
        ...

    def run_model(
        self,
        mod: Module,
        runners: Sequence[Mapping[str, RegionRunner]],
        samples: Iterable[Sample],
    ) -> Iterator[list[list[NDArray[Any]]]]:
        """For each sample the model's outputs, once with each set of ``runners``; what is outside
        of regions runs on the CPU."""
        ...

    def build(
        self, mod: Module, params: Mapping[str, Any], target: Any, opt_level: int
    ) -> Executable:
        """Compiles a module, partitioned or not, for a TVM target."""
        ...

    def stock(
        self,
        model: Any,
        shapes: Mapping[str, tuple[int, ...]],
        threads: int,
        tuning_folder: Path | None = None,
    ) -> Executable:
        """What TVM makes of an onnx.ModelProto for this machine's processor by itself; with the
        best schedules that `tune` left in ``tuning_folder``. Raises whatever TVM raises."""
        ...

    def tune(
        self,
        model: Any,
        shapes: Mapping[str, tuple[int, ...]],
        threads: int,
        trials: int,
        tuning_folder: Path,
    ) -> None:
        """TVM's own tuner, until ``tuning_folder`` holds ``trials`` measurements for the model.
        xgboost has to be imported before TVM. Raises whatever TVM raises."""
        ...

    def cut(
        self, mod: Module, params: Mapping[str, Any] | None, *, target: str, name: str
    ) -> CutModel:
        """A module, before or after `partition_for_npu`, as a chain of layers. ``target`` is the
        CPU target that the graph is optimised for; stages can be compiled for others, too. Raises
        CutError for a model that cannot be cut (control flow, open shapes, no operator)."""
        ...

    def cpu_target(self, mcpu: str) -> str:
        """TVM's target, as text, for a processor that LLVM calls ``mcpu``; "" is this machine's.
        Raises TargetError for one that LLVM does not know here or this machine cannot run."""
        ...

    def common_target(self, targets: Sequence[str]) -> str:
        """Of ``targets`` the one to optimise the graph for, whose layouts all stages share."""
        ...

    def stage_libraries(self, folder: Path) -> StageLibraries:
        """For stages of one model that `cut` made; objects go to ``folder``."""
        ...
